"""What reading a file may cost: memory that its size justifies, and time that ends."""

import contextlib
import signal
import tracemalloc
from collections.abc import Iterator

# Windows and chunks that readers have whatever a file holds, and what a codec may expand to.
FIXED = 24 << 20
PER_BYTE = 256
PROCESSOR_SECONDS = 20.0


class HangError(AssertionError):
    """The processor has been at it for too long."""


@contextlib.contextmanager
def bounded(size: int) -> Iterator[None]:
    """AssertionError where this takes more memory, or time, than `size` bytes justify."""
    with _no_hang():
        tracemalloc.start()
        try:
            yield
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak <= FIXED + PER_BYTE * size, f"{peak} bytes of memory for a file of {size}"


@contextlib.contextmanager
def _no_hang() -> Iterator[None]:
    """Counted in processor time, so that a busy machine does not count."""

    def hang(*_: object) -> None:
        raise HangError(f"more than {PROCESSOR_SECONDS} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
