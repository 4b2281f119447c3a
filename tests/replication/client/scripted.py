"""Brokers that answer as a test says, over the simulator's network: real peers of the wire.

    async with open_peers("b1", "b2") as peers:
        peers["b1"].handlers[ApiKey.METADATA] = answer      # async (context, request) -> response
        network = peers.network_client(bootstrap_servers="b1:9092")

Each is `replication.server.server.Server`, so what travels is encoded, framed, delayed and
decoded; only what it says is the test's.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from replication.client.config import ClientConfig
from replication.client.network_client import NetworkClient
from replication.errors import PeerUnavailableError, raise_bug
from replication.events import ignore
from replication.net import production_seams
from replication.net.clock import TrioClock
from replication.net.seams import Listener
from replication.server.server import Handler, RequestContext, Server
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import ApiKey
from scenarios.world.clock import SimulatedClock, VirtualTime
from scenarios.world.network import SimulatedNetwork

PORT = 9092
CLOCK = TrioClock()
CLIENT = "client"


@attrs.define(eq=False)
class PickyServer(Server):
    """Serves no newer versions than the test allows."""

    newest: dict[ApiKey, int] = attrs.field(factory=dict)

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        response = super().api_versions(request, version=version)
        for each in response.api_keys:
            each.max_version = self.newest.get(ApiKey(each.api_key), each.max_version)
        return response


@attrs.define(eq=False)
class Peer:
    """One broker, and what it has been asked so far."""

    id: int
    name: str
    network: SimulatedNetwork
    nursery: trio.Nursery
    handlers: dict[ApiKey, Handler] = attrs.field(factory=dict)
    newest: dict[ApiKey, int] = attrs.field(factory=dict)
    asked: list[tuple[ApiKey, int, Any]] = attrs.field(factory=list)
    _listener: Listener | None = None
    _scope: trio.CancelScope | None = None

    def requests(self, key: ApiKey) -> list[Any]:
        return [request for asked, _, request in self.asked if asked is key]

    def on(self, key: ApiKey, answer: Callable[[Any], Any]) -> None:
        """Answer `key` by a function of the request."""

        async def handler(_: RequestContext, request: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return answer(request)

        self.handlers[key] = handler

    def _noting(self, key: ApiKey, handler: Handler) -> Handler:
        async def noting(context: RequestContext, request: Any) -> Any:
            self.asked.append((key, context.version, request))
            return await self.handlers.get(key, handler)(context, request)

        return noting

    async def start(self) -> None:
        self._listener = await self.network.transport(self.name).listen(self.name, PORT)
        server = PickyServer(
            handlers={key: self._noting(key, each) for key, each in self.handlers.items()},
            clock=SimulatedClock(self.network.time),
            sink=ignore,
            on_bug=raise_bug,
            newest=self.newest,
        )
        self._scope = await self.nursery.start(self._serve, server)

    async def _serve(self, server: Server, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        assert self._listener is not None
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await server.serve(self._listener, name="PLAINTEXT")

    def stop(self) -> None:
        """Its connections are closed, and nobody listens any more."""
        if self._scope is not None:
            self._scope.cancel()


@attrs.define(eq=False)
class RawPeer:
    """A peer that does whatever it likes with each connection."""

    name: str
    network: SimulatedNetwork
    behave: Callable[[Any], Awaitable[None]]

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listener = await self.network.transport(self.name).listen(self.name, PORT)
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._one, await listener.accept())

    async def _one(self, connection: Any) -> None:
        try:
            await self.behave(connection)
        except PeerUnavailableError:
            pass
        finally:
            connection.close()


@attrs.define(eq=False)
class Peers:
    network: SimulatedNetwork
    nursery: trio.Nursery
    clock: SimulatedClock
    by_name: dict[str, Peer] = attrs.field(factory=dict)

    def __getitem__(self, name: str) -> Peer:
        return self.by_name[name]

    async def start(self) -> None:
        for peer in self.by_name.values():
            await peer.start()

    def network_client(self, **config: Any) -> NetworkClient:
        config.setdefault("bootstrap_servers", f"b1:{PORT}")
        return NetworkClient(
            config=ClientConfig.of(**config),
            seams=attrs.evolve(
                production_seams(),
                transport=self.network.transport(CLIENT),
                clock=self.clock,
                chance=random.Random(3),
            ),
            nursery=self.nursery,
        )

    def add_raw(self, name: str, behave: Callable[[Any], Awaitable[None]]) -> RawPeer:
        self.network.add_host(name, SimulatedClock(self.network.time))
        return RawPeer(name, self.network, behave)


@asynccontextmanager
async def open_peers(*names: str) -> AsyncIterator[Peers]:
    """Peers that are not started yet, and a client beside them."""
    time = trio.lowlevel.current_clock()
    assert isinstance(time, VirtualTime), "autojump_clock, as it is in this directory"
    network = SimulatedNetwork(random.Random(1), time, least_delay=0.001, mean_extra_delay=0.0)
    clock = SimulatedClock(time)
    network.add_host(CLIENT, clock)
    async with trio.open_nursery() as nursery:
        peers = Peers(network, nursery, clock)
        for number, name in enumerate(names, 1):
            network.add_host(name, SimulatedClock(time))
            peers.by_name[name] = Peer(number, name, network, nursery)
        yield peers
        nursery.cancel_scope.cancel()
