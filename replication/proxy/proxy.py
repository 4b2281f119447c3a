"""The listeners of a proxy, and the brokers behind them.

    first listener      the address that the proxy was given
    one for each broker that a response has named; found by its id, which keeps its port

Rule 1: a proxy learns of brokers from the responses that pass (`replication.proxy.rules.addresses`),
and asks once itself when it opens. A broker that is new gets a listener before a client hears of
it. One that has moved keeps its listener, and so does one that has left: its clients' connections
end, as with a dead broker, until it is back.

Rule 2: a client's connection is opened at its broker when it is accepted, and closed if that fails.
The first failure after a success, and the first success after that, are reported.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import attrs
import trio

from replication.config import HostPort
from replication.config.security import Introduction
from replication.errors import (
    NO_ANSWER,
    OnBug,
    PeerUnavailableError,
    ProtocolError,
    TooManyConnectionsError,
    UnderstudyError,
    raise_bug,
)
from replication.events import (
    ConnectionRefused,
    EventSink,
    UpstreamFound,
    UpstreamLost,
    ignore,
)
from replication.faults.node_faults import FaultGate, FaultInjectedError, Faults
from replication.net import production_seams
from replication.net.exchange import ask_versions
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES
from replication.net.raising import raising_only_one
from replication.net.rpc import RpcClient
from replication.net.seams import Connection, Listener, Seams, Transport
from replication.net.secure import introduced
from replication.proxy.links import ClientLinks
from replication.proxy.relay import Relay
from replication.proxy.rules.addresses import id_of, named_brokers
from replication.proxy.rules.sessions import SeenSessions
from replication.wire.apis import API, ApiKey
from replication.wire.metadata import MetadataRequest, MetadataResponse
from storage.attributes import define
from storage.types import NO_TOPIC_ID, TopicId

UNKNOWN_BROKER: Final = -1
"""The id of the broker behind the first listener until it is known."""
LOOPBACK: Final = "127.0.0.1"
MOST_TOPICS: Final = 200_000
"""The topic ids whose names are kept, those learned last."""
CLIENT_ID: Final = "understudy-proxy"
ASK_TIMEOUT_MS: Final = 10_000
_THIS_MACHINE: Final = frozenset({"localhost", LOOPBACK, "::1"})
_LAST_PORT: Final = 65535


class ProxyListenError(UnderstudyError):
    """A port of the proxy is in use, or its address is another machine's."""


@define(eq=False, kw_only=True)
class FrontedBroker:
    """A listener, and the broker behind it."""

    address: HostPort
    """The address of the broker."""
    listener: Listener
    gate: FaultGate
    sessions: SeenSessions
    is_lost: bool = False

    @property
    def broker_id(self) -> int:
        """The broker's id; UNKNOWN_BROKER if no response has named this address yet."""
        return self.gate.node_id

    @property
    def port(self) -> int:
        """The port of the listener."""
        return self.listener.port


