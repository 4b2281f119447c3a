"""A channel to a node of an older release: what it serves is asked once for each connection."""

from typing import Any

import attrs
import trio

from replication.events import ignore
from replication.net.controller_channel import PeerChannel
from replication.server.server import RequestContext, Server
from replication.wire.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
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

    asked: list[tuple[ApiKey, int]]

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        self.asked.append((ApiKey.API_VERSIONS, version))
        response = Server.api_versions(self, request, version=version)
        (markers,) = (
            each for each in response.api_keys if each.api_key == ApiKey.WRITE_TXN_MARKERS
        )
        markers.max_version = 1
        return response


def received(*requests: object, asks_versions: bool) -> list[tuple[ApiKey, int]]:
    """Send requests to an older server; return what it was asked, and in which versions."""
    asked: list[tuple[ApiKey, int]] = []

    async def mark(context: RequestContext, _: Any) -> WriteTxnMarkersResponse:
        await trio.lowlevel.checkpoint()
        asked.append((context.api_key, context.version))
        return WriteTxnMarkersResponse()

    async def add(context: RequestContext, _: Any) -> AddRaftVoterResponse:
        await trio.lowlevel.checkpoint()
        asked.append((context.api_key, context.version))
        return AddRaftVoterResponse()

    async def story(world: World) -> None:
        older, ours = world.node("older"), world.node("ours")
        listener = await older.transport.listen("older", PORT)
        server = OlderServer(
            handlers={ApiKey.WRITE_TXN_MARKERS: mark, ApiKey.ADD_RAFT_VOTER: add},
            clock=older.clock,
            sink=ignore,
            on_bug=fail,
            asked=asked,
        )
        channel = PeerChannel("older", PORT, "ours", ours, asks_versions=asks_versions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.serve(listener, name="PLAINTEXT"))
            for each in requests:
                await channel.call(each, timeout_ms=1000)
            channel.close()
            nursery.cancel_scope.cancel()

    World(seed=1).run(story)
    return asked


def test_a_node_of_an_older_release_is_asked_in_a_version_that_it_serves() -> None:
    *_, first, second = received(MARKERS, MARKERS, asks_versions=True)
    assert first == second == (ApiKey.WRITE_TXN_MARKERS, 1)


def test_a_node_of_this_release_is_not_asked_what_it_serves() -> None:
    assert received(MARKERS, MARKERS, asks_versions=False) == [(ApiKey.WRITE_TXN_MARKERS, 2)] * 2


def test_voters_are_added_in_versions_that_kafka_4_1_knows() -> None:
    """Apache Kafka answers a newer ApiVersions with an error, and closes for another request."""
    supports = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    requests = (supports, AddRaftVoterRequest(), AddRaftVoterRequest(ack_when_committed=False))
    assert received(*requests, asks_versions=False) == [
        (ApiKey.API_VERSIONS, 4),
        (ApiKey.ADD_RAFT_VOTER, 0),
        (ApiKey.ADD_RAFT_VOTER, 1),
    ]
