"""What a broker answers to requests that its ACLs refuse: errors, names, and nothing else.

`tests/interop/test_refusals.py` and `tests/interop/test_answers.py` ask Apache Kafka the same.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from replication.client import Admin
from replication.client.admin import Operation, ResourceType
from replication.cluster.cluster import Cluster
from replication.errors import ErrorCode, PeerUnavailableError
from replication.security.rules.acls import CLUSTER_NAME
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_transactions import DescribeTransactionsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.sync_group import SyncGroupRequest, SyncGroupResponse
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from storage.batch.records import Record, encode_batch
from tests.replication.broker.clients import Client
from tests.replication.server.test_acls import CLUSTER, allow, asking, fetch_of, governed, make

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OTHER_ID = b"0123456789abcdef"


@attrs.frozen
class Asking:
    """A client without rights, the broker it asks, and who may give it some."""

    alice: Client
    address: str
    cluster: Cluster
    admin: Admin

    async def ask(self, request: object, version: int | None = None) -> Any:
        return await self.alice.ask(self.address, request, version=version)

    def topic_id(self, name: str) -> bytes:
        return self.cluster.image.topics[name].topic_id


@asynccontextmanager
async def refused_by(**properties: str) -> AsyncIterator[Asking]:
    async with governed(properties=properties) as (cluster, admin):
        yield Asking(asking("alice", "a"), cluster.bootstrap_list[0], cluster, admin)


async def test_a_refused_fetch_has_no_high_watermark() -> None:
    async with refused_by() as there:
        asked = FetchPartition(fetch_offset=3, log_start_offset=3, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=there.topic_id("shut"), partitions=[asked])
        response = await there.ask(FetchRequest(session_epoch=-1, topics=[topic]), 18)
        (partition,) = response.responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (DENIED, -1)
        assert (partition.log_start_offset, partition.aborted_transactions) == (-1, [])


async def test_a_client_that_fetches_as_a_follower_is_refused_partition_by_partition() -> None:
    async with refused_by() as there:
        await make(there.cluster, there.admin, allow(Operation.READ, "open"))
        as_follower = fetch_of(there.topic_id("open"), there.topic_id("shut"), OTHER_ID, epoch=-1)
        as_follower.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
        response = await there.ask(as_follower, 17)
        assert response.error_code == ErrorCode.NONE
        errors = [each.partitions[0].error_code for each in response.responses]
        assert errors == [DENIED] * 3
        async with there.alice.connected(there.address) as alice:
            opening = fetch_of(there.topic_id("open"))
            opened = await alice.call(opening, version=17, timeout_ms=5000)
            assert opened.session_id, "as a consumer"
            going_on = fetch_of(session_id=opened.session_id, epoch=1)
            going_on.replica_state = as_follower.replica_state
            response = await alice.call(going_on, version=17, timeout_ms=5000)
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("enabled", "error"), [("true", DENIED), ("false", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
)
async def test_a_topic_that_would_not_be_created_is_unknown_and_not_refused(
    enabled: str, error: ErrorCode
) -> None:
    async with refused_by(**{"auto.create.topics.enable": enabled}) as there:
        await make(there.cluster, there.admin, allow(Operation.DESCRIBE, "absent"))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="absent")])
        (topic,) = (await there.ask(request, 12)).topics
        assert (topic.name, topic.error_code) == ("absent", error)


async def test_metadata_by_id_is_refused_and_does_not_tell_the_name() -> None:
    async with refused_by() as there:
        ids = [there.topic_id("shut"), OTHER_ID]
        topics = [MetadataRequestTopic(name=None, topic_id=each) for each in ids]
        response = await there.ask(MetadataRequest(topics=topics), 12)
        found = {each.topic_id: (each.error_code, each.name) for each in response.topics}
        assert found == {
            ids[0]: (DENIED, None),
            OTHER_ID: (ErrorCode.UNKNOWN_TOPIC_ID, None),
        }


async def test_a_deletion_by_id_hides_the_names_of_topics_that_may_not_be_seen() -> None:
    async with refused_by() as there:
        await make(there.cluster, there.admin, allow(Operation.DESCRIBE, "open"))
        ids = {there.topic_id(name): name for name in ("open", "shut")}
        states = [DeleteTopicState(name=None, topic_id=each) for each in ids]
        states += [DeleteTopicState(name=name) for name in ("open", "shut", "none")]
        await make(there.cluster, there.admin, allow(Operation.DESCRIBE, "none"))
        response = await there.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
        by_id = {each.topic_id: each for each in response.responses if each.topic_id in ids}
        named = {ids[key]: (each.error_code, each.name) for key, each in by_id.items()}
        assert named == {"open": (DENIED, "open"), "shut": (DENIED, None)}
        by_name = {
            each.name: each.error_code for each in response.responses if not any(each.topic_id)
        }
        assert by_name == {
            "open": DENIED,
            "shut": DENIED,
            "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_a_refused_offset_for_leader_epoch_does_not_echo_the_epoch() -> None:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=7)
    topics = [
        OffsetForLeaderTopic(topic=name, partitions=[attrs.evolve(partition)])
        for name in ("open", "shut")
    ]
    async with refused_by() as there:
        await make(there.cluster, there.admin, allow(Operation.DESCRIBE, "open"))
        # KafkaApis checks the right to describe even for a client that claims to be a follower.
        request = OffsetForLeaderEpochRequest(replica_id=1, topics=topics)
        response = await there.ask(request)
        found = {each.topic: each.partitions[0] for each in response.topics}
        assert found["open"].error_code == ErrorCode.NONE
        assert found["shut"].error_code == DENIED
        assert (found["shut"].leader_epoch, found["shut"].end_offset) == (-1, -1)


async def test_a_refused_sync_and_a_refused_creation_have_the_defaults() -> None:
    async with refused_by() as there:
        asked = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")
        refusal = SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert await there.ask(asked) == refusal
        topic = CreatableTopic(name="new", num_partitions=3, replication_factor=1)
        response = await there.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        (created,) = response.topics
        assert (created.error_code, created.num_partitions, created.replication_factor) == (
            *(DENIED, -1),
            -1,
        )


def produce_of(*names: str, transactional_id: str | None = None, **batch: Any) -> ProduceRequest:
    records = encode_batch([Record(timestamp=1, value=b"v")], **batch)
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=name, partition_data=list(data)) for name in names],
    )


def errors_of(response: Any) -> dict[str, int]:
    return {each.name: each.partition_responses[0].error_code for each in response.responses}


async def test_a_transactional_id_must_be_writable_where_records_are_transactional() -> None:
    transactional: dict[str, Any] = {
        "transactional": True,
        "producer_id": 1,
        "producer_epoch": 0,
        "base_sequence": 0,
    }
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    async with refused_by() as there:
        await make(there.cluster, there.admin, allow(Operation.WRITE, "open"))
        plain = await there.ask(produce_of("open", "shut", transactional_id="t"))
        assert errors_of(plain) == {"open": ErrorCode.NONE, "shut": DENIED}
        for transactional_id in ("t", None):
            asked = produce_of("open", "shut", transactional_id=transactional_id, **transactional)
            assert errors_of(await there.ask(asked)) == {"open": denied, "shut": denied}
        boss = asking("admin", "top")
        asked = produce_of("open", **transactional)
        asked.topic_data += produce_of("shut").topic_data
        response = await boss.ask(there.address, asked)
        assert errors_of(response) == {"open": denied, "shut": denied}, "the request as a whole"


@pytest.mark.parametrize("names", [("shut",), ("open", "shut")])
async def test_without_acks_a_refusal_ends_the_connection(names: tuple[str, ...]) -> None:
    async with refused_by() as there:
        await make(there.cluster, there.admin, allow(Operation.WRITE, "open"))
        async with there.alice.connected(there.address) as alice:
            asked = attrs.evolve(produce_of(*names), acks=0)
            with pytest.raises(PeerUnavailableError):
                await alice.call(asked, version=12, timeout_ms=5000)


async def test_the_right_to_alter_the_cluster_allows_ending_transactions() -> None:
    topic = WritableTxnMarkerTopic(name="open", partition_indexes=[0])
    marker = WritableTxnMarker(producer_id=9, producer_epoch=0, topics=[topic])
    asked = WriteTxnMarkersRequest(markers=[marker])
    async with refused_by() as there:
        denied = await there.ask(asked, 1)
        assert errors_of_markers(denied) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        right = allow(Operation.ALTER, CLUSTER_NAME, kind=CLUSTER)
        await make(there.cluster, there.admin, right)
        assert errors_of_markers(await there.ask(asked, 1)) == {ErrorCode.NONE}


def errors_of_markers(response: Any) -> set[int]:
    ((topic,),) = (each.topics for each in response.markers)
    return {each.error_code for each in topic.partitions}


async def test_a_transaction_is_described_without_the_topics_that_may_not_be_seen() -> None:
    async with refused_by() as there:
        boss = asking("admin", "top")
        await boss.ask(there.address, FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
        beginning = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        begun = await boss.ask(there.address, beginning)
        while begun.error_code != ErrorCode.NONE:  # the coordinator may still read its log
            begun = await boss.ask(there.address, beginning)
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("open", "shut")
            ],
        )
        await boss.ask(there.address, adding, version=3)
        describe = DescribeTransactionsRequest(transactional_ids=["t"])
        (refusal,) = (await there.ask(describe)).transaction_states
        assert refusal.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        rights = [
            allow(Operation.DESCRIBE, "t", kind=ResourceType.TRANSACTIONAL_ID),
            allow(Operation.DESCRIBE, "open"),
        ]
        await make(there.cluster, there.admin, *rights)
        (state,) = (await there.ask(describe)).transaction_states
        assert [each.topic for each in state.topics] == ["open"]
        (whole,) = (await boss.ask(there.address, describe)).transaction_states
        assert {each.topic for each in whole.topics} == {"open", "shut"}