@define(eq=False, kw_only=True)
class Proxy:
    """Listeners in front of the brokers of one cluster; `open_proxy` makes it.

    `faults` has the rules (`replication.faults`), `links` the cuts.
    """

    seams: Seams
    to_brokers: Transport
    """The transport of connections to brokers, which may have TLS and a login."""
    host: str
    """The host of every listener."""
    advertised_host: str
    """The host in the addresses that clients get."""
    rewrites: bool
    """Whether addresses in responses are replaced by the proxy's."""
    sink: EventSink
    on_bug: OnBug
    faults: Faults
    links: ClientLinks = attrs.field(init=False, factory=ClientLinks)
    topic_names: dict[TopicId, str] = attrs.field(init=False, factory=dict)
    """The names of topics by their ids, from the metadata that has passed."""
    fronted: list[FrontedBroker] = attrs.field(init=False, factory=list)
    """The listeners, in the order in which they were opened."""
    _nursery: trio.Nursery
    _opening: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all listeners, separated by commas."""
        return ",".join(str(self.advertised(each)) for each in self.fronted)

    def to_broker(self, broker_id: int) -> FrontedBroker | None:
        """Return the listener of a broker; None if it has none yet."""
        return next((each for each in self.fronted if each.broker_id == broker_id), None)

    def advertised(self, fronted: FrontedBroker) -> HostPort:
        """Return the address of a listener, as clients get it."""
        return HostPort(self.advertised_host, fronted.port)

    async def front(
        self, address: str | HostPort, *, broker_id: int = UNKNOWN_BROKER, port: int = 0
    ) -> FrontedBroker:
        """Listen for the broker at `address`, at `port` or any free one.

        ProxyListenError if the port is in use.
        """
        address = address if isinstance(address, HostPort) else _parsed(address)
        sessions = SeenSessions()
        try:
            listener = await self.seams.transport.listen(self.host, port)
        except OSError as error:
            where = HostPort(self.host, port)
            raise ProxyListenError(f"cannot listen on {where}: {error.strerror}") from error
        gate = self.faults.gate(
            broker_id,
            self.seams,
            self.sink,
            name_of=self.topic_names.get,
            session_of=sessions.partitions,
        )
        made = FrontedBroker(address=address, listener=listener, gate=gate, sessions=sessions)
        self.fronted.append(made)
        self._nursery.start_soon(self._serve, made)
        return made

    async def ask_cluster(self, address: HostPort) -> None:
        """Learn the brokers and the topics of the cluster at `address`.

        PeerUnavailableError or ProtocolError if it does not tell.
        """
        client = await RpcClient.connect(
            self.to_brokers,
            address.host,
            address.port,
            client_id=CLIENT_ID,
            clock=self.seams.clock,
            timeout_ms=ASK_TIMEOUT_MS,
        )
        try:
            ask = partial(client.call, timeout_ms=ASK_TIMEOUT_MS)
            versions, _ = await ask_versions(
                str(address), lambda request, version: ask(request, version=version)
            )
            _, newest = versions.get(ApiKey.METADATA, (0, 0))
            version = min(newest, API[ApiKey.METADATA].max_version)
            await self._readdress(
                ApiKey.METADATA, await ask(MetadataRequest(topics=None), version=version)
            )
        finally:
            client.close()

    # -- connections

    async def _serve(self, fronted: FrontedBroker) -> None:
        listener = fronted.listener
        try:
            while True:
                try:
                    client = await listener.accept()
                except TooManyConnectionsError as error:
                    self.sink(ConnectionRefused(peer=error.peer, cause=str(error)))
                else:
                    self._nursery.start_soon(self._serve_client, fronted, client)
        except PeerUnavailableError:
            pass  # the listener was closed
        finally:
            listener.close()

    async def _serve_client(self, fronted: FrontedBroker, client: Connection) -> None:
        try:
            broker = await self._connect(fronted)
            relay = Relay(
                client=client,
                broker=broker,
                gate=fronted.gate,
                links=self.links,
                sessions=fronted.sessions,
                readdress=self._readdress if self.rewrites else None,
                max_frame_bytes=DEFAULT_MAX_FRAME_BYTES,
            )
            await relay.run()
        except PeerUnavailableError:
            pass  # one of the two has left
        except (ProtocolError, FaultInjectedError, ProxyListenError) as error:
            self.sink(ConnectionRefused(peer=client.peer, cause=str(error)))
        except Exception as error:  # noqa: BLE001 - one connection must not end the others
            error.add_note(f"relaying for {client.peer}")
            self.on_bug(error)
        finally:
            client.close()

    async def _connect(self, fronted: FrontedBroker) -> Connection:
        address = fronted.address
        try:
            connection = await self.to_brokers.connect(address.host, address.port)
        except NO_ANSWER as error:
            if not fronted.is_lost:
                fronted.is_lost = True
                self.sink(
                    UpstreamLost(broker=fronted.broker_id, address=str(address), cause=str(error))
                )
            raise
        if fronted.is_lost:
            fronted.is_lost = False
            self.sink(UpstreamFound(broker=fronted.broker_id, address=str(address)))
        return connection

    # -- addresses

    async def _readdress(self, key: ApiKey, response: Any) -> bool:
        """Replace the addresses of brokers in a response; return whether there were any."""
        if isinstance(response, MetadataResponse):
            self._learn_names(response)
        named = named_brokers(key, response)
        for each in named:
            fronted = await self._fronted(id_of(each), HostPort(each.host, each.port))
            ours = self.advertised(fronted)
            each.host, each.port = ours.host, ours.port
        return bool(named)

    def _learn_names(self, response: MetadataResponse) -> None:
        for topic in response.topics:
            if topic.topic_id != NO_TOPIC_ID and topic.name is not None:
                self.topic_names[topic.topic_id] = topic.name
        while len(self.topic_names) > MOST_TOPICS:
            del self.topic_names[next(iter(self.topic_names))]

    async def _fronted(self, broker_id: int, address: HostPort) -> FrontedBroker:
        """Return the listener of a broker, which is opened if it is new."""
        async with self._opening:
            fronted = self.to_broker(broker_id)
            if fronted is None:
                fronted = self._first_at(address)
                if fronted is None:
                    return await self._front_at_next_port(broker_id, address)
                fronted.gate.node_id = broker_id
            if not _is_same(fronted.address, address):
                fronted.address = address
            return fronted

    def _first_at(self, address: HostPort) -> FrontedBroker | None:
        """Return the listener of a broker whose id was not known before."""
        unknown = [each for each in self.fronted if each.broker_id == UNKNOWN_BROKER]
        return next((each for each in unknown if _is_same(each.address, address)), None)

    async def _front_at_next_port(self, broker_id: int, address: HostPort) -> FrontedBroker:
        """Listen at the first free port above the last one."""
        port = max((each.port for each in self.fronted), default=0)
        while port < _LAST_PORT:
            port += 1
            with suppress(ProxyListenError):
                return await self.front(address, broker_id=broker_id, port=port)
        raise ProxyListenError(f"no port is free for broker {broker_id}")


def _parsed(address: str) -> HostPort:
    try:
        return HostPort.parse(address)
    except ValueError as error:
        raise UnderstudyError(f"{address!r} is not host:port") from error


def _is_same(one: HostPort, other: HostPort) -> bool:
    hosts = {one.host, other.host}
    return one.port == other.port and (len(hosts) == 1 or hosts <= _THIS_MACHINE)


@asynccontextmanager
async def open_relays(
    *,
    host: str = LOOPBACK,
    advertised_host: str | None = None,
    rewrites: bool = False,
    introduction: Introduction | None = None,
    seams: Seams | None = None,
    sink: EventSink = ignore,
    on_bug: OnBug = raise_bug,
) -> AsyncIterator[Proxy]:
    """Open a proxy without listeners; `front` adds one for each broker.

    Without `rewrites` addresses and versions pass as they are: brokers must advertise the proxy's
    ports themselves.
    """
    seams = seams or production_seams()
    connecting = seams if introduction is None else introduced(seams, introduction)
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            yield Proxy(
                seams=seams,
                to_brokers=connecting.transport,
                host=host,
                advertised_host=advertised_host or host,
                rewrites=rewrites,
                sink=sink,
                on_bug=on_bug,
                faults=Faults(seams.clock),
                nursery=nursery,
            )
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_proxy(
    upstream: str,
    *,
    port: int = 0,
    host: str = LOOPBACK,
    advertised_host: str | None = None,
    introduction: Introduction | None = None,
    seams: Seams | None = None,
    sink: EventSink = ignore,
    on_bug: OnBug = raise_bug,
) -> AsyncIterator[Proxy]:
    """Open a proxy in front of a cluster; clients that begin at it stay on it.

    Args:
        upstream: the `host:port` of a broker.
        port: the port of the first listener; the others take the next free ones. 0 takes any.
        host: the address of all listeners.
        advertised_host: the host in the addresses that clients get, by default `host`.
        introduction: the security of connections to brokers; by default none. With a login, clients
            need none; without it a client's own SASL passes.
        seams: the seams; by default those of this machine.
        sink: receives events: rules that were applied, brokers that were lost and found.
        on_bug: called with an error that is a bug of understudy; by default it is raised.

    Raises PeerUnavailableError if nothing listens at `upstream`, ProxyListenError if a port is in use.
    """
    address = _parsed(upstream)
    async with open_relays(
        host=host,
        advertised_host=advertised_host,
        rewrites=True,
        introduction=introduction,
        seams=seams,
        sink=sink,
        on_bug=on_bug,
    ) as proxy:
        (await proxy.to_brokers.connect(address.host, address.port)).close()
        await proxy.front(address, port=port)
        # A broker that wants a login tells the clients that have one.
        with suppress(*NO_ANSWER):
            await proxy.ask_cluster(address)
        yield proxy
