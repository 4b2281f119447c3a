"""Machines, the links between them, and the connections over these.

    b1 end ── outgoing: [chunk @1.002][chunk @1.004][end @1.004] ──> incoming ── b2 end

Rule 1: a pipe is a stream: chunks arrive in the order in which they were sent, each with a
delay of its own, never before the one ahead of it. What is on its way when the link is cut
waits, as with TCP, and is sent again when the link heals.

Rule 2: the first chunk on its way has an alarm, which lets it arrive and wakes the task that waits
for it at the other end. No task is woken to find nothing.

Rule 3: closing tells the peer, behind the bytes already sent. A peer that this does not
reach (the link is cut, the machine has lost its power) is left with half a connection.

Rule 4: the API of a connection is that of its client's last request. A link that holds up an API
holds up such a connection, with all that is queued in it, until it heals.

Rule 5: a pipe holds `WINDOW_BYTES` that were not yet received; then its sender waits.
Bytes are copied on their way in, as a kernel would.

Rule 6: a link goes one way. It delays what it carries, by a least time and an exponentially
distributed rest; it may be cut, alone or together with the one that leads back; and it may hold
up the connections over which one API is asked for, while others pass.
"""

import enum
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import attrs
import trio

from replication.errors import PeerUnavailableError
from replication.events import EventSink, ignore
from replication.net.framing import LENGTH_SIZE
from replication.net.regions import region_chunks
from scenarios.world.clock import SimulatedClock, VirtualAlarm, VirtualTime
from scenarios.world.trace import LateBytes, MessageTorn
from storage.log.file_region import FileRegion
from storage.types import Buffer

Received = Callable[[memoryview, "Link"], None]


@attrs.define(eq=False, repr=False)
class Host:
    """A machine: the name that others connect to, and whether it is up."""

    name: str
    clock: SimulatedClock
    up: bool = True
    boots: int = 1

    @property
    def holds_back(self) -> bool:
        """Whether what arrives here waits: the machine is paused, or its processor is busy."""
        return self.clock.holds_back


@attrs.define(eq=False, repr=False)
class Link:
    """The way from one machine to another."""

    source: Host
    target: Host
    chance: random.Random
    least_delay: float  # seconds
    mean_extra_delay: float
    cut: bool = False
    late_reported: bool = False
    """Whether late bytes have been reported for this link."""
    # The number of messages about an API that still pass; below zero they are held.
    _passing: dict[int, int] = attrs.field(factory=dict)
    # The APIs whose next message breaks off; None stands for any.
    _torn: set[int | None] = attrs.field(factory=set)

    @property
    def down(self) -> bool:
        return self.cut or not self.source.up or not self.target.up

    @property
    def holds_any(self) -> bool:
        return bool(self._passing)

    def hold(self, api: int, *, after: int = 0) -> None:
        self._passing[api] = after or -1

    def let_go(self) -> None:
        self._passing.clear()

    def tear(self, api: int | None = None) -> None:
        """Break off the next message, or the next one about `api`."""
        self._torn.add(api)

    def tears(self, api: int | None) -> bool:
        return bool(self._torn) and not self._torn.isdisjoint({api, None})

    def mend(self) -> None:
        self._torn.clear()

    def holds(self, api: int | None) -> bool:
        return api is not None and self._passing.get(api, 0) < 0

    def count(self, api: int | None) -> None:
        """Count one more message about `api`."""
        if api is not None and api in self._passing:
            self._passing[api] -= 1

    def delay(self) -> float:
        """Return the delay of the next chunk, in seconds."""
        if self.mean_extra_delay <= 0:
            return self.least_delay
        return self.least_delay + self.chance.expovariate(1 / self.mean_extra_delay)


WINDOW_BYTES = 64 * 1024


class End(enum.Enum):
    """The end of a stream, after the last byte."""

    CLOSED = "closed the connection"
    RESET = "reset the connection"


