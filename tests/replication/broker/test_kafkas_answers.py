"""What a broker answers to requests that are odd, but not refused, as Apache Kafka answers them.

`tests/interop/test_answers.py` asks Apache Kafka most of them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from replication.errors import ErrorCode
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.list_offsets import (
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.list_transactions import ListTransactionsRequest
from replication.wire.offset_commit import OffsetCommitRequest, OffsetCommitTopic
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from scenarios.world.world import World
from tests.replication.broker.members import Member, all_join
from tests.replication.broker.stage import Stage, play, played, played_in, staged
from tests.replication.groups.test_groups import reading

FEW = {"offsets_topic_num_partitions": "3", "transaction_state_log_num_partitions": "3"}


def asked(request: object, *, version: int | None = None) -> Any:
    """Return what one broker with a topic t of two partitions answers."""
    found = []

    async def story(world: World) -> None:
        async with reading(world) as stage:
            await Member(stage).coordinator()
            found.append(await stage.client.ask(stage.address(1), request, version=version))

    play(story)
    return found[0]


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (9, -1)])
def test_markers_without_a_producer_are_not_written(producer_id: int, producer_epoch: int) -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])
    marker = WritableTxnMarker(
        producer_id=producer_id, producer_epoch=producer_epoch, topics=[topic]
    )
    response = asked(WriteTxnMarkersRequest(markers=[marker]))
    assert [
        (each.partition_index, each.error_code)
        for topic in response.markers[0].topics
        for each in topic.partitions
    ] == [(0, ErrorCode.UNKNOWN_SERVER_ERROR), (1, ErrorCode.UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize("epoch", [-2, -(2**31)])
@played_in(reading)
async def test_a_fetch_with_a_negative_leader_epoch_has_none(stage: Stage, epoch: int) -> None:
    produced = await stage.client.produce(stage.address(1), "t", b"v")
    assert produced.error_code == ErrorCode.NONE
    partition = FetchPartition(
        current_leader_epoch=epoch,
        last_fetched_epoch=epoch,
        fetch_offset=0,
        partition_max_bytes=1000,
    )
    topic_id = stage.cluster.image.topics["t"].topic_id
    request = FetchRequest(
        session_epoch=-1,
        max_bytes=1000,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    response = await stage.client.ask(stage.address(1), request, version=17)
    (answer,) = response.responses[0].partitions
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 1)
    assert answer.diverging_epoch.epoch == -1
    assert answer.records


@pytest.mark.parametrize("version", [1, 7, 9])
def test_offsets_of_a_topic_without_partitions_are_a_topic_without_partitions(
    version: int,
) -> None:
    topics = [
        OffsetFetchTopic(name="t", partition_indexes=[]),
        OffsetFetchTopic(name="u", partition_indexes=[0]),
        OffsetFetchTopic(name="u", partition_indexes=[0, 1]),
    ]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=topics)])
    response = asked(request, version=version)
    found = response.topics if version < 8 else response.groups[0].topics
    numbers = [[each.partition_index for each in topic.partitions] for topic in found]
    assert [topic.name for topic in found] == ["t", "u", "u"]
    assert numbers == [[], [0], [0, 1]]


@pytest.mark.parametrize(
    ("request_", "answered"),
    [
        pytest.param(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t")]), "topics", id="list"),
        pytest.param(
            OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=-1,
                topics=[OffsetCommitTopic(name="t")],
            ),
            "topics",
            id="commit",
        ),
        pytest.param(
            ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t")]),
            "responses",
            id="produce",
        ),
    ],
)
def test_other_requests_leave_out_a_topic_without_partitions(
    request_: object, answered: str
) -> None:
    assert getattr(asked(request_), answered) == []


def test_records_for_a_partition_that_is_not_there_are_not_looked_at() -> None:
    data = [PartitionProduceData(index=0, records=b"no records")]
    topics = [TopicProduceData(name=name, partition_data=data) for name in ("nope", "t")]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    found = {each.name: each.partition_responses[0].error_code for each in asked(request).responses}
    assert found["nope"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["t"] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_topic_can_have_a_name_that_is_not_valid_and_producers() -> None:
    request = DescribeProducersRequest(
        topics=[DescribeProducersTopic(name="a b", partition_indexes=[0])]
    )
    (topic,) = asked(request).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Groups.


@played_in(reading)
async def test_members_are_described_with_their_last_assignments_while_they_rebalance(
    stage: Stage,
) -> None:
    first, second = Member(stage), Member(stage)
    await all_join(first, second)
    before = {each.member_id: each.assignment for each in (first, second)}
    third = Member(stage)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(third.join)
        described = await first.described()
        while described.group_state == "Stable":
            await first.a_moment()
            described = await first.described()
        assert described.group_state == "PreparingRebalance"
        shown = {each.member_id: each for each in described.members}
        assert {key: shown[key].member_assignment for key in before} == before
        assert {each.member_metadata for each in described.members} == {b""}
        assert described.protocol_data == ""
        nursery.cancel_scope.cancel()


# Transactions.


@asynccontextmanager
async def begun(world: World) -> AsyncIterator[tuple[Stage, Any]]:
    """A cluster with a transactional id `x`, and the producer that it belongs to."""
    async with staged(world, brokers=1, **FEW) as stage:
        await stage.client.create_topic(stage.address(1), "t", replicas=1)
        while True:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
            answer = await stage.client.ask(stage.address(1), request)
            if answer.coordinators[0].error_code == ErrorCode.NONE:
                break
        initialised = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        while True:
            producer = await stage.client.ask(stage.address(1), initialised)
            if producer.error_code == ErrorCode.NONE:
                yield stage, producer
                return
            await stage.client.seams.clock.sleep(0.05)


@pytest.mark.parametrize("version", range(4))
@played
async def test_clients_add_no_internal_topic_to_a_transaction(world: World, version: int) -> None:
    async with begun(world) as (stage, producer):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[0])
                for name in ("__consumer_offsets", "__transaction_state", "t", "nope")
            ],
        )
        response = await stage.client.ask(stage.address(1), request, version=version)
        found = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in response.results_by_topic_v3_and_below
        }
        assert found == {
            "__consumer_offsets": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "__transaction_state": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "t": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


@pytest.mark.parametrize("version", range(4))
@played
async def test_partitions_added_to_a_transaction_are_answered_in_their_order(
    world: World, version: int
) -> None:
    asked = [f"t{each}" for each in range(8)]
    async with begun(world) as (stage, producer):
        for name in asked:
            await stage.client.create_topic(stage.address(1), name, replicas=1)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in asked
            ],
        )
        response = await stage.client.ask(stage.address(1), request, version=version)
        assert [topic.name for topic in response.results_by_topic_v3_and_below] == asked


@played
async def test_a_producer_epoch_below_none_is_an_epoch_that_nobody_has(world: World) -> None:
    async with begun(world) as (stage, producer):
        again = InitProducerIdRequest(
            transactional_id="x",
            transaction_timeout_ms=1000,
            producer_id=producer.producer_id,
            producer_epoch=-2,
        )
        response = await stage.client.ask(stage.address(1), again)
        assert response.error_code == ErrorCode.PRODUCER_FENCED
        without = attrs.evolve(again, producer_epoch=-1)
        response = await stage.client.ask(stage.address(1), without)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        for timeout_ms in (0, -1):
            of_no_time = InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=timeout_ms
            )
            response = await stage.client.ask(stage.address(1), of_no_time)
            assert response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(None, ["x"]), ("", ["x"]), ("x|y", ["x"]), ("[a-w]", []), (".*", ["x"]), ("xx", [])],
)
@played
async def test_transactions_are_listed_by_a_pattern_of_their_ids(
    world: World, pattern: str | None, found: list[str]
) -> None:
    async with begun(world) as (stage, _):
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        response = await stage.client.ask(stage.address(1), request)
        assert response.error_code == ErrorCode.NONE
        assert [each.transactional_id for each in response.transaction_states] == found


@played
async def test_a_pattern_that_is_none_is_refused(world: World) -> None:
    async with begun(world) as (stage, _):
        request = ListTransactionsRequest(transactional_id_pattern="(x")
        response = await stage.client.ask(stage.address(1), request)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert response.transaction_states == []


@pytest.mark.parametrize(
    ("timestamp", "version", "error"),
    [
        (EARLIEST_PENDING_UPLOAD, 10, ErrorCode.UNSUPPORTED_VERSION),
        (EARLIEST_PENDING_UPLOAD, 11, ErrorCode.NONE),
        (LATEST_TIERED, 10, ErrorCode.NONE),
        (-7, 11, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_nothing_is_in_tiered_storage_nor_on_its_way(
    timestamp: int, version: int, error: ErrorCode
) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    response = asked(ListOffsetsRequest(topics=topics, timeout_ms=1000), version=version)
    (answer,) = response.topics[0].partitions
    assert (answer.error_code, answer.offset) == (error, -1)
