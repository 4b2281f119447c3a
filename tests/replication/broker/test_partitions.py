"""Partitions grow, move, and get other leaders, in a cluster that is written meanwhile."""

from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.metadata.rules.image import PartitionRegistration
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from replication.wire.elect_leaders import PREFERRED, UNCLEAN, ElectionTopic, ElectLeadersRequest
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import Stage, played_in, staged

PARTITION = TopicPartition("t", 0)


def registration(stage: Stage, number: int = 0) -> PartitionRegistration:
    found = stage.cluster.partition("t", number)
    assert found is not None
    return found


async def ask(stage: Stage, request: Any) -> Any:
    """Return a broker that is up."""
    return await stage.client.ask(stage.address(min(stage.cluster.brokers)), request)


async def reassign(stage: Stage, *replicas: int) -> ErrorCode:
    """Nobody for a cancel."""
    asked = ReassignablePartition(partition_index=0, replicas=list(replicas) or None)
    response = await ask(
        stage,
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[asked])]
        ),
    )
    return ErrorCode(response.responses[0].partitions[0].error_code)


async def reassignments(stage: Stage) -> ListPartitionReassignmentsResponse:
    response = await ask(stage, ListPartitionReassignmentsRequest(topics=None))
    assert isinstance(response, ListPartitionReassignmentsResponse)
    return response


async def elect(stage: Stage, kind: int) -> ErrorCode:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[ElectionTopic(topic="t", partitions=[0])]
    )
    response = await ask(stage, request)
    return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)


def hosts(stage: Stage) -> set[int]:
    """Who has a log of the partition, open or not."""
    return {
        broker_id
        for broker_id, broker in stage.cluster.brokers.items()
        if broker.logs.get(PARTITION) is not None
    }


@played_in(staged)
async def test_a_topic_grows_and_what_is_new_is_written_and_read(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)],
        timeout_ms=10_000,
    )
    response = await stage.client.ask(stage.address(1), request)
    assert response.results[0].error_code == ErrorCode.NONE
    # The broker that was asked knows of them when it answers.
    metadata = await stage.client.metadata(stage.address(1), "t")
    assert [each.partition_index for each in metadata.topics[0].partitions] == [0, 1, 2]
    leader = stage.address(registration(stage, 2).leader)
    await stage.cluster.until(
        lambda: all(
            each.metadata.image.partition(TopicPartition("t", 2)) is not None
            for each in stage.cluster.brokers.values()
        )
    )
    answer = await stage.client.produce(leader, "t", b"new", partition=2)
    assert answer.error_code == ErrorCode.NONE
    assert await stage.client.read_all(leader, topic_id, partition=2) == [b"new"]


@played_in(staged, brokers=4)
async def test_a_partition_moves_to_other_brokers_with_all_that_it_holds(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t", replicas=1)
    old = registration(stage).leader
    first, second, _ = sorted({1, 2, 3, 4} - {old})
    await stage.leader("t")
    await stage.client.produce(stage.address(old), "t", b"a", b"b")
    assert await reassign(stage, first, second) is ErrorCode.NONE
    await stage.cluster.until(lambda: registration(stage).replicas == (first, second))
    then = registration(stage)
    assert (then.adding, set(then.isr)) == ((), {first, second})
    assert then.leader in (first, second)
    assert (await reassignments(stage)).topics == []
    await stage.cluster.until(lambda: hosts(stage) == {first, second})
    leader = stage.address(then.leader)
    answer = await stage.client.produce(leader, "t", b"c")
    assert answer.error_code == ErrorCode.NONE
    assert await stage.client.read_all(leader, topic_id) == [b"a", b"b", b"c"]


@played_in(staged, brokers=4)
async def test_a_reassignment_waits_for_who_is_away_is_listed_and_is_cancelled(
    stage: Stage,
) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=2)
    before = registration(stage)
    away = min({1, 2, 3, 4} - set(before.replicas))
    await stage.leader("t")
    await stage.cluster.kill_broker(away)
    assert await reassign(stage, before.leader, away) is ErrorCode.NONE
    await stage.cluster.clock.sleep(20)
    (topic,) = (await reassignments(stage)).topics
    (moving,) = topic.partitions
    assert moving.adding_replicas == [away]
    assert moving.removing_replicas == sorted(set(before.replicas) - {before.leader})
    assert await reassign(stage) is ErrorCode.NONE
    await stage.cluster.until(lambda: not registration(stage).adding)
    assert set(registration(stage).replicas) == set(before.replicas)
    assert (await reassignments(stage)).topics == []
    assert await reassign(stage) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    # It comes back, and finds that the partition is none of its business.
    await stage.cluster.start_broker(away)
    assert away not in hosts(stage)


