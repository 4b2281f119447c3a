"""Clients of a proxy, and brokers behind it that say what a test has them say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from replication.errors import raise_bug
from replication.events import ignore
from replication.net.raising import raising_only_one
from replication.net.rpc import RpcClient
from replication.proxy import open_proxy
from replication.proxy.proxy import Proxy
from replication.server.server import Handler, RequestContext, Server
from replication.wire.apis import API, ApiKey
from replication.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from replication.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from scenarios.world.world import World
from tests.replication.faults.places import PORT, PROXY, ProxiedScene

TIMEOUT_MS = 5_000


async def connected(stage: ProxiedScene, *, client_id: str = "raw", port: int = PORT) -> RpcClient:
    return await connected_in(stage.world, client_id=client_id, port=port)


async def connected_in(world: World, *, client_id: str = "raw", port: int = PORT) -> RpcClient:
    seams = world.node("client")
    return await RpcClient.connect(
        seams.transport,
        PROXY,
        port,
        client_id=client_id,
        clock=seams.clock,
        timeout_ms=TIMEOUT_MS,
    )


class FakeBrokers:
    """A server that says of brokers what `brokers` has."""

    def __init__(self, **brokers: tuple[str, int]) -> None:
        self.brokers = brokers
        self.newest = API[ApiKey.METADATA].max_version

    async def metadata(self, _: RequestContext, __: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=int(name[1:]), host=host, port=port)
                for name, (host, port) in self.brokers.items()
            ]
        )

    async def heartbeat(self, _: RequestContext, __: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse()


@asynccontextmanager
async def serving(
    world: World, name: str, port: int, handlers: dict[ApiKey, Handler]
) -> AsyncIterator[None]:
    seams = world.node(name)
    server = Server(handlers=handlers, clock=seams.clock, sink=ignore, on_bug=raise_bug)
    listener = await seams.transport.listen(name, port)
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.serve(listener, name="PLAINTEXT"))
            yield
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def fake_behind_proxy(world: World, fake: FakeBrokers) -> AsyncIterator[Proxy]:
    handlers: dict[ApiKey, Handler] = {
        ApiKey.METADATA: fake.metadata,
        ApiKey.HEARTBEAT: fake.heartbeat,
    }
    async with (
        serving(world, "b1", 9092, handlers),
        open_proxy(
            "b1:9092", port=PORT, host=PROXY, seams=world.node(PROXY), sink=world.sink(PROXY)
        ) as proxy,
    ):
        yield proxy