@attrs.define(eq=False, repr=False)
class Pipe:
    """The bytes that one end has sent and the other has not received."""

    link: Link
    time: VirtualTime
    held: int = 0
    end: End | None = None  # as the receiver sees it
    api: int | None = None  # of the last request on its connection
    when_arrived: Callable[[], None] = attrs.field(init=False, default=lambda: None)
    _in_flight: deque[tuple[float, memoryview | End]] = attrs.field(factory=deque)
    _frame_left: int = 0
    _arrived: deque[memoryview] = attrs.field(factory=deque)
    _next_arrival: VirtualAlarm | None = attrs.field(init=False, default=None)

    def push(self, chunk: memoryview | End, *, now: float) -> None:
        arrival = now + self.link.delay()
        if self._in_flight and arrival < self._in_flight[-1][0]:
            arrival = self._in_flight[-1][0]
        self._in_flight.append((arrival, chunk))
        if isinstance(chunk, memoryview):
            self.held += len(chunk)
            if self._frame_left <= 0:
                self.link.count(self.api)
                self._frame_left = LENGTH_SIZE + int.from_bytes(chunk[:LENGTH_SIZE], "big")
            self._frame_left -= len(chunk)
        if self._next_arrival is None:
            self.go_on()

    def go_on(self) -> None:
        """Let arrive what is due, and set an alarm for the next; do nothing while the link is down."""
        if self._next_arrival is not None:
            self._next_arrival.call_off()
            self._next_arrival = None
        if self.link.down or self.link.holds(self.api) or not self._in_flight:
            return
        if self._settle():
            self.when_arrived()
        if self._in_flight:
            self._next_arrival = self.time.alarm(self._in_flight[0][0], self._go_on_by_alarm)

    def _go_on_by_alarm(self) -> None:
        self._next_arrival = None
        self.go_on()

    def _settle(self) -> bool:
        """Take what has arrived from the way; return whether there was anything."""
        ahead, now, settled = self._in_flight, self.time.now, False
        while ahead and ahead[0][0] <= now:
            _, chunk = ahead.popleft()
            settled = True
            if isinstance(chunk, memoryview):
                self._arrived.append(chunk)
            elif self.end is None:
                self.end = chunk
        return settled

    @property
    def has_news(self) -> bool:
        """Whether the receiver can read bytes or the end."""
        return bool(self._arrived) or self.end is not None

    def resend(self) -> None:
        """Send again what waits, after the link has healed."""
        chunks = [chunk for _, chunk in self._in_flight]
        self._in_flight.clear()
        arrival = now = self.time.now
        for chunk in chunks:
            arrival = max(arrival, now + self.link.delay())
            self._in_flight.append((arrival, chunk))
        self.go_on()

    def lose_bytes_in_flight(self) -> None:
        """Drop what is on its way after a power cut: it is never sent again, and its window stays
        taken.
        """
        self._in_flight.clear()

    def lose_everything(self) -> None:
        self._in_flight.clear()
        self._arrived.clear()
        self.held = 0

    def take(self, buffer: memoryview) -> int:
        """Move what has arrived into `buffer`; return the number of bytes."""
        filled = 0
        while self._arrived and filled < len(buffer):
            chunk = self._arrived.popleft()
            size = min(len(chunk), len(buffer) - filled)
            buffer[filled : filled + size] = chunk[:size]
            if size < len(chunk):
                self._arrived.appendleft(chunk[size:])
            filled += size
        self.held -= filled
        return filled


class Tap(Protocol):
    """An observer of all connections; it changes nothing."""

    def opened(self, requests: Pipe, responses: Pipe) -> None: ...

    def sent(self, pipe: Pipe, chunk: memoryview, now: float) -> None: ...

    def received(self, pipe: Pipe, size: int, now: float) -> None: ...


