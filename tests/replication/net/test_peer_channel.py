"""A channel to a node of an older release: what it serves is asked once for each connection."""

from typing import Any

import attrs
import trio

from replication.events import ignore
from replication.net.controller_channel import PeerChannel
from replication.server.server import RequestContext, Server
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import ApiKey
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from scenarios.world.world import World
from tests.replication.controller.running_controller import fail

PORT = 9092
MARKERS = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=7, transaction_version=2)])


@attrs.define(eq=False, repr=False, kw_only=True)
class OlderServer(Server):
    """A server of Kafka 4.1, as far as markers go."""

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        response = Server.api_versions(self, request, version=version)
        (markers,) = (
            each for each in response.api_keys if each.api_key == ApiKey.WRITE_TXN_MARKERS
        )
        markers.max_version = 1
        return response


def asked_in(*, asks_versions: bool) -> list[int]:
    """Return the versions in which an older server was sent markers, twice."""
    asked: list[int] = []

    async def answer(context: RequestContext, _: Any) -> WriteTxnMarkersResponse:
        await trio.lowlevel.checkpoint()
        asked.append(context.version)
        return WriteTxnMarkersResponse()

    async def story(world: World) -> None:
        older, ours = world.node("older"), world.node("ours")
        listener = await older.transport.listen("older", PORT)
        server = OlderServer(
            handlers={ApiKey.WRITE_TXN_MARKERS: answer},
            clock=older.clock,
            sink=ignore,
            on_bug=fail,
        )
        channel = PeerChannel("older", PORT, "ours", ours, asks_versions=asks_versions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.serve(listener, name="PLAINTEXT"))
            for _ in range(2):
                await channel.call(MARKERS, timeout_ms=1000)
            channel.close()
            nursery.cancel_scope.cancel()

    World(seed=1).run(story)
    return asked


def test_a_node_of_an_older_release_is_asked_in_a_version_that_it_serves() -> None:
    assert asked_in(asks_versions=True) == [1, 1]


def test_a_node_of_this_release_is_not_asked_what_it_serves() -> None:
    assert asked_in(asks_versions=False) == [2, 2]
