"""Consumer groups on a whole cluster, on virtual time: members, offsets, coordinators that die.

The file is long because each case is a short story of a whole cluster.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from replication.coordinator.rules import GROUP_METADATA_TOPIC, partition_for
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import Event, GroupMemberLeft, GroupsLoaded, GroupsUnloaded
from replication.metadata.rules.image import MetadataImage
from replication.metrics import MetricName
from replication.net.rpc import RpcClient
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_groups import DescribeGroupsRequest
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.heartbeat import HeartbeatRequest
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest
from replication.wire.list_groups import ListGroupsRequest
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from scenarios.world.world import World
from tests.replication.broker.members import RETRIED, SUBSCRIPTION, Member, all_join
from tests.replication.broker.stage import Stage, played, played_in, staged

FEW = {"offsets_topic_num_partitions": "3", "group_initial_rebalance_delay_ms": "100"}


@asynccontextmanager
async def reading(world: World, *, brokers: int = 1, **properties: str) -> AsyncIterator[Stage]:
    """A cluster with a topic to read."""
    async with staged(world, brokers=brokers, **(FEW | properties)) as stage:
        await stage.client.create_topic(stage.address(1), "t", partitions=2, replicas=brokers)
        yield stage


def events_of(world: World) -> list[Event]:
    return [entry.event for entry in world.trace.entries]


# The coordinator.


@played_in(reading, brokers=3)
async def test_the_first_search_for_a_coordinator_creates_the_offsets_topic(
    stage: Stage,
) -> None:
    coordinator = await Member(stage).coordinator()
    topic = stage.cluster.image.topics[GROUP_METADATA_TOPIC]
    assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (3, 3)
    assert topic.configs["cleanup.policy"] == "compact"
    number = partition_for("g", 3)
    assert topic.partitions[number].leader == coordinator
    for version in (0, 3, 6):
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        answer = await stage.client.ask(stage.address(1), request, version=version)
        found = answer if version < 4 else answer.coordinators[0]
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, coordinator)


@played_in(reading)
async def test_asking_for_the_offsets_topic_by_name_makes_the_same_one(stage: Stage) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=GROUP_METADATA_TOPIC)])
    answer = await stage.client.ask(stage.address(1), request)
    assert (answer.topics[0].is_internal, len(answer.topics[0].partitions)) == (True, 3)
    assert stage.cluster.image.topics[GROUP_METADATA_TOPIC].configs["cleanup.policy"]


@played
async def test_with_too_few_brokers_for_the_offsets_topic_there_is_no_coordinator(
    world: World,
) -> None:
    properties = FEW | {"offsets_topic_replication_factor": "3"}
    async with staged(world, brokers=1, **properties) as stage:
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        answer = await stage.client.ask(stage.address(1), request)
        (found,) = answer.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@played_in(reading, brokers=3)
async def test_another_broker_answers_not_coordinator(stage: Stage) -> None:
    coordinator = await Member(stage).coordinator()
    other = next(each for each in (1, 2, 3) if each != coordinator)
    address, expected = stage.address(other), ErrorCode.NOT_COORDINATOR
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await stage.client.ask(address, beat)).error_code == expected
    described = await stage.client.ask(address, DescribeGroupsRequest(groups=["g"]))
    assert described.groups[0].error_code == expected
    deleted = await stage.client.ask(address, DeleteGroupsRequest(groups_names=["g"]))
    assert deleted.results[0].error_code == expected
    nameless = await stage.client.ask(address, attrs.evolve(beat, group_id=""))
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


# Members.


@played_in(reading)
async def test_three_members_share_a_topic_and_the_rest_share_it_when_one_leaves(
    stage: Stage,
) -> None:
    members = [Member(stage) for _ in range(3)]
    await all_join(*members)
    assert {each.generation for each in members} == {1}
    assert sorted(each.assignment for each in members) == [b"part 0", b"part 1", b"part 2"]
    described = await members[0].described()
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert {each.client_host for each in described.members} == {"/client"}
    assert await members[0].leave() is ErrorCode.NONE
    assert await members[1].beat() is ErrorCode.REBALANCE_IN_PROGRESS
    await all_join(*members[1:])
    assert sorted(each.assignment for each in members[1:]) == [b"part 0", b"part 1"]
    assert await members[0].beat() is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(reading)
async def test_groups_and_offsets_are_counted_under_kafkas_names(stage: Stage) -> None:
    member = Member(stage)
    await all_join(member)
    await member.commit(1)
    assert await Member(stage, group="by hand").commit(1) is ErrorCode.NONE
    names = "NumGroups", "NumGroupsStable", "NumGroupsEmpty", "NumOffsets"
    found = [
        stage.cluster.brokers[1].metrics.read(
            MetricName("kafka.coordinator.group", "GroupMetadataManager", name)
        )
        for name in names
    ]
    assert found == [2, 1, 1, 2]


@played_in(reading)
async def test_a_silent_member_is_waited_for_as_long_as_its_session_lasts(stage: Stage) -> None:
    alive, silent = Member(stage), Member(stage)
    await all_join(alive, silent)
    began = stage.client.seams.clock.now()
    while await alive.beat() is ErrorCode.NONE:
        await stage.client.seams.clock.sleep(1)
    assert 9 < stage.client.seams.clock.now() - began < 12
    await all_join(alive)
    assert alive.generation == 2
    left = [e for e in events_of(stage.world) if isinstance(e, GroupMemberLeft)]
    assert [(each.member, each.cause) for each in left] == [(silent.member_id, "session expired")]


@played_in(reading)
async def test_a_static_member_comes_back_to_its_part_without_a_rebalance(stage: Stage) -> None:
    one, other = Member(stage, instance="i"), Member(stage, instance="j")
    await all_join(one, other)
    again = Member(stage, instance="i")
    await all_join(again)
    assert (again.generation, again.assignment) == (1, one.assignment)
    assert await one.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert await other.beat() is ErrorCode.NONE


# Offsets.


@played_in(reading, offset_metadata_max_bytes="5")
async def test_only_members_commit_offsets(stage: Stage) -> None:
    member, stranger = Member(stage), Member(stage)
    assert await member.committed() == -1
    await all_join(member)
    assert await member.commit(7, metadata="hello") is ErrorCode.NONE
    assert await member.committed() == 7
    assert await stranger.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await member.commit(8, metadata="longer") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    unknown = await member.commit(8, partition=9)
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await member.committed(), await member.committed(partition=1)) == (7, -1)


@played_in(reading, brokers=3)
async def test_offsets_are_fetched_in_every_form_there_has_been(stage: Stage) -> None:
    topic = OffsetFetchTopic(name="t", partition_indexes=[0, 1])
    request = OffsetFetchRequest(
        group_id="g", topics=[topic], groups=[OffsetFetchGroup(group_id="g", topics=[topic])]
    )

    async def fetched(stage: Stage, broker_id: int, version: int) -> tuple[object, list[int]]:
        answer = await stage.client.ask(stage.address(broker_id), request, version=version)
        where = answer.groups[0] if version >= 8 else answer
        partitions = [each for topic in where.topics for each in topic.partitions]
        code = partitions[0].error_code if version == 1 else where.error_code
        return code, [each.committed_offset for each in partitions]

    by_hand = Member(stage)
    assert await by_hand.commit(5) is ErrorCode.NONE
    coordinator = await by_hand.coordinator()
    elsewhere = next(each for each in (1, 2, 3) if each != coordinator)
    for version in (1, 2, 7, 8, 9):
        assert await fetched(stage, coordinator, version) == (ErrorCode.NONE, [5, -1])
        code, _ = await fetched(stage, elsewhere, version)
        assert code == ErrorCode.NOT_COORDINATOR


@played_in(reading)
async def test_a_request_without_topics_fetches_all_offsets_of_a_group(stage: Stage) -> None:
    by_hand = Member(stage)
    await by_hand.commit(5)
    await by_hand.commit(6, partition=1)
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=None)])
    (group,) = (await by_hand.ask(request)).groups
    (topic,) = group.topics
    assert [each.committed_offset for each in topic.partitions] == [5, 6]


# Coordinators that die.


@played_in(reading, brokers=3)
async def test_a_new_coordinator_knows_members_generation_and_offsets(stage: Stage) -> None:
    members = [Member(stage) for _ in range(2)]
    await all_join(*members)
    assert await members[0].commit(42) is ErrorCode.NONE
    old = await members[0].coordinator()
    await stage.cluster.kill_broker(old)
    assert await members[0].committed() == 42
    assert await members[0].coordinator() != old
    for member in members:
        assert await member.beat() is ErrorCode.NONE, "its session goes on"
    assert await members[1].commit(43, partition=1) is ErrorCode.NONE
    described = await members[0].described()
    assert {each.member_id for each in described.members} == {each.member_id for each in members}
    loaded = [e for e in events_of(stage.world) if isinstance(e, GroupsLoaded) and e.groups]
    assert [(each.groups, each.offsets) for each in loaded] == [(1, 1)]


@played_in(reading, brokers=3)
async def test_a_returning_coordinator_reads_the_records_of_its_absence(
    stage: Stage,
) -> None:
    member = Member(stage)
    await all_join(member)
    await member.commit(1)
    old = await member.coordinator()
    await stage.cluster.stop_broker(old)
    assert await member.committed() == 1
    assert await member.commit(2) is ErrorCode.NONE
    await stage.cluster.start_broker(old)
    await stage.until_in_sync("t", 3)
    second = await member.coordinator()
    await stage.cluster.stop_broker(second)
    assert await member.committed() == 2
    assert any(
        isinstance(each, GroupsUnloaded) and each.cause == "another leader epoch"
        for each in events_of(stage.world)
    )


@played_in(reading, brokers=3)
async def test_a_waiting_join_is_answered_when_the_coordinator_stops(stage: Stage) -> None:
    one, other = Member(stage), Member(stage)
    await all_join(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.join)  # waits for `one`, who does not know yet
        await stage.client.seams.clock.sleep(1)
        await stage.cluster.stop_broker(await one.coordinator())
        await all_join(one)
    assert one.generation == other.generation


@played
async def test_committed_offsets_outlive_any_coordinator(world: World) -> None:
    chance = world.chance("who dies when")
    async with reading(world, brokers=3) as stage:
        by_hand = Member(stage)
        down: list[int] = []
        for offset in range(1, 31):
            if down and chance.random() < 0.3:
                await stage.cluster.start_broker(down.pop())
                await until_whole(stage)
            elif not down and chance.random() < 0.3:
                down.append(await by_hand.coordinator())
                leave = chance.choice([stage.cluster.kill_broker, stage.cluster.stop_broker])
                await leave(down[0])
            while (error := await by_hand.commit(offset)) is not ErrorCode.NONE:
                assert error in RETRIED | {ErrorCode.REQUEST_TIMED_OUT}, error
                await by_hand.a_moment()
            assert await by_hand.committed() == offset


@played
async def test_a_commit_that_was_replicated_too_late_is_there(world: World) -> None:
    """Its coordinator did not know it, and the next one did: a member began before it."""
    async with reading(world, brokers=3, offsets_commit_timeout_ms="2000") as stage:
        by_hand = Member(stage)
        while await by_hand.commit(1) is not ErrorCode.NONE:
            await by_hand.a_moment()
        await until_whole(stage)
        coordinator = await by_hand.coordinator()
        others = [f"b{each}" for each in (1, 2, 3) if each != coordinator]
        for each in others:
            world.network.cut(f"b{coordinator}", each)
        assert await by_hand.commit(2) is ErrorCode.REQUEST_TIMED_OUT
        for each in others:
            world.network.heal(f"b{coordinator}", each)
        await until_whole(stage)
        assert await by_hand.committed() == 2


async def until_whole(stage: Stage) -> None:
    """Every replica of the offsets topic in sync: any broker may be killed next."""

    def whole() -> bool:
        partitions = stage.cluster.image.topics[GROUP_METADATA_TOPIC].partitions
        return all(len(each.isr) == 3 for each in partitions.values())

    await stage.cluster.until(whole, what="all in sync")


@played_in(reading)
async def test_another_offsets_topic_has_no_old_offsets(stage: Stage) -> None:
    by_hand = Member(stage)
    await by_hand.commit(9)
    for topic in ("nothing else", GROUP_METADATA_TOPIC):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
        await stage.client.ask(stage.address(1), request)
    assert await by_hand.committed() == -1


# Forgetting.


@played_in(reading, brokers=3)
async def test_a_group_without_members_can_be_deleted(stage: Stage) -> None:
    member = Member(stage)
    await all_join(member)
    await member.commit(9)
    request = DeleteGroupsRequest(groups_names=["g"])
    assert (await member.ask(request)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert (await member.described()).group_state == "Empty"
    assert (await member.ask(request)).results[0].error_code == ErrorCode.NONE
    gone = ErrorCode.GROUP_ID_NOT_FOUND
    assert (await member.ask(request)).results[0].error_code == gone
    assert (await member.described()).error_code == gone
    assert (await member.described(version=5)).group_state == "Dead"
    assert await member.committed() == -1
    await stage.cluster.kill_broker(await member.coordinator())
    assert await member.committed() == -1, "and the next coordinator has none either"


@played_in(reading)
async def test_offsets_of_topics_without_a_subscription_can_be_deleted(stage: Stage) -> None:
    member = Member(stage)
    await all_join(member)
    await member.commit(9)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteTopic(name=name, partitions=[OffsetDeletePartition(partition_index=0)])
            for name in ("t", "nowhere")
        ],
    )
    answer = await member.ask(request)
    assert [each.partitions[0].error_code for each in answer.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    await member.leave()
    answer = await member.ask(request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert await member.committed() == -1
    answer = await Member(stage, group="h").ask(attrs.evolve(request, group_id="h"))
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@played
async def test_offsets_expire_when_the_group_has_had_no_members_for_long_enough(
    world: World,
) -> None:
    how = {"offsets_retention_minutes": "1", "offsets_retention_check_interval_ms": "1000"}
    async with reading(world, brokers=1, **how) as stage:
        member = Member(stage)
        await all_join(member)
        await member.commit(9)
        for _ in range(8):
            await stage.client.seams.clock.sleep(9)
            assert await member.beat() is ErrorCode.NONE
        assert await member.committed() == 9, "it is being read"
        await member.leave()
        await stage.client.seams.clock.sleep(50)
        assert await member.committed() == 9
        await stage.client.seams.clock.sleep(12)
        assert await member.committed() == -1
        listed = await member.ask(ListGroupsRequest())
        assert listed.groups == []


@played_in(reading)
async def test_offsets_of_a_deleted_topic_go_with_it(stage: Stage) -> None:
    by_hand = Member(stage)
    await by_hand.commit(9)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
    await stage.client.ask(stage.address(1), request)

    def gone(image: MetadataImage) -> bool:
        return "t" not in image.topics

    for broker in stage.cluster.brokers.values():
        await broker.metadata.wait_for(gone)
    assert await by_hand.committed() == -1


@played_in(reading, brokers=3)
async def test_groups_are_listed_by_state_and_type(stage: Stage) -> None:
    member = Member(stage)
    await all_join(member)
    assert await Member(stage, group="by hand").commit(1) is ErrorCode.NONE
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for broker_id in (1, 2, 3):
        for states, types in ("", ""), ("stable", "Classic"), ("", "consumer"):
            request = ListGroupsRequest(states_filter=states.split(), types_filter=types.split())
            answer = await stage.client.ask(stage.address(broker_id), request)
            for group in answer.groups:
                found.setdefault((states, types), {})[group.group_id] = group.group_state
    assert found == {
        ("", ""): {"g": "Stable", "by hand": "Empty"},
        ("stable", "Classic"): {"g": "Stable"},
    }


@played_in(reading)
async def test_a_member_that_disconnects_while_it_waits_does_not_disturb_others(
    stage: Stage,
) -> None:
    one = Member(stage)
    await all_join(one)
    address = stage.address(await one.coordinator())
    async with stage.client.connected(address) as impatient:
        await hang_up(impatient)
    await all_join(one)
    assert await one.beat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


@played_in(reading, offset_metadata_max_bytes="100000")
async def test_a_name_that_no_record_can_hold_is_refused(stage: Stage) -> None:
    long = "g" * 40_000
    member = Member(stage)
    assert await member.commit(1, metadata=long) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    protocol = JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    for wrong, error in (
        (attrs.evolve(request, group_id=long), ErrorCode.INVALID_GROUP_ID),
        (attrs.evolve(request, group_instance_id=long), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(request, protocol_type=long), ErrorCode.INVALID_REQUEST),
        (
            attrs.evolve(request, protocols=[attrs.evolve(protocol, name=long)]),
            ErrorCode.INVALID_REQUEST,
        ),
    ):
        assert (await member.ask(wrong)).error_code == error
    committed = OffsetCommitRequest(
        group_id=long,
        topics=[
            OffsetCommitTopic(name="t", partitions=[OffsetCommitPartition(committed_offset=1)])
        ],
    )
    answer = await member.ask(committed)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID


async def hang_up(client: RpcClient) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    with contextlib.suppress(PeerUnavailableError):
        await client.call(request, version=3, timeout_ms=1_000)
