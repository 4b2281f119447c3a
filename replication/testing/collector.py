"""Python's cyclic garbage collector, put off while a cluster starts.

    start ── tens of thousands of objects made, all of which stay ──> every broker knows every other
                └ sooner or later a full collection falls due: it walks all that the process has
                  imported, and takes as long as the start itself

Rule 1: what is made by a start lives as long as the cluster, so there is nothing to be found by
looking through it.

Rule 2: once nobody starts any more what is young is looked through, some milliseconds, so that
nothing is due at that instant; the older generations are when they would have been. Of who has
switched the collector off it stays off.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_starting = 0
_was_enabled = False


@contextmanager
def collector_put_off() -> Iterator[None]:
    """For all threads of the process: from the first that asks until the last has done."""
    global _starting, _was_enabled  # noqa: PLW0603 - there is one collector
    with _lock:
        if not _starting:
            _was_enabled = gc.isenabled()
            gc.disable()
        _starting += 1
    try:
        yield
    finally:
        with _lock:
            _starting -= 1
            if not _starting and _was_enabled:
                gc.collect(0)
                gc.enable()
