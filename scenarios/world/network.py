"""A network in memory: machines by name, connections with delay, and their failures.

    transport(node)          the Transport of the node
    cut(a, b)  heal(a, b)    nothing passes, either way or `one_way`; it waits, as TCP does
    isolate(node)            cut off from all other nodes
    hold(a, b, api)          what a sends to b on connections for that API waits, until heal
    set_delay(a, b)          from now on, both ways
    tear(a, b)               the next message from a to b ends in its middle, in a reset;
                             or the next about one API
    power_off, power_on      without a goodbye; a peer that sends after the restart gets a reset

Rule 1: a host is a node's name. Loopback and wildcard addresses mean the node itself.

Rule 2: a connection that cannot be made waits until it can, as SYNs are sent again; time
limits are the caller's. It is refused if the machine is up and has no listener there.

Rule 3: all chance comes from one stream, drawn in the order in which bytes are sent.
"""

import errno
import os
import random
from collections import deque

import attrs
import trio

from replication.errors import PeerUnavailableError
from replication.events import EventSink, ignore
from replication.wire.apis import ApiKey
from scenarios.world.clock import SimulatedClock, VirtualTime, sleep_until
from scenarios.world.streams import Host, Link, Pipe, Received, SimulatedConnection, Tap
from scenarios.world.trace import LinkCut, LinkHealed, LinkHeld

