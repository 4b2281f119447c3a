"""Produce: what is refused before anything is appended, and where to ask instead."""

import pytest

from replication.cluster.cluster import Cluster, open_cluster
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net import production_seams
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.batch.compression import Codec
from storage.batch.record_batch import computed_crc
from storage.batch.records import Record, encode_batch
from storage.types import TopicPartition
from tests.replication.broker.clients import Client


def batch(*values: bytes, base_offset: int = 0) -> bytearray:
    records = [Record(offset=-1, timestamp=1, key=None, value=value) for value in values]
    return bytearray(encode_batch(records, base_offset=base_offset))


def with_bad_crc() -> bytearray:
    bad = batch(b"a record")
    bad[-1] ^= 0xFF
    return bad


def with_two_batches() -> bytearray:
    return batch(b"one") + batch(b"two")


def with_old_magic() -> bytearray:
    old = batch(b"a record")
    old[16] = 1
    return old


def with_codec(codec: int) -> bytearray:
    claiming = batch(b"a record")
    claiming[22] = codec
    claiming[17:21] = computed_crc(memoryview(claiming)).to_bytes(4, "big")
    return claiming


def transactional(producer_id: int = 9, *, is_transactional: bool = True) -> bytearray:
    records = [Record(offset=-1, timestamp=1, key=None, value=b"never committed")]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=is_transactional,
        )
    )


async def produce(
    client: Client, address: str, records: bytes | bytearray | None, *, partition: int = 0
) -> PartitionProduceResponse:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )
    response = await client.ask(address, request)
    answer = response.responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


async def led_topic(cluster: Cluster, client: Client) -> str:
    """The address of the leader of a new topic's one partition."""
    await client.create_topic(cluster.bootstrap_list[0], "t", max_message_bytes="1000")
    await cluster.until(
        lambda: all(each.replica_manager.hosted.describe() for each in cluster.brokers.values()),
        what="every broker holds its replica",
    )
    leader = cluster.leader("t", 0)
    assert leader is not None
    return cluster.bootstrap_list[leader - 1]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(with_two_batches(), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(with_old_magic(), ErrorCode.INVALID_RECORD, id="an old format"),
        pytest.param(batch(b"cut")[:-4], ErrorCode.INVALID_RECORD, id="a batch cut short"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="nothing"),
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(
            with_codec(5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="a codec without a number"
        ),
        pytest.param(with_codec(Codec.GZIP), ErrorCode.INVALID_RECORD, id="no gzip"),
        pytest.param(
            transactional(),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="a transaction of nobody",
        ),
        pytest.param(b"\xff" * 100, ErrorCode.CORRUPT_MESSAGE, id="garbage"),
        pytest.param(bytes(61), ErrorCode.CORRUPT_MESSAGE, id="a batch of length 0"),
        pytest.param(b"\0\0\0\0\0\0\0\0\0", ErrorCode.INVALID_RECORD, id="half a prefix"),
    ],
)
async def test_a_batch_that_must_not_be_appended_is_refused_and_no_log_is_touched(
    records: bytearray | None, error: ErrorCode
) -> None:
    async with open_cluster(brokers=3) as cluster:
        client = Client(production_seams())
        leader = await led_topic(cluster, client)
        answer = await produce(client, leader, records)
        assert ErrorCode.of(answer.error_code) is error
        assert answer.base_offset == -1
        for broker in cluster.brokers.values():
            log = broker.logs.get(TopicPartition("t", 0))
            assert log is not None
            assert (log.log_end_offset, log.size) == (0, 0)
        # And the next one, which is sound, gets the first offset.
        assert (await produce(client, leader, batch(b"sound"))).base_offset == 0


@pytest.mark.conformance("RM-103", "RM-107")
async def test_a_transaction_that_no_coordinator_knows_is_not_opened() -> None:
    async with open_cluster(brokers=1) as cluster:
        client = Client(production_seams())
        (address,) = cluster.bootstrap_list
        await client.create_topic(address, "t", partitions=2, replicas=1)
        await cluster.until(
            lambda: len(cluster.brokers[1].replica_manager.hosted.describe()) >= 2,
            what="the broker leads its partitions",
        )

        async def errors(*batches: bytearray) -> list[ErrorCode]:
            request = ProduceRequest(
                transactional_id="of nobody",
                acks=-1,
                timeout_ms=5000,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            PartitionProduceData(index=number, records=each)
                            for number, each in enumerate(batches)
                        ],
                    )
                ],
            )
            (topic,) = (await client.ask(address, request)).responses
            return [ErrorCode.of(each.error_code) for each in topic.partition_responses]

        unknown = [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert await errors(transactional(8), transactional(9)) == unknown, "of two producers"
        # There is no `__transaction_state` yet; nobody can be asked.
        opening = await errors(transactional(), transactional(is_transactional=False))
        assert opening == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]


async def test_brokers_tell_the_version_of_transactions_that_the_cluster_has() -> None:
    properties = {"understudy.transaction.version": "1"}
    async with open_cluster(brokers=1, properties=properties) as cluster:
        asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        answer = await Client(production_seams()).ask(cluster.bootstrap_list[0], asked)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels["transaction.version"] == 1


async def test_a_partition_that_is_not_there_is_unknown_and_one_led_elsewhere_says_where() -> None:
    async with open_cluster(brokers=3) as cluster:
        client = Client(production_seams())
        leader = await led_topic(cluster, client)
        unknown = await produce(client, leader, batch(b"x"), partition=99)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        other = next(each for each in cluster.bootstrap_list if each != leader)
        moved = await produce(client, other, batch(b"x"))
        assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert moved.current_leader.leader_id == cluster.leader("t", 0)
        assert moved.current_leader.leader_epoch == 0


async def test_a_produce_without_acks_that_fails_can_only_hang_up() -> None:
    async with open_cluster(brokers=3) as cluster:
        client = Client(production_seams(), timeout_ms=2000)
        leader = await led_topic(cluster, client)
        data = PartitionProduceData(index=0, records=with_bad_crc())
        request = ProduceRequest(
            acks=0,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        with pytest.raises(PeerUnavailableError, match="closed the connection"):
            await client.ask(leader, request)


@pytest.mark.parametrize(
    ("records", "log_start_offset"),
    [
        pytest.param(with_bad_crc(), -1, id="a CRC that does not match"),
        pytest.param(batch(b"x" * 2000), -1, id="too large"),
        pytest.param(with_codec(Codec.GZIP), 0, id="no gzip"),
    ],
)
async def test_the_log_start_is_told_where_kafka_tells_it(
    records: bytearray, log_start_offset: int
) -> None:
    async with open_cluster(brokers=3) as cluster:
        client = Client(production_seams())
        answer = await produce(client, await led_topic(cluster, client), records)
        assert answer.error_code != ErrorCode.NONE
        assert answer.log_start_offset == log_start_offset