@played_in(staged)
async def test_the_preferred_leader_is_elected_when_an_operator_asks(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    preferred = registration(stage).replicas[0]
    assert await elect(stage, PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    await stage.cluster.stop_broker(preferred)
    await stage.leader("t", other_than=preferred)
    assert await elect(stage, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    await stage.cluster.start_broker(preferred)
    await stage.until_in_sync("t", 3)
    assert registration(stage).leader != preferred
    assert await elect(stage, PREFERRED) is ErrorCode.NONE
    await stage.cluster.until(lambda: registration(stage).leader == preferred)


def test_preferred_leaders_lead_again_after_a_while_unless_that_is_turned_off() -> None:
    async def story(world: World) -> None:
        balances = world.seed == 1
        async with staged(
            world,
            auto_leader_rebalance_enable=str(balances).lower(),
            leader_imbalance_check_interval_seconds="20",
        ) as stage:
            await stage.client.create_topic(stage.address(1), "t")
            preferred = registration(stage).replicas[0]
            await stage.cluster.stop_broker(preferred)
            await stage.cluster.start_broker(preferred)
            await stage.until_in_sync("t", 3)
            assert registration(stage).leader != preferred
            await stage.cluster.clock.sleep(21)
            assert (registration(stage).leader == preferred) == balances

    World(seed=1).run(story)
    World(seed=2).run(story)


@played_in(staged)
async def test_an_operator_gives_up_what_only_the_dead_have(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t", replicas=2)
    leader = registration(stage).leader
    (other,) = set(registration(stage).replicas) - {leader}
    await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"on both")
    await stage.cluster.kill_broker(other)
    await stage.until_in_sync("t", 1)
    await stage.client.produce(stage.address(leader), "t", b"on one")
    await stage.cluster.kill_broker(leader)
    await stage.cluster.until(lambda: stage.cluster.leader("t", 0) is None)
    await stage.cluster.start_broker(other)
    assert await elect(stage, UNCLEAN) is ErrorCode.NONE
    assert await stage.leader("t") == other
    await stage.cluster.start_broker(leader)
    await stage.until_in_sync("t", 2)
    values = await stage.client.read_all(stage.address(other), topic_id)
    assert values == [b"on both"]


@played_in(staged)
async def test_a_topic_made_anew_while_a_replica_was_away_is_not_mixed_with_the_old_one(
    stage: Stage,
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"old", b"old too")
    away = next(each for each in (2, 3) if each != leader)
    await stage.cluster.kill_broker(away)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    await stage.client.ask(stage.address(1), request)
    while stage.cluster.image.is_alive(away):
        await stage.cluster.clock.sleep(0.5)
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.cluster.until(lambda: len(hosts(stage)) == 2)
    await stage.client.produce(stage.address(leader), "t", b"new")
    await stage.cluster.start_broker(away)
    await stage.until_in_sync("t", 3)
    hosted = stage.cluster.brokers[away].logs.get(PARTITION)
    assert hosted is not None
    assert hosted.topic_id == topic_id
    await stage.cluster.kill_broker(leader)
    successor = await stage.leader("t", other_than=leader)
    values = await stage.client.read_all(stage.address(successor), topic_id)
    assert values == [b"new"]


# DescribeTopicPartitions.


async def describe(
    stage: Stage, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response = await ask(stage, request)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def named(response: DescribeTopicPartitionsResponse) -> dict[str | None, list[int]]:
    return {
        topic.name: [each.partition_index for each in topic.partitions] for topic in response.topics
    }


@played_in(staged)
async def test_partitions_are_described_page_by_page(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "a", partitions=3)
    await stage.client.create_topic(stage.address(1), "b", partitions=2)
    everything = await describe(stage)
    assert named(everything) == {"a": [0, 1, 2], "b": [0, 1]}
    assert everything.next_cursor is None
    pages, cursor = [], None
    while True:
        page = await describe(stage, limit=2, cursor=cursor)
        pages.append(named(page))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [{"a": [0, 1]}, {"a": [2], "b": [0]}, {"b": [1]}]
    exactly = await describe(stage, limit=3)
    assert exactly.next_cursor == Cursor(topic_name="b", partition_index=0)
    some = await describe(stage, "b", "none", "no topic")
    assert [(each.name, ErrorCode(each.error_code).name) for each in some.topics] == [
        ("b", "NONE"),
        ("no topic", "INVALID_TOPIC_EXCEPTION"),
        ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


@pytest.mark.parametrize(
    ("names", "cursor"),
    [
        (["a"], Cursor(topic_name="b", partition_index=0)),
        (["a"], Cursor(topic_name="a", partition_index=-1)),
    ],
    ids=["of another topic", "of no partition"],
)
@played_in(staged, brokers=1)
async def test_a_page_that_begins_nowhere_is_refused(
    stage: Stage, names: list[str], cursor: Cursor
) -> None:
    await stage.client.create_topic(stage.address(1), "a", replicas=1)
    response = await describe(stage, *names, cursor=cursor)
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]


@played_in(staged, min_insync_replicas="2")
async def test_who_is_eligible_is_described(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=2)
    leader = registration(stage).leader
    (other,) = set(registration(stage).replicas) - {leader}
    await stage.cluster.stop_broker(other)
    await stage.until_in_sync("t", 1)
    (partition,) = (await describe(stage, "t")).topics[0].partitions
    assert partition.isr_nodes == [leader]
    assert partition.eligible_leader_replicas == [other]
    assert partition.last_known_elr == []
    assert partition.offline_replicas == [other]
