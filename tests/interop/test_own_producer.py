"""Our producer, and our consumer without a group, against Apache Kafka's broker."""

import pytest

from replication.client.consumer import Consumer
from replication.client.errors import ProducerFencedError
from storage.batch.compression import Codec
from storage.batch.record_batch import BatchHeader, walk
from storage.types import Offset, TopicPartition
from tests.clients.sample import CODECS, in_thread
from tests.interop import tools
from tests.interop.kafka import Kafka
from tests.interop.own_clients import consumer_of, make_topic, producer_of, read_all

pytestmark = pytest.mark.interop

LONG_AGO = 1_600_000_000_000


def batches(kafka: Kafka, directory: str) -> list[BatchHeader]:
    """Return the batch headers in the first segment of a partition of Kafka's."""
    segment = kafka.log_dirs[1] / directory / "00000000000000000000.log"
    return [header for _, header in walk(segment.read_bytes())]


@pytest.mark.parametrize("codec", CODECS)
async def test_records_come_back_as_they_were_sent(kafka: Kafka, codec: str) -> None:
    topic = f"codec-{codec}"
    await make_topic(kafka, topic, partitions=2)
    headers = (("one", b"1"), ("one", None), ("empty", b""))
    async with producer_of(kafka, compression_type=codec, linger_ms=5) as producer:
        for number in range(200):
            await producer.send_soon(
                topic,
                None if number % 50 == 49 else b"value %d " % number * 10,
                None if number % 4 == 0 else b"key %d" % number,
                partition=number % 2,
                timestamp_ms=LONG_AGO + number,
                headers=headers if number % 5 == 0 else (),
            )
    read = sorted(await read_all(kafka, topic, 200, partitions=2), key=lambda each: each.timestamp)
    for number, record in enumerate(read):
        assert (record.partition, record.offset) == (number % 2, number // 2)
        assert record.timestamp == LONG_AGO + number
        assert record.value == (None if number % 50 == 49 else b"value %d " % number * 10)
        assert record.key == (None if number % 4 == 0 else b"key %d" % number)
        assert record.headers == (headers if number % 5 == 0 else ())
    assert {each.codec for each in batches(kafka, f"{topic}-0")} == {Codec[codec.upper()]}


async def test_kafkas_consumer_reads_what_our_producer_sent(kafka: Kafka) -> None:
    await make_topic(kafka, "ours")
    async with producer_of(kafka, compression_type="zstd") as producer:
        await producer.send("ours", b"v", b"k", timestamp_ms=7, headers=[("h", b"1")])
        await producer.send("ours", None, b"k", timestamp_ms=8)
    shown = ["key", "timestamp", "headers", "offset"]
    wanted = [f"--formatter-property=print.{each}=true" for each in shown]
    reading = ["--topic", "ours", "--from-beginning", "--max-messages", "2", *wanted]
    said = await in_thread(lambda: kafka.run_tool(tools.CONSOLE_CONSUMER, *reading))
    assert said.splitlines() == [
        "CreateTime:7\tOffset:0\th:1\tk\tv",
        "CreateTime:8\tOffset:1\tNO_HEADERS\tk\tnull",
    ]


async def test_each_transaction_has_an_epoch_of_its_own(kafka: Kafka) -> None:
    """KIP-890: Kafka 4 has transaction.version 2, and our producer takes it up."""
    await make_topic(kafka, "epochs")
    async with producer_of(kafka, transactional_id="bumping") as producer:
        for _ in range(3):
            async with producer.transaction():
                await producer.send("epochs", b"x")
    data = [each for each in batches(kafka, "epochs-0") if not each.is_control]
    first = data[0].producer_epoch
    assert [each.producer_epoch for each in data] == [first, first + 1, first + 2]


async def committed_offset(consumer: Consumer, partition: TopicPartition) -> Offset | None:
    committed = await consumer.committed(partition)
    return None if committed is None else committed.offset


async def test_offsets_are_committed_with_a_transaction_or_not_at_all(kafka: Kafka) -> None:
    await make_topic(kafka, "source")
    await make_topic(kafka, "copy")
    partition = TopicPartition("source", 0)
    async with producer_of(kafka, transactional_id="copier") as producer:
        async with producer.transaction():
            for number in range(10):
                await producer.send("source", b"%d" % number)
        async with consumer_of(kafka, "source", group_id="copiers") as consumer:
            first = await consumer.getone()
            async with producer.transaction():
                await producer.send("copy", first.value)
                await producer.send_offsets_to_transaction(
                    {partition: 1}, consumer.group_metadata()
                )
            assert await committed_offset(consumer, partition) == 1
            producer.begin_transaction()
            await producer.send("copy", b"never")
            await producer.send_offsets_to_transaction({partition: 9}, consumer.group_metadata())
            await producer.abort_transaction()
            assert await committed_offset(consumer, partition) == 1
    (copied,) = await read_all(kafka, "copy", 1, isolation_level="read_committed")
    assert copied.value == b"0"


async def test_the_second_with_a_transactional_id_fences_the_first(kafka: Kafka) -> None:
    await make_topic(kafka, "fenced")
    async with producer_of(kafka, transactional_id="one place") as first:
        first.begin_transaction()
        await first.send("fenced", b"1")
        async with producer_of(kafka, transactional_id="one place") as second:
            async with second.transaction():
                await second.send("fenced", b"2")
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
    (record,) = await read_all(kafka, "fenced", 1, isolation_level="read_committed")
    assert record.value == b"2"
