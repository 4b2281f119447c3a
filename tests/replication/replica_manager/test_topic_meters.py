"""What goes in and out of topics, and what is left of that when a broker leads them no more."""

from functools import partial

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import FetchInfo
from replication.replica_manager.bytes_in import metric
from replication.replica_manager.topic_meters import (
    BYTES_IN,
    BYTES_OUT,
    FAILED_PRODUCES,
    FETCHES,
    MESSAGES_IN,
    OF_ALL_TOPICS,
    PRODUCES,
    REPLICATION_BYTES_OUT,
)
from storage.types import TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    batch,
    consumer_params,
    follower_params,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import SECOND, TP, Node, beside

INFO = FetchInfo(0, log_start_offset=0)


def of_topic(node: Node, topic: str = "topic") -> dict[str, float]:
    return {
        name.name: value
        for name, value in node.metrics.snapshot()
        if name.type == "BrokerTopicMetrics" and dict(name.tags).get("topic") == topic
    }


def of_all(node: Node) -> dict[str, float]:
    """Return the counts that are not zero."""
    counts = {name: node.metrics.read(metric(name)) for name in OF_ALL_TOPICS}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.conformance("RM-14")
async def test_a_fetch_is_counted_once_however_long_it_waits(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.fetch(consumer_params(min_bytes=1, max_wait_ms=0), p0=INFO)
        assert of_topic(node) == of_all(node) == {FETCHES: 1}
        waiting = partial(node.fetch, consumer_params(min_bytes=1, max_wait_ms=1000), p0=INFO)
        async with beside(waiting) as fetched:
            assert not fetched.done
            assert of_topic(node) == of_all(node) == {FETCHES: 2}
        assert of_topic(node) == of_all(node) == {FETCHES: 2}


async def test_what_goes_in_and_out_is_counted(autojump_clock: MockClock) -> None:
    size = len(batch(3))
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(3)
        assert of_topic(node) == {PRODUCES: 1, BYTES_IN: size, MESSAGES_IN: 3}
        await node.fetch(consumer_params(), p0=INFO)
        await node.fetch(follower_params(), p0=INFO)
        assert of_topic(node) == {
            PRODUCES: 1,
            BYTES_IN: size,
            MESSAGES_IN: 3,
            FETCHES: 2,
            BYTES_OUT: size,
        }
        assert of_all(node) == of_topic(node) | {REPLICATION_BYTES_OUT: size}


async def test_a_failure_is_counted_where_it_is_not_the_clients(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(
            registration(isr=(LOCAL,)),
            registration(leader=REMOTE),
            configs={"min.insync.replicas": "2"},
        )
        refused = await node.produce(acks=-1)
        assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert of_topic(node) == {PRODUCES: 1, FAILED_PRODUCES: 1}
        assert (await node.produce(to=SECOND)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert of_topic(node) == {PRODUCES: 2, FAILED_PRODUCES: 1}


async def test_a_topic_that_is_not_here_has_no_numbers_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce(to=TopicPartition("made up", 0))
        assert of_topic(node, "made up") == {}
        await node.fetch(consumer_params(max_wait_ms=0), p7=INFO)
        assert of_topic(node) == {}
        assert of_all(node) == {PRODUCES: 1, FETCHES: 1}


@pytest.mark.conformance("RM-53")
async def test_who_leads_nothing_of_a_topic_drops_what_a_leader_counts(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(), registration())
        await node.produce()
        await node.produce(to=SECOND)
        await node.fetch(consumer_params(max_wait_ms=0), p0=INFO)
        theirs = registration(leader=REMOTE, leader_epoch=2, partition_epoch=2)
        await node.learn(registration(), theirs)
        assert of_topic(node)[PRODUCES] == 2
        await node.learn(theirs, theirs)
        assert of_topic(node) == {FETCHES: 1}
        assert of_all(node)[PRODUCES] == 2


@pytest.mark.conformance("RM-54")
async def test_who_followed_and_then_led_has_nothing_left_of_either(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE), registration(leader=REMOTE))
        node.manager.replicas.bytes_in.mark(node.manager.hosted.get(TP), 10)
        assert of_topic(node) == {}, "a follower counts for all topics together"
        ours = registration(leader_epoch=2, partition_epoch=2)
        await node.learn(ours, ours)
        await node.produce()
        assert of_topic(node).keys() == {PRODUCES, BYTES_IN, MESSAGES_IN}
        theirs = registration(leader=REMOTE, leader_epoch=3, partition_epoch=3)
        await node.learn(theirs, theirs)
        assert of_topic(node) == {}


async def test_of_a_topic_that_is_held_no_more_and_at_the_end_nothing_is_left(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.fetch(consumer_params(max_wait_ms=0), p0=INFO)
        await node.learn()
        assert of_topic(node) == {}
        await node.learn(registration(), topic_id=b"another topic id")
        await node.produce()
        assert of_topic(node)[PRODUCES] == 1
        await node.manager.shutdown()
        assert node.metrics.names() == []
