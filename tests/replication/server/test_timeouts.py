"""Every timeout that a request may carry has an answer, and it is Apache Kafka's.

A broker on trio's own clock, which takes no negative time, 10 virtual ms away from its
controller: what is left of a short timeout is negative as soon as the controller has answered.
What Kafka answers was asked of 4.1.1 (`tests/interop/test_timeouts.py` asks it again).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest

from replication.cluster.cluster import open_cluster
from replication.errors import ErrorCode
from replication.net.clock import TrioClock
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest
from replication.wire.list_partition_reassignments import ListPartitionReassignmentsRequest
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from scenarios.world.world import World
from storage.batch.records import Record, encode_batch
from tests.replication.broker.clients import Client
from tests.replication.broker.controller_requests import (
    CONTROLLER_REQUESTS,
    LEAST,
    MOST,
    TIMEOUTS,
    Asked,
)
from tests.replication.broker.members import RETRIED
from tests.replication.broker.stage import QUICK, Stage, name_of, play

SECONDS_AWAY = 0.01


@asynccontextmanager
async def far_from_its_controller(world: World) -> AsyncIterator[Stage]:
    async with open_cluster(
        brokers=1,
        data_dir="/data",
        properties=QUICK
        | {
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        },
        host_of=name_of,
        make_seams=lambda node: attrs.evolve(world.node(name_of(node)), clock=TrioClock()),
    ) as cluster:
        stage = Stage(world, cluster, Client(world.node("client")))
        await stage.client.create_topic(stage.address(1), "t", replicas=1)
        await stage.leader("t")
        world.network.set_delay("b1", "controller", least=SECONDS_AWAY)
        yield stage


def in_a_cluster(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def played(world: World) -> None:
        async with far_from_its_controller(world) as stage:
            await story(stage)

    play(played)


@pytest.mark.parametrize("asked", CONTROLLER_REQUESTS, ids=lambda asked: asked.name)
def test_what_the_controller_decides_is_done_unless_the_time_is_up_at_once(asked: Asked) -> None:
    async def story(stage: Stage) -> None:
        for number, timeout_ms in enumerate(TIMEOUTS):
            topic = f"t{number}"
            if asked.needs_topic:
                await stage.client.create_topic(stage.address(1), topic, replicas=1)
            response = await stage.client.ask(
                stage.address(1), asked.request(topic, timeout_ms), version=asked.version
            )
            expected = asked.when_done if timeout_ms > 0 else {ErrorCode.REQUEST_TIMED_OUT}
            assert expected >= set(asked.errors(response)), timeout_ms

        def shown() -> bool:
            return all(
                asked.shows(stage.cluster.image, f"t{number}", done=timeout_ms > 0)
                for number, timeout_ms in enumerate(TIMEOUTS)
            )

        await stage.cluster.until(shown, what="what was done is in the metadata, and no more")

    in_a_cluster(story)


def test_reassignments_are_listed_whatever_the_timeout() -> None:
    async def story(stage: Stage) -> None:
        for timeout_ms in TIMEOUTS:
            request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms)
            response = await stage.client.ask(stage.address(1), request)
            assert response.error_code == ErrorCode.NONE

    in_a_cluster(story)


def test_a_fetch_waits_as_long_as_it_says_and_not_at_all_below_zero() -> None:
    async def story(stage: Stage) -> None:
        clock = stage.client.seams.clock
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=stage.cluster.image.topics["t"].topic_id, partitions=[asked])]
        for wait_ms in [LEAST, -1, 0, 1, 5, 10_000]:
            request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)
            began = clock.now()
            response = await stage.client.ask(stage.address(1), request)
            assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
            waited_ms = (clock.now() - began) * 1000
            assert max(wait_ms, 0) <= waited_ms < max(wait_ms, 0) + 100

    in_a_cluster(story)


def test_a_follower_ahead_of_our_metadata_may_name_any_wait() -> None:
    async def story(stage: Stage) -> None:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=b"not heard of yet", partitions=[asked])]
        for wait_ms in TIMEOUTS:
            request = FetchRequest(
                replica_state=ReplicaState(replica_id=2), max_wait_ms=wait_ms, topics=topics
            )
            response = await stage.client.ask(stage.address(1), request)
            answer = response.responses[0].partitions[0]
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    in_a_cluster(story)


def test_records_are_produced_and_deleted_whatever_the_timeout() -> None:
    async def story(stage: Stage) -> None:
        for timeout_ms in TIMEOUTS:
            batch = encode_batch([Record(offset=-1, timestamp=1, key=None, value=b"v")])
            data = PartitionProduceData(index=0, records=batch)
            produce = ProduceRequest(
                acks=-1,
                timeout_ms=timeout_ms,
                topic_data=[TopicProduceData(name="t", partition_data=[data])],
            )
            produced = await stage.client.ask(stage.address(1), produce)
            assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            everything = DeleteRecordsPartition(partition_index=0, offset=-1)
            delete = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="t", partitions=[everything])],
                timeout_ms=timeout_ms,
            )
            deleted = await stage.client.ask(stage.address(1), delete)
            assert deleted.topics[0].partitions[0].error_code == ErrorCode.NONE

    in_a_cluster(story)


def test_a_member_may_name_any_timeout_for_rebalances() -> None:
    async def story(stage: Stage) -> None:
        for number, timeout_ms in enumerate(TIMEOUTS):
            request = JoinGroupRequest(
                group_id=f"g{number}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=timeout_ms,
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name="range", metadata=b"")],
            )
            # From version 4 on it would be sent away for a member id first (KIP-394).
            joined = await settled(stage, request, version=3)
            assert joined == ErrorCode.NONE, timeout_ms

    in_a_cluster(story)


def test_a_transaction_needs_a_timeout_above_zero_and_below_the_broker_s_maximum() -> None:
    async def story(stage: Stage) -> None:
        expected = dict.fromkeys([LEAST, -1, 0, MOST], ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        for timeout_ms, error in (expected | dict.fromkeys([1, 5], ErrorCode.NONE)).items():
            request = InitProducerIdRequest(
                transactional_id=f"id{timeout_ms}", transaction_timeout_ms=timeout_ms
            )
            assert await settled(stage, request, version=4) == error, timeout_ms

    in_a_cluster(story)


async def settled(stage: Stage, request: object, *, version: int) -> ErrorCode:
    """Ask until the coordinator has taken up its work."""
    of_a_group = isinstance(request, JoinGroupRequest)
    find = FindCoordinatorRequest(coordinator_keys=["id"], key_type=0 if of_a_group else 1)
    while True:
        await stage.client.ask(stage.address(1), find)
        answer = await stage.client.ask(stage.address(1), request, version=version)
        if answer.error_code not in RETRIED:
            return ErrorCode.of(answer.error_code)
        await stage.client.seams.clock.sleep(0.05)