@attrs.define(eq=False, repr=False)
class SimulatedConnection:
    """One end of a connection; the other end is `other`."""

    incoming: Pipe
    outgoing: Pipe
    peer: str
    on_received: Received
    tap: Tap | None = None
    sink: EventSink = ignore
    asks: bool = False
    """Whether it is the client's end."""
    superseded: bool = attrs.field(default=False, init=False)
    """Whether its client has closed it and made another one since."""
    other: "SimulatedConnection | None" = attrs.field(default=None, init=False)
    closed: bool = attrs.field(default=False, init=False)
    moved: int = attrs.field(default=0, init=False)
    gathers_up_to: ClassVar[int] = 0
    _receiver: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _senders: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _sending: bool = attrs.field(default=False, init=False)
    _peer_boots: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._peer_boots = self.peer_host.boots
        self.incoming.when_arrived = self._arrived

    @property
    def host(self) -> Host:
        return self.outgoing.link.source

    @property
    def peer_host(self) -> Host:
        return self.outgoing.link.target

    async def receive_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0, "an empty buffer would make waiting look like the end"
        if self._has_news():
            await trio.lowlevel.checkpoint()
        while not self._has_news():
            await self._wait_for_news()
        if self.closed:
            self._check_open()
        size = self.incoming.take(buffer)
        self.moved += size
        if size:
            if self.superseded:
                self._report_late_bytes()
            self.on_received(buffer[:size], self.incoming.link)
            self.host.clock.work()
            if self.tap is not None:
                self.tap.received(self.incoming, size, self.incoming.time.now)
            if self.other is not None:
                self.other.window_has_room()
        else:
            self._check_not_reset()
        return size

    def _has_news(self) -> bool:
        """Return whether a receiver at this end has something to do."""
        return self.closed or (self.incoming.has_news and not self.host.holds_back)

    async def _wait_for_news(self) -> None:
        assert self._receiver is None, "two tasks may not receive on one connection at once"
        self._receiver = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)

    def _stop_waiting(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_receiver(self) -> None:
        task, self._receiver = self._receiver, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _report_late_bytes(self) -> None:
        link = self.incoming.link
        if not link.late_reported:
            link.late_reported = True
            self.sink(LateBytes(source=self.peer_host.name, target=self.host.name))

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        if self.asks:
            self.incoming.api = self.outgoing.api = _api_key(buffers[0])
        await self._send_whole(map(memoryview, buffers))

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return buffers

    async def send_region(self, region: FileRegion) -> None:
        await trio.lowlevel.checkpoint()
        await self._send_whole(region_chunks(region))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.host.up:
            self.outgoing.push(End.CLOSED, now=self.outgoing.time.now)
        self.wake()

    def reset(self) -> None:
        """Reset this end; what it has not received yet is lost."""
        self.incoming.lose_everything()
        self.incoming.end = End.RESET
        self.wake()

    def peer_restarted(self) -> None:
        """Expect a reset, if the peer's machine has not acknowledged everything: that is sent
        again.
        """
        if self.outgoing.held and not self.closed:
            self._expect_reset(self.outgoing.time.now)

    def wake(self) -> None:
        """Wake all tasks that wait here."""
        self._wake_receiver()
        self._senders.unpark_all()

    def window_has_room(self) -> None:
        if self._senders:  # which is rare; the check costs less than the call
            self._senders.unpark_all()

    def _arrived(self) -> None:
        if not self.host.holds_back:  # the end of that wakes all
            self._wake_receiver()
        if self.incoming.end is not None:
            self._senders.unpark_all()

    async def _send_whole(self, chunks: Iterable[memoryview]) -> None:
        assert not self._sending, "two tasks may not send on one connection at once"
        self._sending = True
        try:
            for chunk in chunks:
                await self._send(chunk)
        except BaseException:
            self.close()
            raise
        finally:
            self._sending = False

    async def _send(self, view: memoryview) -> None:
        while len(view):
            self._check_open()
            self._check_not_reset()
            if self.incoming.end is End.CLOSED:
                raise PeerUnavailableError(f"{self.peer} {End.CLOSED.value}")
            room = WINDOW_BYTES - self.outgoing.held
            if room <= 0:
                await self._senders.park()
                continue
            now = self.outgoing.time.now
            chunk = memoryview(bytes(view[:room]))
            self.moved += len(chunk)
            if self.outgoing.link.tears(self.outgoing.api) and len(chunk) > 1:
                self._tear(chunk, now)
                self._check_not_reset()
            self.outgoing.push(chunk, now=now)
            if self.tap is not None:
                self.tap.sent(self.outgoing, chunk, now)
            view = view[room:]
            if self.peer_host.boots != self._peer_boots:
                self._expect_reset(now)

    def _tear(self, chunk: memoryview, now: float) -> None:
        """Let a part of a message arrive, and then a reset, which this end sees at once."""
        link = self.outgoing.link
        link.mend()
        self.outgoing.push(chunk[: link.chance.randrange(1, len(chunk))], now=now)
        self.outgoing.push(End.RESET, now=now)
        self.sink(MessageTorn(source=link.source.name, target=link.target.name))
        self.reset()

    def _expect_reset(self, now: float) -> None:
        self.incoming.push(End.RESET, now=now + self.outgoing.link.delay())

    def _check_open(self) -> None:
        if self.closed:
            raise PeerUnavailableError(f"the connection to {self.peer} was closed")

    def _check_not_reset(self) -> None:
        if self.incoming.end is End.RESET:
            raise PeerUnavailableError(f"{self.peer} {End.RESET.value}")


def _api_key(request: Buffer) -> int:
    """Return the API key of a request that begins with these bytes: length, API key, version."""
    return int.from_bytes(memoryview(request)[4:6], "big")
