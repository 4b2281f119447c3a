"""The links between processes, and between them and clients: relays that delay, hold and cut.

    b1 ──connects to "b2"──> relay b1>b2 ──> b2's own port
                             frame by frame: requests under b1>b2, responses under b2>b1

Each node resolves the names of the others by a file of its own, to addresses at which only its
relays listen. So a relay knows both ends of each connection.

Rule 1: a link is directed. What is held is neither lost nor reordered, and goes on when the link
heals, unless the process at the other end has closed its connection meanwhile.

Rule 2: the end of a connection passes a link as its bytes do. A connection to a process that is
down is closed.

Rule 3: a hold for an API concerns the connections on which a request of that API was sent, and what
is sent there from then on, as in the simulator (`scenarios.world.network`).

The addresses are 127.X.0.Y, all of which Linux serves on its loopback interface.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs
import trio

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.framing import LENGTH_SIZE, FrameReader
from replication.net.seams import Connection, Listener, NodeClock, Seams
from replication.wire.apis import ApiKey
from storage.attributes import define
from storage.types import Buffer

FIRST_NETWORK = 20
_KNOWN = frozenset(map(int, ApiKey))


@define(eq=False)
class DirectedLink:
    """The faults of what one end sends to another."""

    is_cut: bool = False
    holds: dict[ApiKey, int] = attrs.field(factory=dict)
    """The number of messages that still pass, by the API that is held."""
    delay: float = 0.0
    """Seconds."""
    tears: list[ApiKey | None] = attrs.field(factory=list)
    """The APIs of which the next message breaks off; None for any."""

    def takes(self, apis: Iterable[ApiKey]) -> bool:
        """Return whether a message may pass now on a connection that carries these APIs."""
        held = [api for api in apis if api in self.holds]
        if self.is_cut or any(self.holds[api] == 0 for api in held):
            return False
        for api in held:
            self.holds[api] -= 1
        return True

    def tears_off(self, api: ApiKey | None) -> bool:
        """Return whether a message about `api` breaks off; it does so once."""
        for wanted in (api, None):
            if wanted in self.tears:
                self.tears.remove(wanted)
                return True
        return False


@define(eq=False)
class Links:
    """All links of a cluster, and their faults (`scenarios.story.client_stage.LinkFaults`)."""

    seams: Seams
    nursery: trio.Nursery
    ports: Mapping[str, int]
    """The port of each process, at 127.0.0.1, by name."""
    _frozen: set[str] = attrs.field(init=False, factory=set)
    _links: dict[tuple[str, str], DirectedLink] = attrs.field(init=False)
    _healed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _networks: dict[str, int] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._links = defaultdict(DirectedLink)

    # The addresses.

    def address(self, source: str, target: str) -> str:
        """Return the address under which `source` knows `target`."""
        return f"127.{self._networks[source]}.0.{[*self.ports].index(target) + 1}"

    async def open(self, source: str) -> None:
        """Open the relays from `source` to every process."""
        self._networks[source] = FIRST_NETWORK + len(self._networks)
        for target, port in self.ports.items():
            if target != source:
                host = self.address(source, target)
                listener = await self.seams.transport.listen(host, port)
                self.nursery.start_soon(self._accept, listener, source, target)

    async def _accept(self, listener: Listener, source: str, target: str) -> None:
        try:
            while True:
                accepted = await listener.accept()
                relay = LinkRelay(self, source, target, accepted)
                self.nursery.start_soon(relay.run)
        finally:
            listener.close()

    # The faults.

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        for link in self._between(a, b, one_way=one_way):
            link.is_cut = True

    def hold(self, a: str, b: str, api: ApiKey, *, after: int = 0) -> None:
        self._links[a, b].holds[api] = after

    def heal(self, a: str, b: str, *, one_way: bool = False) -> None:
        for link in self._between(a, b, one_way=one_way):
            link.is_cut = False
            link.holds.clear()
            link.tears.clear()
        self._wake()

    def heal_all(self) -> None:
        for a, b in self._links:
            self.heal(a, b, one_way=True)

    def tear(self, a: str, b: str, api: ApiKey | None = None) -> None:
        self._links[a, b].tears.append(api)

    def set_delay(
        self, a: str, b: str, *, least: float, mean_extra: float, one_way: bool = False
    ) -> None:
        for link in self._between(a, b, one_way=one_way):
            link.delay = least + mean_extra

    def freeze(self, name: str) -> None:
        """Hold what is sent to a frozen process, as a slow network would: a cut may follow."""
        self._frozen.add(name)

    def thaw(self, name: str) -> None:
        self._frozen.discard(name)
        self._wake()

    def _between(self, a: str, b: str, *, one_way: bool) -> list[DirectedLink]:
        return [self._links[a, b]] if one_way else [self._links[a, b], self._links[b, a]]

    def _wake(self) -> None:
        self._healed.set()
        self._healed = trio.Event()

    # What relays ask.

    @property
    def clock(self) -> NodeClock:
        return self.seams.clock

    def link(self, source: str, target: str) -> DirectedLink:
        return self._links[source, target]

    async def passed(self, source: str, target: str, apis: Iterable[ApiKey] = ()) -> None:
        """Wait until a message may pass from `source` to `target`."""
        while target in self._frozen or not self.link(source, target).takes(apis):
            await self._healed.wait()


@define(eq=False)
class LinkRelay:
    """One connection from `source` to `target`, with the relay in its middle."""

    links: Links
    source: str
    target: str
    accepted: Connection
    _apis: set[ApiKey] = attrs.field(init=False, factory=set)
    _asked: dict[int, ApiKey] = attrs.field(init=False, factory=dict)
    """The API of each request that is not answered yet, by its correlation id."""

    async def run(self) -> None:
        connected: Connection | None = None
        try:
            await self.links.passed(self.source, self.target)
            transport, port = self.links.seams.transport, self.links.ports[self.target]
            connected = await transport.connect("127.0.0.1", port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._requests, connected, nursery.cancel_scope)
                nursery.start_soon(self._responses, connected, nursery.cancel_scope)
        except* (PeerUnavailableError, ProtocolError):
            pass
        finally:
            self.accepted.close()
            if connected is not None:
                connected.close()

    async def _requests(self, connected: Connection, scope: trio.CancelScope) -> None:
        reader = FrameReader(self.accepted, reuse_buffer=True)
        while (frame := await reader.receive_frame()) is not None:
            api = _api_of(int.from_bytes(frame[:2], "big"))
            if api is not None:
                self._apis.add(api)
                self._asked[int.from_bytes(frame[4:8], "big")] = api
            await self._pass(self.source, self.target, api, frame, connected)
        await self.links.passed(self.source, self.target)
        scope.cancel()

    async def _responses(self, connected: Connection, scope: trio.CancelScope) -> None:
        reader = FrameReader(connected, reuse_buffer=True)
        while (frame := await reader.receive_frame()) is not None:
            api = self._asked.pop(int.from_bytes(frame[:4], "big"), None)
            await self._pass(self.target, self.source, api, frame, self.accepted)
        await self.links.passed(self.target, self.source)
        scope.cancel()

    async def _pass(
        self, source: str, target: str, api: ApiKey | None, frame: memoryview, to: Connection
    ) -> None:
        link = self.links.link(source, target)
        if link.delay:
            await self.links.clock.sleep(link.delay)
        await self.links.passed(source, target, self._apis)
        message: list[Buffer] = [frame.nbytes.to_bytes(LENGTH_SIZE, "big"), frame]
        if link.tears_off(api):
            await to.send_buffers([message[0], frame[: frame.nbytes // 2]])
            raise PeerUnavailableError("a message broke off")
        await to.send_buffers(message)


def _api_of(number: int) -> ApiKey | None:
    """Return the API with this number; None for one that only Apache Kafka has."""
    return ApiKey(number) if number in _KNOWN else None
