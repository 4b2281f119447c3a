"""Everything that may differ between two runs comes in here, and nowhere else.

    seam         in production                      in the simulator
    clock        trio's monotonic clock             virtual time, which jumps, and one per node
    chance       random.Random, SystemRandom        one seeded stream per purpose
    transport    TCP                                in-memory streams with delay, stalls, cuts
    file_system  OsFileSystem                       FaultyFileSystem
    offload      a worker thread, with a limit      runs inline, then sleeps the disk's cost

A broker, a controller and a client are each handed one `Seams` and reach the world
through nothing else, so the simulator runs the code that production runs. `trio.sleep`,
`trio.current_time` and `trio.to_thread` stand in this package alone; a lint rule says so.

Deadlines are seconds on the node's monotonic clock. Wall time is for record timestamps
and time retention only: lag, session and retry timers never look at it.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import attrs
import trio

from storage.filesystem import FileSystem
from storage.log.file_region import FileRegion
from storage.types import Buffer

T = TypeVar("T")


class Alarm(Protocol):
    """What is to be called at a moment."""

    def call_off(self) -> None:
        """It is not. Afterwards, or twice, that is harmless."""


class NodeClock(Protocol):
    """One node's time."""

    def now(self) -> float:
        """Seconds, monotonic, from an arbitrary start."""

    def now_ms(self) -> int:
        """`now` in whole milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps and time retention only."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; not at all where they are 0 or negative."""

    async def sleep_until(self, deadline: float) -> None: ...

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """A scope cancelled after `seconds` of this node's time; at its first wait where they are
        0 or negative.
        """

    def alarm(self, moment: float, act: Callable[[], object]) -> Alarm:
        """Call `act` then, unless that is called off: for less than a scope, where it is enough
        to wake somebody, or to close a connection.
        """


class Connection(Protocol):
    """An ordered stream of bytes to one peer."""

    @property
    def peer(self) -> str:
        """`host:port` of the other end, for the log."""

    @property
    def moved(self) -> int:
        """How many bytes have come and gone; it grows while something moves."""

    async def receive_into(self, buffer: memoryview) -> int:
        """At least one byte into `buffer`; 0 at the end; PeerUnavailableError when broken."""

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """All of `buffers`, in order, never joined. Cancelled or failed in the middle, the
        connection is closed: the peer must not see half a frame followed by another.
        """

    async def send_region(self, region: FileRegion) -> None:
        """All of `region`, from the file to the wire; the same rule as `send_buffers`."""

    def close(self) -> None:
        """At once and without a goodbye; wakes whoever waits on it. Twice is harmless."""


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def accept(self) -> Connection: ...

    def close(self) -> None: ...


class Transport(Protocol):
    async def listen(self, host: str, port: int) -> Listener:
        """Port 0 takes any; OSError (EADDRINUSE) where it is taken."""

    async def connect(self, host: str, port: int) -> Connection:
        """PeerUnavailableError where nobody listens."""


class Offload(Protocol):
    """Slow work away from the loop: fsync, recovery, cleaning, unlinking, cold reads.

    `fn` works on immutable inputs: a closed segment, a duplicated descriptor. The plan is
    made on the loop before, and its result committed on the loop after.
    """

    async def __call__(self, fn: Callable[[], T], /) -> T: ...


@attrs.frozen
class Seams:
    """What one node is handed."""

    clock: NodeClock
    chance: random.Random
    transport: Transport
    file_system: FileSystem
    offload: Offload
