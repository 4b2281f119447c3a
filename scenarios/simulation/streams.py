"""Both ends of a simulated connection, and the two pipes between them.

    b1 end ── outgoing: [chunk @1.002][chunk @1.004][end @1.004] ──> incoming ── b2 end

Rule 1: a pipe is a stream: chunks arrive in the order in which they were sent, each with a
delay of its own, never before the one ahead of it. What is on its way when the link is cut
waits, as TCP's would, and is sent anew when it heals.

Rule 2: nothing here runs by itself. An end that waits looks at the time, takes what has
arrived, and sleeps until the next chunk is due or something changes.

Rule 3: closing tells the peer, behind the bytes already sent. A peer that cannot be told
(the link is cut, the machine has lost its power) is left with half a connection.

Rule 4: what a connection is for is what its client last asked over it. A link that holds up an
API holds up such a connection, and all that is behind in it, until it heals.

Rule 5: a pipe holds `WINDOW_BYTES` that were not yet received; then its sender waits.
Bytes are copied on their way in, as a kernel would.
"""

import enum
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import attrs
import trio

from replication.errors import PeerUnavailableError
from replication.net.framing import LENGTH_SIZE
from replication.net.regions import region_chunks
from scenarios.simulation.links import Host, Link, Received
from storage.file_region import FileRegion
from storage.types import Buffer

WINDOW_BYTES = 64 * 1024


class End(enum.Enum):
    """What may follow the last byte."""

    CLOSED = "closed the connection"
    RESET = "reset the connection"


@attrs.define(eq=False)
class Pipe:
    """The bytes that one end has sent and the other has not received."""

    link: Link
    held: int = 0
    end: End | None = None  # as far as the receiver can know
    api: int | None = None  # what is asked for over its connection
    _on_their_way: deque[tuple[float, memoryview | End]] = attrs.field(factory=deque)
    _frame_left: int = 0
    _arrived: deque[memoryview] = attrs.field(factory=deque)

    def push(self, chunk: memoryview | End, *, now: float) -> None:
        last = self._on_their_way[-1][0] if self._on_their_way else now
        self._on_their_way.append((max(last, now + self.link.delay()), chunk))
        if isinstance(chunk, memoryview):
            self.held += len(chunk)
            if self._frame_left <= 0:
                self.link.count(self.api)
                self._frame_left = LENGTH_SIZE + int.from_bytes(chunk[:LENGTH_SIZE], "big")
            self._frame_left -= len(chunk)

    def settle(self, now: float) -> None:
        """Let arrive what is due; nothing does while the link is cut."""
        while self.next_arrival() <= now:
            _, chunk = self._on_their_way.popleft()
            if isinstance(chunk, memoryview):
                self._arrived.append(chunk)
            elif self.end is None:
                self.end = chunk

    def next_arrival(self) -> float:
        if self.link.down or self.link.holds(self.api) or not self._on_their_way:
            return math.inf
        return self._on_their_way[0][0]

    def send_anew(self, now: float) -> None:
        """The link has healed."""
        chunks = [chunk for _, chunk in self._on_their_way]
        self._on_their_way.clear()
        arrival = now
        for chunk in chunks:
            arrival = max(arrival, now + self.link.delay())
            self._on_their_way.append((arrival, chunk))

    def lose_what_is_on_its_way(self) -> None:
        """The power fails at one end: nobody sends it anew. The window stays taken."""
        self._on_their_way.clear()

    def lose_everything(self) -> None:
        self._on_their_way.clear()
        self._arrived.clear()
        self.held = 0

    def take(self, buffer: memoryview) -> int:
        """What has arrived, as much as `buffer` holds of the first chunk."""
        if not self._arrived:
            return 0
        chunk = self._arrived.popleft()
        size = min(len(chunk), len(buffer))
        buffer[:size] = chunk[:size]
        if size < len(chunk):
            self._arrived.appendleft(chunk[size:])
        self.held -= size
        return size


class Tap(Protocol):
    """Whoever listens in on all connections; it changes nothing."""

    def opened(self, requests: Pipe, responses: Pipe) -> None: ...

    def sent(self, pipe: Pipe, chunk: memoryview, now: float) -> None: ...

    def received(self, pipe: Pipe, size: int, now: float) -> None: ...


