"""The seams: everything that may differ between two runs comes in through them.

    seam         in production                      in the simulator
    clock        trio's monotonic clock             virtual time, which jumps, and one per node
    chance       random.Random, SystemRandom        one seeded stream per purpose
    transport    TCP                                in-memory streams with delay, stalls, cuts
    file_system  OsFileSystem                       FaultyFileSystem
    offload      a worker thread, with a limit      runs inline, then sleeps the disk's cost

A broker, a controller and a client are each handed one `Seams` and reach the world
through nothing else, so the simulator runs the code that production runs. `trio.sleep`,
`trio.current_time` and `trio.to_thread` are used in this package only; a lint rule enforces it.

Deadlines are seconds on the node's monotonic clock. Wall time is for record timestamps
and time retention only: lag, session and retry timers never look at it.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import trio

from storage.attributes import frozen
from storage.filesystem import FileSystem
from storage.log.file_region import FileRegion
from storage.types import Buffer

T = TypeVar("T")


class Alarm(Protocol):
    """A call at a moment."""

    def call_off(self) -> None:
        """Cancel the call. Afterwards, or twice, that is harmless."""


class NodeClock(Protocol):
    """The time of one node."""

    def now(self) -> float:
        """Return seconds, monotonic, from an arbitrary start."""

    def now_ms(self) -> int:
        """Return `now` in whole milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for record timestamps and time retention only."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; not at all if they are 0 or negative."""

    async def sleep_until(self, deadline: float) -> None: ...

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """Return a scope that is cancelled after `seconds` of this node's time.

        It is cancelled at its first wait if they are 0 or negative.
        """

    def alarm(self, moment: float, act: Callable[[], object]) -> Alarm:
        """Call `act` then, unless the alarm is called off.

        It costs less than a scope, and is enough to wake a task or to close a connection.
        """


class Connection(Protocol):
    """An ordered stream of bytes to one peer."""

    @property
    def peer(self) -> str:
        """The `host:port` of the other end, for the log."""

    @property
    def moved(self) -> int:
        """The number of bytes sent and received; it grows while something moves."""

    @property
    def gathers_up_to(self) -> int:
        """The bytes of small file regions that are better sent among the buffers around them.

        Sent by itself, a small region needs another system call, and wakes the peer once more.
        """

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte; return the count, 0 at the end. PeerUnavailableError if broken."""

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send all of `buffers`, in order, without joining them.

        If it is cancelled or fails in the middle, the connection is closed: the peer must not see
        half a frame followed by another.
        """

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what needs no wait of `buffers`; return the rest, to be sent before anything else.

        A connection that has to wait for every send returns all of them. PeerUnavailableError if it
        is lost.
        """

    async def send_region(self, region: FileRegion) -> None:
        """Send all of `region` from its file, by the rule of `send_buffers`."""

    def close(self) -> None:
        """Close at once, and wake the tasks that wait on it. Twice is harmless."""


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def accept(self) -> Connection: ...

    def close(self) -> None: ...


class Transport(Protocol):
    async def listen(self, host: str, port: int) -> Listener:
        """Listen at a port, 0 for any; OSError (EADDRINUSE) if it is taken."""

    async def connect(self, host: str, port: int) -> Connection:
        """Connect; PeerUnavailableError if nothing listens there."""


class Offload(Protocol):
    """Slow work away from the loop: fsync, recovery, cleaning, unlinking, cold reads.

    `fn` works on immutable inputs: a closed segment, a duplicated descriptor. The loop makes
    the plan before, and applies the result after.
    """

    async def __call__(self, fn: Callable[[], T], /) -> T: ...


@frozen
class Seams:
    """The seams of one node."""

    clock: NodeClock
    chance: random.Random
    transport: Transport
    file_system: FileSystem
    offload: Offload
