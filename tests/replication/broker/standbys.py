"""Controllers that do not lead: what they say, and what they were asked."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from replication.errors import ErrorCode
from replication.metadata.rules.records import METADATA_TOPIC
from replication.server.server import Handler, RequestContext, Server
from replication.wire.apis import ApiKey
from replication.wire.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replication.wire.fetch import FetchRequest, FetchResponse, FetchSnapshotId, PartitionData
from replication.wire.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    TopicSnapshot,
)
from replication.wire.metadata import LeaderIdAndEpoch, NodeEndpoint
from replication.wire.refusals import refused, refused_whole
from scenarios.world.world import World
from tests.replication.controller.running_controller import fail

PORT = 9093
ASKED = (
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CREATE_TOPICS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)


@attrs.define
class Standby:
    """What a controller that does not lead says, and the requests that it was sent."""

    leader: NodeEndpoint | None = None
    leader_epoch: int = -1
    answers: bool = True
    serves_fetch: bool = True
    snapshot: FetchSnapshotId | None = None
    """The snapshot that it names, as a leader; None where it does not lead."""
    piece: PartitionSnapshot = attrs.field(factory=PartitionSnapshot)
    """What it sends of that."""
    serves: Sequence[ApiKey] = ASKED
    """What it refuses, beside what it says of the quorum; any other request ends the connection."""
    asked: list[ApiKey] = attrs.field(factory=list)
    version: int = -1
    """The version of the last request."""

    async def refuse(self, context: RequestContext, request: Any) -> Any:
        self.asked.append(context.api_key)
        self.version = context.version
        await self._stay_silent()
        return refused_whole(context.api_key, context.version, request, ErrorCode.NOT_CONTROLLER)

    async def describe(self, context: RequestContext, request: DescribeQuorumRequest) -> Any:
        """Refuse as Apache Kafka's controllers do: by the errors of the partitions."""
        self.asked.append(context.api_key)
        await trio.lowlevel.checkpoint()
        response = refused(DescribeQuorumResponse, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return attrs.evolve(response, error_code=ErrorCode.NONE)

    async def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        self.asked.append(context.api_key)
        await self._stay_silent()
        response: FetchResponse = refused(FetchResponse, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response.error_code = ErrorCode.NONE
        for topic, asked in zip(response.responses, request.topics, strict=True):
            topic.topic_id = asked.topic_id
            # Apache Kafka's controller refuses a negative one, whatever else is in the request.
            assert all(each.last_fetched_epoch >= 0 for each in asked.partitions)
            topic.partitions = [
                PartitionData(
                    partition_index=each.partition,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    high_watermark=-1,
                    current_leader=LeaderIdAndEpoch(
                        leader_id=-1 if self.leader is None else self.leader.node_id,
                        leader_epoch=self.leader_epoch,
                    ),
                )
                for each in asked.partitions
            ]
        response.node_endpoints = [] if self.leader is None else [self.leader]
        if self.snapshot is not None:
            for data in [each for topic in response.responses for each in topic.partitions]:
                data.error_code, data.snapshot_id = ErrorCode.NONE, self.snapshot
        return response

    async def fetch_snapshot(
        self, context: RequestContext, _: FetchSnapshotRequest
    ) -> FetchSnapshotResponse:
        self.asked.append(context.api_key)
        await trio.lowlevel.checkpoint()
        topic = TopicSnapshot(name=METADATA_TOPIC, partitions=[self.piece])
        return FetchSnapshotResponse(topics=[topic])

    async def _stay_silent(self) -> None:
        if not self.answers:
            await trio.sleep_forever()

    async def serve(
        self,
        world: World,
        name: str,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        seams = world.node(name)
        handlers: dict[ApiKey, Handler] = dict.fromkeys(self.serves, self.refuse)
        server = Server(
            handlers={
                **handlers,
                **({ApiKey.FETCH: self.fetch} if self.serves_fetch else {}),
                ApiKey.FETCH_SNAPSHOT: self.fetch_snapshot,
                ApiKey.DESCRIBE_QUORUM: self.describe,
            },
            clock=seams.clock,
            sink=world.sink(name),
            on_bug=fail,
        )
        listener = await seams.transport.listen(name, PORT)
        task_status.started()
        await server.serve(listener, name="CONTROLLER")


@asynccontextmanager
async def standing_by(world: World, **standbys: Standby) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for name, standby in standbys.items():
            await nursery.start(standby.serve, world, name)
        yield
        nursery.cancel_scope.cancel()
