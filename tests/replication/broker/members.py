"""Members of a consumer group, for clusters in tests: they speak the wire and know little."""

import contextlib
from collections.abc import Callable
from typing import Any

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.describe_groups import DescribedGroup, DescribeGroupsRequest
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.heartbeat import HeartbeatRequest
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest
from replication.wire.leave_group import LeaveGroupRequest, LeavingMember
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.sync_group import SyncGroupAssignment, SyncGroupRequest
from tests.replication.broker.stage import Stage

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


@attrs.define
class Member:
    """A consumer of few words; it asks the coordinator on a connection of its own."""

    stage: Stage
    group: str = "g"
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    assignment: bytes = b""
    share: Callable[[int], bytes] = lambda number: f"part {number}".encode()
    """The assignment that it makes as the leader for the member of this number."""

    async def coordinator(self) -> int:
        """Return the coordinator, once there is one."""
        while True:
            for broker_id in self.stage.cluster.brokers:
                request = FindCoordinatorRequest(coordinator_keys=[self.group])
                answer = await self.stage.client.ask(self.stage.address(broker_id), request)
                (found,) = answer.coordinators
                if (
                    found.error_code == ErrorCode.NONE
                    and found.node_id in self.stage.cluster.brokers
                ):
                    return int(found.node_id)
            await self.a_moment()

    async def a_moment(self) -> None:
        await self.stage.client.seams.clock.sleep(0.05)

    async def ask(self, request: Any, *, version: int | None = None) -> Any:
        """Ask the coordinator, and again the next one where that one dies."""
        while True:
            address = self.stage.address(await self.coordinator())
            with contextlib.suppress(PeerUnavailableError):
                return await self.stage.client.ask(address, request, version=version)

    async def join(self) -> ErrorCode:
        """Join and sync, as often as it takes; the error that it does not take."""
        while True:
            error = await self._join_once()
            if error is ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if error is ErrorCode.UNKNOWN_MEMBER_ID and self.member_id:
                self.member_id = ""
                continue
            if error not in RETRIED:
                return error
            await self.a_moment()

    async def _join_once(self) -> ErrorCode:
        joined = await self.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=20_000,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
            )
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if joined.error_code != ErrorCode.NONE:
            return ErrorCode.of(joined.error_code)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        synced = await self.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupAssignment(member_id=each.member_id, assignment=self.share(number))
                    for number, each in enumerate(joined.members)
                ],
            )
        )
        self.assignment = synced.assignment
        return ErrorCode.of(synced.error_code)

    async def beat(self) -> ErrorCode:
        answer = await self.ask(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
        )
        return ErrorCode.of(answer.error_code)

    async def commit(self, offset: int, *, partition: int = 0, metadata: str = "") -> ErrorCode:
        asked = OffsetCommitPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata=metadata,
        )
        answer = await self.ask(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                topics=[OffsetCommitTopic(name="t", partitions=[asked])],
            )
        )
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    async def committed(self, *, partition: int = 0) -> int:
        """Asked until there is an answer."""
        topic = OffsetFetchTopic(name="t", partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=self.group, topics=[topic])])
        while True:
            (group,) = (await self.ask(request)).groups
            if group.error_code == ErrorCode.NONE:
                return int(group.topics[0].partitions[0].committed_offset)
            assert group.error_code in RETRIED
            await self.a_moment()

    async def leave(self) -> ErrorCode:
        leaving = LeavingMember(member_id=self.member_id, group_instance_id=self.instance)
        answer = await self.ask(LeaveGroupRequest(group_id=self.group, members=[leaving]))
        return ErrorCode.of(answer.members[0].error_code)

    async def described(self, *, version: int = 6) -> DescribedGroup:
        answer = await self.ask(DescribeGroupsRequest(groups=[self.group]), version=version)
        group = answer.groups[0]
        assert isinstance(group, DescribedGroup)
        return group


async def all_join(*members: Member) -> None:
    async def join(member: Member) -> None:
        assert await member.join() is ErrorCode.NONE

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(join, member)