@attrs.define(eq=False, repr=False)
class SimulatedConnection:
    """One end; the other one is `other`."""

    incoming: Pipe
    outgoing: Pipe
    peer: str
    on_received: Received
    tap: Tap | None = None
    asks: bool = False
    """Whether it is the client's end."""
    other: "SimulatedConnection | None" = attrs.field(default=None, init=False)
    closed: bool = attrs.field(default=False, init=False)
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _sending: bool = attrs.field(default=False, init=False)
    _peer_boots: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._peer_boots = self.peer_host.boots

    @property
    def host(self) -> Host:
        return self.outgoing.link.source

    @property
    def peer_host(self) -> Host:
        return self.outgoing.link.target

    async def receive_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0, "an empty buffer would make waiting look like the end"
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            if not self.host.paused:
                self.incoming.settle(trio.current_time())
                if size := self.incoming.take(buffer):
                    self.on_received(buffer[:size], self.incoming.link)
                    if self.tap is not None:
                        self.tap.received(self.incoming, size, trio.current_time())
                    self.wake_both()  # the sender has room again
                    return size
                if self.incoming.end is End.CLOSED:
                    return 0
                self._check_not_reset()
            await self._wait_for_change()

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        with self._whole_or_closed():
            await trio.lowlevel.checkpoint()
            if self.asks:
                self.incoming.api = self.outgoing.api = _api_key(buffers[0])
            for buffer in buffers:
                await self._send(memoryview(buffer))

    async def send_region(self, region: FileRegion) -> None:
        with self._whole_or_closed():
            await trio.lowlevel.checkpoint()
            for chunk in region_chunks(region):
                await self._send(chunk)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.host.up:
            self.outgoing.push(End.CLOSED, now=trio.current_time())
        self.wake_both()

    def reset(self) -> None:
        """This end finds the connection gone, with all that it had not yet received."""
        self.incoming.lose_everything()
        self.incoming.end = End.RESET
        self.wake_both()

    def peer_started_again(self) -> None:
        """What the peer's machine had not acknowledged is sent anew, and it answers: reset."""
        if self.outgoing.held and not self.closed:
            self._expect_reset(trio.current_time())
            self.wake()

    def wake(self) -> None:
        self._changed.unpark_all()

    def wake_both(self) -> None:
        self.wake()
        if self.other is not None:
            self.other.wake()

    async def _send(self, view: memoryview) -> None:
        while len(view):
            self._check_open()
            now = trio.current_time()
            self.incoming.settle(now)
            self._check_not_reset()
            if self.incoming.end is End.CLOSED:
                raise PeerUnavailableError(f"{self.peer} {End.CLOSED.value}")
            room = WINDOW_BYTES - self.outgoing.held
            if room <= 0:
                await self._wait_for_change()
                continue
            chunk = memoryview(bytes(view[:room]))
            self.outgoing.push(chunk, now=now)
            if self.tap is not None:
                self.tap.sent(self.outgoing, chunk, now)
            view = view[room:]
            if self.peer_host.boots != self._peer_boots:
                self._expect_reset(now)
            self.wake_both()

    def _expect_reset(self, now: float) -> None:
        self.incoming.push(End.RESET, now=now + self.outgoing.link.delay())

    def _check_open(self) -> None:
        if self.closed:
            raise PeerUnavailableError(f"the connection to {self.peer} was closed")

    def _check_not_reset(self) -> None:
        if self.incoming.end is End.RESET:
            raise PeerUnavailableError(f"{self.peer} {End.RESET.value}")

    async def _wait_for_change(self) -> None:
        deadline = math.inf if self.host.paused else self.incoming.next_arrival()
        with trio.CancelScope(deadline=deadline):
            await self._changed.park()

    @contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        assert not self._sending, "two tasks may not send on one connection at once"
        self._sending = True
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            self._sending = False


def _api_key(request: Buffer) -> int:
    """Of a request whose first bytes these are: length, API key, version."""
    return int.from_bytes(memoryview(request)[4:6], "big")
