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
    """A server of Kafka 4.1, as far as markers and ApiVersions go."""

    asked: list[int] = attrs.field(factory=list)
    """The versions in which it was asked what it serves."""

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        self.asked.append(version)
        response = Server.api_versions(self, request, version=version)
        (markers,) = (
            each for each in response.api_keys if each.api_key == ApiKey.WRITE_TXN_MARKERS
        )
        markers.max_version = 1
        return response


def received(*requests: object, asks_versions: bool) -> tuple[list[int], list[int]]:
    """Send requests to an older server; return the versions of ApiVersions and of markers there."""
    markers: list[int] = []
    versions: list[int] = []

    async def answer(context: RequestContext, _: Any) -> WriteTxnMarkersResponse:
        await trio.lowlevel.checkpoint()
        markers.append(context.version)
        return WriteTxnMarkersResponse()

    async def story(world: World) -> None:
        older, ours = world.node("older"), world.node("ours")
        listener = await older.transport.listen("older", PORT)
        server = OlderServer(
            handlers={ApiKey.WRITE_TXN_MARKERS: answer},
            clock=older.clock,
            sink=ignore,
            on_bug=fail,
            asked=versions,
        )
        channel = PeerChannel("older", PORT, "ours", ours, asks_versions=asks_versions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.serve(listener, name="PLAINTEXT"))
            for each in requests:
                await channel.call(each, timeout_ms=1000)
            channel.close()
            nursery.cancel_scope.cancel()

    World(seed=1).run(story)
    return versions, markers


def test_a_node_of_an_older_release_is_asked_in_a_version_that_it_serves() -> None:
    _, markers = received(MARKERS, MARKERS, asks_versions=True)
    assert markers == [1, 1]


def test_a_node_of_this_release_is_not_asked_what_it_serves() -> None:
    assert received(MARKERS, MARKERS, asks_versions=False) == ([], [2, 2])


def test_what_a_new_voter_supports_is_asked_in_a_version_that_kafka_4_1_knows() -> None:
    """Apache Kafka answers a newer version with an error, and without its features."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert received(request, asks_versions=False) == ([4], [])
