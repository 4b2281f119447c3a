"""Groups of the consumer protocol (KIP-848) on a whole cluster, on virtual time.

The file is long because all of it plays with the same members, of both protocols.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import pytest
import trio

from replication.errors import ErrorCode
from replication.events import GroupProtocolChanged
from replication.groups.consumers import LARGE_CHANGE
from replication.net.seams import Offload
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import ApiKey
from replication.wire.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedConsumerGroup,
)
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from replication.wire.consumer_protocol import (
    Assignment,
    TopicPartitions,
    encode_assignment,
)
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.list_groups import ListGroupsRequest
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from scenarios.world.world import World
from tests.replication.broker.members import RETRIED, Member
from tests.replication.broker.stage import Stage, played, played_in, staged

T = TypeVar("T")

SERVED = {
    "offsets_topic_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
    "group_coordinator_rebalance_protocols": "classic,consumer",
    "group_consumer_session_timeout_ms": "5000",
    "group_consumer_assignment_interval_ms": "0",
}


@asynccontextmanager
async def reading(world: World, *, brokers: int = 1, **properties: str) -> AsyncIterator[Stage]:
    async with staged(world, brokers=brokers, **(SERVED | properties)) as stage:
        await stage.client.create_topic(stage.address(1), "t", partitions=4, replicas=brokers)
        yield stage


@attrs.define
class Consumer(Member):
    """A member of the consumer protocol; `has` are the partitions of `t` that it reads."""

    has: set[int] = attrs.field(factory=set)
    topics: list[bytes] = attrs.field(factory=list)

    async def heartbeat(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat, until a coordinator has decided about it."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            **fields,
        )
        while True:
            answer: ConsumerGroupHeartbeatResponse = await self.ask(request, version=1)
            if answer.error_code not in RETRIED:
                break
            await self.a_moment()
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.member_epoch
            if answer.assignment is not None:
                given = answer.assignment.topic_partitions
                self.has = {number for each in given for number in each.partitions}
                self.topics = [each.topic_id for each in given] or self.topics
        return answer

    async def joins(self, *topics: str, **fields: Any) -> ErrorCode:
        names = list(topics) if "subscribed_topic_regex" not in fields else None
        answer = await self.heartbeat(
            0,
            rebalance_timeout_ms=3000,
            subscribed_topic_names=names,
            topic_partitions=[],
            **fields,
        )
        return ErrorCode.of(answer.error_code)

    async def beats(self, **fields: Any) -> ErrorCode:
        """Send a heartbeat with what it has; it revokes as soon as it is asked to."""
        owned = [
            HeartbeatTopicPartitions(topic_id=each, partitions=sorted(self.has))
            for each in self.topics[:1]
            if self.has
        ]
        answer = await self.heartbeat(self.generation, topic_partitions=owned, **fields)
        return ErrorCode.of(answer.error_code)

    async def shown(self) -> DescribedConsumerGroup:
        answer = await self.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]), version=1)
        group = answer.groups[0]
        assert isinstance(group, DescribedConsumerGroup)
        return group


async def settle(*consumers: Consumer) -> None:
    for _ in range(4):
        for each in consumers:
            assert await each.beats() is ErrorCode.NONE


async def advertised(stage: Stage) -> set[int]:
    answer = await stage.client.ask(
        stage.address(1),
        ApiVersionsRequest(client_software_name="test", client_software_version="1"),
        version=3,
    )
    return {each.api_key for each in answer.api_keys}


@played_in(reading, group_coordinator_rebalance_protocols="classic")
async def test_the_protocol_is_advertised_only_where_it_is_configured(stage: Stage) -> None:
    new = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
    assert not new & await advertised(stage)


@pytest.mark.conformance("CG-70", "CG-75", "CG-76", "CG-113", "CG-114")
@played_in(reading)
async def test_two_members_share_a_topic_and_describe_shows_them(stage: Stage) -> None:
    assert await advertised(stage) >= {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    assert await a.joins("t") is ErrorCode.NONE
    assert a.has == {0, 1, 2, 3}
    assert await b.joins("t", rack_id="r") is ErrorCode.NONE
    assert b.has == set()
    await settle(a, b)
    assert sorted(a.has | b.has) == [0, 1, 2, 3]
    assert len(a.has) == len(b.has) == 2
    shown = await a.shown()
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Stable", 2, 2)
    assert [(each.member_id, each.member_type) for each in shown.members] == [("a", 1), ("b", 1)]
    assert shown.members[1].rack_id == "r"
    (topic,) = shown.members[0].assignment.topic_partitions
    assert (topic.topic_name, set(topic.partitions)) == ("t", a.has)
    listed = await a.ask(ListGroupsRequest(types_filter=["Consumer"], states_filter=["stable"]))
    assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "consumer")]
    assert (await a.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@played_in(reading)
async def test_a_commit_and_a_fetch_of_offsets_name_the_epoch(stage: Stage) -> None:
    a = Consumer(stage, member_id="a")
    await a.joins("t")
    assert await a.commit(7) is ErrorCode.NONE
    a.generation += 1
    assert await a.commit(8) is ErrorCode.STALE_MEMBER_EPOCH
    assert await a.committed() == 7
    for member_id, epoch, error in (
        ("a", a.generation, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", a.generation - 1, ErrorCode.NONE),
    ):
        topic = OffsetFetchTopic(name="t", partition_indexes=[0])
        asked = OffsetFetchGroup(
            group_id="g", topics=[topic], member_id=member_id, member_epoch=epoch
        )
        (group,) = (await a.ask(OffsetFetchRequest(groups=[asked]), version=9)).groups
        assert group.error_code == error


@played_in(reading, brokers=3)
async def test_a_coordinator_that_takes_over_knows_members_epochs_and_offsets(
    stage: Stage,
) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    await b.joins("t")
    await settle(a, b)
    assert await a.commit(5) is ErrorCode.NONE
    before = await a.shown()
    await stage.cluster.kill_broker(await a.coordinator())
    await settle(a, b)
    after = await a.shown()
    assert (after.group_epoch, after.members) == (before.group_epoch, before.members)
    assert await a.committed() == 5


@played_in(reading)
async def test_a_member_that_is_silent_is_removed_and_the_other_reads_all(stage: Stage) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    await b.joins("t")
    await settle(a, b)
    for _ in range(6):
        await stage.client.seams.clock.sleep(1)
        assert await b.beats() is ErrorCode.NONE
    await settle(b)
    assert b.has == {0, 1, 2, 3}
    assert await a.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(reading)
async def test_a_member_that_does_not_revoke_in_time_is_removed(stage: Stage) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    await b.joins("t")
    asked = await a.heartbeat(a.generation)
    assert asked.assignment is not None
    error = ErrorCode.NONE
    for _ in range(4):
        await stage.client.seams.clock.sleep(1)
        error = ErrorCode.of((await a.heartbeat(a.generation)).error_code)
        await b.beats()
    assert error is ErrorCode.UNKNOWN_MEMBER_ID
    await settle(b)
    assert b.has == {0, 1, 2, 3}


@played_in(reading)
async def test_a_pattern_finds_topics_that_are_created_later(stage: Stage) -> None:
    a = Consumer(stage, member_id="a")
    assert await a.joins(subscribed_topic_regex="[t-u]") is ErrorCode.NONE
    while a.has != {0, 1, 2, 3}:
        await a.a_moment()
        await a.beats()
    await stage.client.create_topic(stage.address(1), "u", partitions=6, replicas=1)
    while a.has != {0, 1, 2, 3, 4, 5}:
        await a.a_moment()
        await a.heartbeat(a.generation, topic_partitions=[])
    bad = Consumer(stage, member_id="b")
    assert await bad.joins(subscribed_topic_regex="(?=t)") is ErrorCode.INVALID_REGULAR_EXPRESSION


@attrs.define
class HeldOffload:
    """An offload whose work waits until it is let go; it counts what it was asked for."""

    inner: Offload
    asked: int = 0
    free: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.asked += 1
        await self.free.wait()
        return await self.inner(fn)


@played_in(reading)
async def test_patterns_are_looked_up_once_at_a_time_and_miss_no_topic(stage: Stage) -> None:
    groups = stage.cluster.brokers[1].groups
    held = HeldOffload(groups.seams.offload)
    groups.seams = attrs.evolve(groups.seams, offload=held)
    a = Consumer(stage, member_id="a")
    assert await a.joins(subscribed_topic_regex="[t-u]") is ErrorCode.NONE
    for _ in range(20):
        await a.a_moment()
        assert await a.beats() is ErrorCode.NONE
    await stage.client.create_topic(stage.address(1), "u", partitions=6, replicas=1)
    for _ in range(20):
        await a.a_moment()
        assert await a.beats() is ErrorCode.NONE
    assert held.asked == 1
    held.free.set()
    for _ in range(20):
        await stage.client.seams.clock.sleep(1)
        await a.heartbeat(a.generation, topic_partitions=[])
    assert a.has == {0, 1, 2, 3, 4, 5}
    assert held.asked == 2


@pytest.mark.conformance("CG-72", "CG-115", "CG-133")
@played_in(reading, group_consumer_migration_policy="disabled")
async def test_a_group_has_one_protocol_while_it_has_members(stage: Stage) -> None:
    a, classic = Consumer(stage, member_id="a"), Member(stage)
    await a.joins("t")
    assert await classic.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert (await a.ask(delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await a.heartbeat(-1)
    assert (await a.shown()).group_state == "Empty"
    assert await classic.join() is ErrorCode.NONE
    assert await a.joins("t") is ErrorCode.GROUP_ID_NOT_FOUND
    assert await classic.leave() is ErrorCode.NONE
    assert await a.joins("t") is ErrorCode.NONE
    await a.heartbeat(-1)
    assert (await a.ask(delete)).results[0].error_code == ErrorCode.NONE
    assert (await a.shown()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.conformance("CG-81")
@played_in(reading, group_consumer_max_size="1")
async def test_what_is_refused_says_why(stage: Stage) -> None:
    a = Consumer(stage, member_id="a")
    assert await a.joins("t", server_assignor="bar") is ErrorCode.UNSUPPORTED_ASSIGNOR
    answer = await Consumer(stage, member_id="x").heartbeat(3)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await a.joins("t") is ErrorCode.NONE
    answer = await Consumer(stage, member_id="x").heartbeat(3)
    assert (answer.error_code, bool(answer.error_message)) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        True,
    )
    assert await a.commit(1) is ErrorCode.NONE
    answer = await a.heartbeat(9)
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def real(stage: Stage) -> Member:
    """A classic member that gives all partitions of `t` to the first member."""

    def share(number: int) -> bytes:
        topics = [] if number else [TopicPartitions(topic="t", partitions=[0, 1, 2, 3])]
        return encode_assignment(Assignment(assigned_partitions=topics))

    return Member(stage, share=share)


async def committed_by_all(*members: Member) -> None:
    for each in members:
        assert await each.commit(1) is ErrorCode.NONE


@pytest.mark.conformance("CG-132")
@played
async def test_a_group_changes_its_protocol_while_members_read(world: World) -> None:
    async with reading(world, brokers=3) as stage:
        await changes_its_protocol(stage)
    changes = [
        (each.event.protocol, len(each.event.members))
        for each in world.trace.entries
        if isinstance(each.event, GroupProtocolChanged)
    ]
    assert changes == [("consumer", 2), ("classic", 1)]


async def changes_its_protocol(stage: Stage) -> None:
    classic = real(stage)
    assert await classic.join() is ErrorCode.NONE
    assert await classic.commit(5) is ErrorCode.NONE
    before = classic.generation
    consumer = Consumer(stage, member_id="c")
    assert await consumer.joins("t") is ErrorCode.NONE
    assert consumer.generation > before
    assert await classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert await classic.commit(6) is ErrorCode.NONE, "it has its partitions as before"
    assert await classic.join() is ErrorCode.NONE
    await settle(consumer)
    assert len(consumer.has) == 2
    assert await consumer.committed() == 6
    shown = await consumer.shown()
    types = {each.member_id: each.member_type for each in shown.members}
    assert types == {"c": 1, classic.member_id: 0}
    assert (await classic.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    await stage.cluster.kill_broker(await consumer.coordinator())
    assert await classic.beat() is ErrorCode.NONE
    await settle(consumer)
    await committed_by_all(classic, consumer)

    await consumer.heartbeat(-1)
    assert (await consumer.shown()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert await classic.join() is ErrorCode.NONE
    assert (await classic.described()).group_state == "Stable"
    await stage.cluster.kill_broker(await consumer.coordinator())
    assert await classic.beat() is ErrorCode.NONE
    assert await consumer.committed() == 1


@played_in(reading)
async def test_joins_that_wait_are_answered_when_the_group_is_upgraded(stage: Stage) -> None:
    first, second = real(stage), real(stage)
    assert await first.join() is ErrorCode.NONE
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)  # waits for the first member to join again
        for _ in range(4):
            await second.a_moment()
        consumer = Consumer(stage, member_id="c")
        assert await consumer.joins("t") is ErrorCode.NONE
    assert await first.join() is ErrorCode.NONE
    assert len((await consumer.shown()).members) == 3


@pytest.mark.parametrize("waiting", [1, 2])
@played_in(reading, group_consumer_migration_policy="disabled")
async def test_a_group_whose_upgrade_is_refused_goes_on(stage: Stage, waiting: int) -> None:
    """Requests that waited for the upgrade are answered, and a silent member is removed."""
    groups, clock = stage.cluster.brokers[1].groups, stage.client.seams.clock
    held = HeldOffload(groups.seams.offload)
    groups.seams = attrs.evolve(groups.seams, offload=held)
    classic, consumer = real(stage), Consumer(stage, member_id="c")
    assert await classic.join() is ErrorCode.NONE
    await clock.sleep(5)
    assert await classic.beat() is ErrorCode.NONE
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.joins, "t", *map(str, range(LARGE_CHANGE)))
        await classic.a_moment()
        for _ in range(waiting):
            nursery.start_soon(classic.beat)
        await clock.sleep(6)  # the session of 10 s would have ended without the first heartbeat
        held.free.set()
    assert await classic.beat() is ErrorCode.NONE
    await clock.sleep(11)
    assert await classic.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(reading)
async def test_a_classic_member_that_is_silent_is_removed(stage: Stage) -> None:
    consumer, classic = Consumer(stage, member_id="c"), real(stage)
    assert await consumer.joins("t") is ErrorCode.NONE
    assert await classic.join() is ErrorCode.NONE
    for _ in range(11):  # its own session timeout is 10 s
        assert len((await consumer.shown()).members) == 2
        await stage.client.seams.clock.sleep(0.9)
        await consumer.beats()
    await stage.client.seams.clock.sleep(1)
    assert [each.member_id for each in (await consumer.shown()).members] == ["c"]
    assert await classic.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(reading)
async def test_a_classic_member_that_does_not_join_again_is_removed(stage: Stage) -> None:
    consumer, classic = Consumer(stage, member_id="c"), real(stage)
    assert await consumer.joins("t") is ErrorCode.NONE
    assert await classic.join() is ErrorCode.NONE
    other = Consumer(stage, member_id="d")
    assert await other.joins("t") is ErrorCode.NONE
    error = ErrorCode.NONE
    for _ in range(25):  # its rebalance timeout is 20 s
        await stage.client.seams.clock.sleep(1)
        await consumer.beats()
        await other.beats()
        error = await classic.beat()
    assert error is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(reading)
async def test_members_of_both_kinds_leave_by_leave_group(stage: Stage) -> None:
    consumer, classic = Consumer(stage, member_id="c"), real(stage)
    assert await consumer.joins("t") is ErrorCode.NONE
    assert await classic.join() is ErrorCode.NONE
    assert await classic.leave() is ErrorCode.NONE
    assert await classic.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.member_id for each in (await consumer.shown()).members] == ["c"]


@played_in(reading)
async def test_a_late_commit_is_taken_for_what_the_member_still_has(stage: Stage) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    await b.joins("t")
    await settle(a, b)
    epoch, kept = a.generation, min(a.has)
    lost = min(b.has)
    assert epoch > 1
    a.generation = 1
    assert await a.commit(3, partition=kept) is ErrorCode.NONE
    assert await a.commit(3, partition=lost) is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.conformance("CG-73")
@played_in(reading, offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_an_offset_expires_some_time_after_its_commit_unless_it_is_read(
    stage: Stage,
) -> None:
    a = Consumer(stage, member_id="a")
    await a.joins("t")
    assert await a.commit(7) is ErrorCode.NONE
    for _ in range(70):
        await stage.client.seams.clock.sleep(1)
        assert await a.beats() is ErrorCode.NONE
    assert await a.committed() == 7, "the group reads the topic"
    await a.heartbeat(-1)
    await stage.client.seams.clock.sleep(2)
    assert await a.committed() == -1, "its time began with the commit"
    assert (await a.shown()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.conformance("CG-116")
@played_in(reading, brokers=3)
async def test_a_group_is_described_as_it_is_written(stage: Stage) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    coordinator = await a.coordinator()
    await stage.cluster.kill_broker(next(each for each in (1, 2, 3) if each != coordinator))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.joins, "t")  # waits for the dead replica to leave the ISR
        await a.a_moment()
        before = await a.shown()
    after = await a.shown()
    assert (before.group_epoch, [each.member_id for each in before.members]) == (1, ["a"])
    assert (after.group_epoch, [each.member_id for each in after.members]) == (2, ["a", "b"])
