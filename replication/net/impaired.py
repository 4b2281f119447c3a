"""A node's clock and network that can be held up: by a freeze, or a cut between two nodes.

    frozen     as after SIGSTOP: no timer of the node fires and no byte goes in or out, until
               it thaws; then everything that is due happens together
    cut        bytes from one node to another do not arrive, until the cut heals; then they do,
               in order, as TCP would send them again

    Gates      the frozen nodes and the cuts of a whole cluster; they are only read here
    direction  (from, to), seen from the node that connected: bytes that it sends go to the
               listening node, bytes that it receives come from there

Rule 1: only the node that connected looks at cuts. It sees both directions of a connection between
two nodes, and clients, which are no nodes, are never cut off.

Rule 2: bytes that the kernel gave us before the freeze, or the cut, are kept for the next
`receive_into` if its caller goes away meanwhile: a stream loses nothing in its middle.

Nodes of one process are held like this; processes get SIGSTOP, and the simulator has a network of
its own.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeAlias

import attrs
import trio

from replication.errors import PeerUnavailableError
from replication.net.seams import Alarm, Connection, Listener, NodeClock, Transport
from replication.net.wrapped import WrappedConnection, WrappedListener
from storage.attributes import define
from storage.log.file_region import FileRegion
from storage.types import Buffer

Direction: TypeAlias = tuple[int, int]
NodeAt: TypeAlias = Callable[[int], int | None]


def no_node(_: int) -> None:
    """Return no node: it is not known which one listens at a port."""


@define(eq=False)
class Gates:
    """The frozen nodes and the cut directions; a change wakes the tasks that wait for it."""

    frozen: set[int] = attrs.field(factory=set)
    cut: set[Direction] = attrs.field(factory=set)
    node_at: NodeAt = no_node
    """Returns the node that listens at a port; None for none of ours."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)

    def wake(self) -> None:
        """Wake all tasks that wait, after a change of `frozen` or `cut`."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    async def thawed(self, node: int) -> None:
        while node in self.frozen:
            await self.changed()

    def hold_sent(self, node: int, port: int | None) -> bool:
        """Return whether bytes from `node` to the listener at `port` are held up."""
        return node in self.frozen or self._is_cut(node, port, there=True)

    def hold_received(self, node: int, port: int | None) -> bool:
        """Return whether bytes from the listener at `port` to `node` are held up."""
        return node in self.frozen or self._is_cut(node, port, there=False)

    def _is_cut(self, node: int, port: int | None, *, there: bool) -> bool:
        if not self.cut or port is None:
            return False
        peer = self.node_at(port)
        return peer is not None and ((node, peer) if there else (peer, node)) in self.cut


@define(eq=False)
class ImpairedTransport:
    """The network of `node`, as far as `gates` let bytes pass."""

    node: int
    gates: Gates
    _inner: Transport

    async def listen(self, host: str, port: int) -> Listener:
        return _Listener(await self._inner.listen(host, port), self)

    async def connect(self, host: str, port: int) -> Connection:
        while self.gates.hold_sent(self.node, port) or self.gates.hold_received(self.node, port):
            await self.gates.changed()
        return _Connection(await self._inner.connect(host, port), self, port)


@define(eq=False)
class _Listener(WrappedListener):
    _transport: ImpairedTransport

    async def accept(self) -> Connection:
        return _Connection(await self.inner.accept(), self._transport, None)


@define(eq=False)
class _Connection(WrappedConnection):
    _transport: ImpairedTransport
    _port: int | None
    """The port that we connected to; None if a peer has connected to us."""
    _kept: bytes = attrs.field(init=False, default=b"")
    _closed: bool = attrs.field(init=False, default=False)

    async def receive_into(self, buffer: memoryview) -> int:
        count = self._given_back(buffer) or await self.inner.receive_into(buffer)
        try:
            await self._passed(self._transport.gates.hold_received)
        except trio.Cancelled:
            self._kept = bytes(buffer[:count]) + self._kept
            raise
        return count

    def _given_back(self, buffer: memoryview) -> int:
        count = min(len(self._kept), len(buffer))
        buffer[:count], self._kept = self._kept[:count], self._kept[count:]
        return count

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        await self._passed(self._transport.gates.hold_sent)
        await self.inner.send_buffers(buffers)

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._closed or self._transport.gates.hold_sent(self._transport.node, self._port):
            return buffers
        return self.inner.send_at_once(buffers)

    async def send_region(self, region: FileRegion) -> None:
        await self._passed(self._transport.gates.hold_sent)
        await self.inner.send_region(region)

    async def _passed(self, hold: Callable[[int, int | None], bool]) -> None:
        while not self._closed and hold(self._transport.node, self._port):
            await self._transport.gates.changed()
        if self._closed:
            raise PeerUnavailableError(f"the connection to {self.peer} was closed")

    def close(self) -> None:
        self._closed = True
        self.inner.close()
        self._transport.gates.wake()


@define(eq=False)
class ImpairedClock:
    """The clock of `node`: time goes on while it is frozen, and no timer fires."""

    node: int
    gates: Gates
    _inner: NodeClock
    """Trio's clock, whose deadlines are postponed."""
    _scopes: dict[trio.CancelScope, float] = attrs.field(init=False, factory=dict)
    """The scopes that are entered, with their deadlines."""
    _withheld: list["_Alarm"] = attrs.field(init=False, factory=list)
    """The alarms that rang while it was frozen."""

    def now(self) -> float:
        return self._inner.now()

    def now_ms(self) -> int:
        return self._inner.now_ms()

    def wall_ms(self) -> int:
        return self._inner.wall_ms()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
        await self.gates.thawed(self.node)

    async def sleep_until(self, deadline: float) -> None:
        await self._inner.sleep_until(deadline)
        await self.gates.thawed(self.node)

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return _Scope(self, self.now() + seconds)

    def alarm(self, moment: float, act: Callable[[], object]) -> "_Alarm":
        alarm = _Alarm(self, act)
        alarm.inner = self._inner.alarm(moment, alarm.ring)
        return alarm

    def withholds(self, alarm: "_Alarm") -> bool:
        if self.node not in self.gates.frozen:
            return False
        self._withheld.append(alarm)
        return True

    def freeze(self) -> None:
        for scope in self._scopes:
            scope.deadline = math.inf

    def thaw(self) -> None:
        for scope, deadline in self._scopes.items():
            scope.deadline = deadline
        withheld, self._withheld = self._withheld, []
        for alarm in withheld:
            alarm.act_now()

    def entered(self, scope: trio.CancelScope, deadline: float) -> None:
        self._scopes[scope] = deadline
        scope.deadline = math.inf if self.node in self.gates.frozen else deadline

    def left(self, scope: trio.CancelScope) -> None:
        del self._scopes[scope]


@define(eq=False)
class _Alarm:
    _clock: ImpairedClock
    _act: Callable[[], object] | None
    inner: Alarm | None = None

    def ring(self) -> None:
        if not self._clock.withholds(self):
            self.act_now()

    def act_now(self) -> None:
        if self._act is not None:
            self._act()

    def call_off(self) -> None:
        self._act = None
        if self.inner is not None:
            self.inner.call_off()


@define(eq=False)
class _Scope:
    _clock: ImpairedClock
    _deadline: float
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)

    def __enter__(self) -> trio.CancelScope:
        self._clock.entered(self._scope, self._deadline)
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._clock.left(self._scope)
        return self._scope.__exit__(kind, error, traceback)