LOCAL = {"", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"}  # noqa: S104  names, not a bind
FIRST_EPHEMERAL_PORT = 30_000


@attrs.define(eq=False, repr=False)
class SimulatedListener:
    host: str
    port: int
    _network: "SimulatedNetwork"
    _at: Host
    closed: bool = attrs.field(default=False, init=False)
    _waiting: deque[SimulatedConnection] = attrs.field(factory=deque, init=False)
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    async def accept(self) -> SimulatedConnection:
        if self._has_news():
            await trio.lowlevel.checkpoint()
        while not self._has_news():
            await self._changed.park()
        if self.closed:
            raise PeerUnavailableError(f"no longer listening on {self.host}:{self.port}")
        return self._waiting.popleft()

    def _has_news(self) -> bool:
        return self.closed or (bool(self._waiting) and not self._at.holds_back)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._network.forget_listener(self)
        while self._waiting:
            self._waiting.popleft().close()
        self.wake()

    def offer(self, connection: SimulatedConnection) -> None:
        self._waiting.append(connection)
        self.wake()

    def wake(self) -> None:
        self._changed.unpark_all()


@attrs.frozen(eq=False, repr=False)
class SimulatedTransport:
    """The network as one node sees it."""

    _network: "SimulatedNetwork"
    _at: Host

    async def listen(self, host: str, port: int) -> SimulatedListener:
        await trio.lowlevel.checkpoint()
        return self._network.listen(self._at, host, port)

    async def connect(self, host: str, port: int) -> SimulatedConnection:
        return await self._network.connect(self._at, host, port)


@attrs.define(eq=False, repr=False)
class SimulatedNetwork:
    """All machines, links and connections of a simulation."""

    chance: random.Random
    time: VirtualTime
    sink: EventSink = ignore
    on_received: Received = lambda _data, _link: None
    tap: Tap | None = None
    least_delay: float = 0.0005
    mean_extra_delay: float = 0.0005
    _hosts: dict[str, Host] = attrs.field(factory=dict, init=False)
    _links: dict[tuple[str, str], Link] = attrs.field(factory=dict, init=False)
    _listeners: dict[tuple[str, int], SimulatedListener] = attrs.field(factory=dict, init=False)
    # In the order of their creation, never a set: healing draws delays in this order.
    _ends: dict[SimulatedConnection, None] = attrs.field(factory=dict, init=False)
    _next_port: int = attrs.field(default=FIRST_EPHEMERAL_PORT, init=False)
    _healed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def add_host(self, name: str, clock: SimulatedClock) -> Host:
        host = self._hosts[name] = Host(name, clock)
        clock.when_resumed(lambda: self._wake(host))
        return host

    def transport(self, name: str) -> SimulatedTransport:
        return SimulatedTransport(self, self._hosts[name])

    # -- failures

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Let nothing pass from `a` to `b`, nor back unless `one_way`."""
        for link in self._between(a, b, one_way=one_way):
            if not link.cut:
                link.cut = True
                self.sink(LinkCut(source=link.source.name, target=link.target.name))

    def hold(self, a: str, b: str, api: ApiKey, *, after: int = 0) -> None:
        """Hold up what `a` sends to `b` on connections that carry requests of `api`.

        The first `after` messages, requests or responses of any length, still pass.
        """
        for link in self._between(a, b, one_way=True):
            link.hold(api, after=after)
            self.sink(LinkHeld(source=a, target=b, api=api.name))

    def heal(self, a: str, b: str, *, one_way: bool = False) -> None:
        for link in self._between(a, b, one_way=one_way):
            link.mend()
            if link.cut or link.holds_any:
                link.cut = False
                link.let_go()
                self.sink(LinkHealed(source=link.source.name, target=link.target.name))
                self._send_anew(link)

    def isolate(self, name: str) -> None:
        for other in self._hosts:
            if other != name:
                self.cut(name, other)

    def heal_all(self) -> None:
        for link in list(self._links.values()):
            self.heal(link.source.name, link.target.name, one_way=True)

    def open_ends(self, name: str) -> list[SimulatedConnection]:
        """Return the open ends of connections on a machine."""
        return [end for end in self._ends if not end.closed and end.host.name == name]

    @property
    def is_cut(self) -> bool:
        """Whether any link is cut."""
        return any(link.cut for link in self._links.values())

    def set_delay(
        self, a: str, b: str, *, least: float, mean_extra: float = 0.0, one_way: bool = False
    ) -> None:
        """Set the delay in seconds; what is on its way keeps its own."""
        for link in self._between(a, b, one_way=one_way):
            link.least_delay, link.mean_extra_delay = least, mean_extra

    def tear(self, a: str, b: str, api: ApiKey | None = None) -> None:
        """Break off the next message from `a` to `b`, or the next one about `api`, and reset its
        connection.
        """
        (link,) = self._between(a, b, one_way=True)
        link.tear(api)

    def power_off(self, name: str) -> None:
        host = self._hosts[name]
        host.up = False
        for end in self._ends:
            if host in (end.host, end.peer_host):
                end.outgoing.lose_bytes_in_flight()

    def power_on(self, name: str) -> None:
        host = self._hosts[name]
        host.up = True
        host.boots += 1
        for end in self._ends:
            if end.peer_host is host:
                end.peer_restarted()
            if host in (end.host, end.peer_host):
                end.incoming.go_on()
        self._healed.unpark_all()

    # -- for the transports

    def listen(self, at: Host, host: str, port: int) -> SimulatedListener:
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        if (at.name, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{at.name}:{port}")
        listener = SimulatedListener(at.name if host in LOCAL else host, port, self, at)
        self._listeners[at.name, port] = listener
        return listener

    def forget_listener(self, listener: SimulatedListener) -> None:
        self._listeners = {
            address: other for address, other in self._listeners.items() if other is not listener
        }

    async def connect(self, at: Host, host: str, port: int) -> SimulatedConnection:
        target = at if host in LOCAL else self._hosts.get(host)
        if target is None:
            await trio.lowlevel.checkpoint()
            raise PeerUnavailableError(f"cannot find {host}")
        there, back = self._link(at, target), self._link(target, at)
        await self._travel(there)
        listener = self._listeners.get((target.name, port))
        if listener is None:
            await self._travel(back)
            raise PeerUnavailableError(f"cannot connect to {host}:{port}: connection refused")
        connection = self._make_connection(there, back, listener, peer=f"{host}:{port}")
        try:
            await self._travel(back)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_connection(
        self, there: Link, back: Link, listener: SimulatedListener, *, peer: str
    ) -> SimulatedConnection:
        port, self._next_port = self._next_port, self._next_port + 1
        outgoing, incoming = Pipe(there, self.time), Pipe(back, self.time)
        here = SimulatedConnection(incoming, outgoing, peer, self.on_received, self.tap, self.sink)
        name = f"{there.source.name}:{port}"
        other = SimulatedConnection(outgoing, incoming, name, self.on_received, self.tap, self.sink)
        here.asks = True
        if self.tap is not None:
            self.tap.opened(requests=outgoing, responses=incoming)
        here.other, other.other = other, here
        # A connection that both ends have closed has no effect any more.
        for end in [end for end in self._ends if end.closed and end.other and end.other.closed]:
            del self._ends[end]
        for end in self._ends:
            if end.outgoing.link is back and end.other and end.other.closed:
                end.superseded = True
        self._ends[here] = self._ends[other] = None
        listener.offer(other)
        return here

    async def _travel(self, link: Link) -> None:
        """Wait for the way of one packet, which is sent again while the link is down."""
        while True:
            while link.down:
                await self._healed.park()
            await sleep_until(self.time, self.time.now + link.delay())
            if not link.down:
                return

    # -- links

    def _link(self, source: Host, target: Host) -> Link:
        key = (source.name, target.name)
        if key not in self._links:
            least, mean_extra = self.least_delay, self.mean_extra_delay
            if source is target:
                least, mean_extra = 0.0, 0.0
            self._links[key] = Link(source, target, self.chance, least, mean_extra)
        return self._links[key]

    def _between(self, a: str, b: str, *, one_way: bool) -> list[Link]:
        there = self._link(self._hosts[a], self._hosts[b])
        return [there] if one_way else [there, self._link(self._hosts[b], self._hosts[a])]

    def _send_anew(self, link: Link) -> None:
        for end in self._ends:
            if end.incoming.link is link:
                end.incoming.resend()
        self._healed.unpark_all()

    def _wake(self, host: Host) -> None:
        for end in self._ends:
            if end.host is host:
                end.wake()
        for listener in self._listeners.values():
            listener.wake()
