"""The same requests to Apache Kafka and to a broker of ours, and the answers compared."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import attrs
import pytest
import trio

from replication.client.admin import Acl, Operation, ResourceType
from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.apis import ApiKey
from replication.wire.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from replication.wire.offset_commit import OffsetCommitRequest, OffsetCommitTopic
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.compression import Codec, compress
from storage.batch.records import Record, encode_batch
from tests.interop.kafka import Kafka
from tests.interop.twins import Side, make_topics, strict_kafka, twins
from tests.replication.server.test_acls import allow
from tests.replication.wire.full_requests import TOPIC, full_request
from tests.storage.batch.test_sound_records import SOUND, UNSOUND, record
from tests.storage.logs import claiming

pytestmark = [pytest.mark.interop, pytest.mark.slow]

GROUP, TRANSACTION = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
RECORDS: Final = encode_batch([Record(timestamp=5, value=b"v")])
TO_SEE = (
    allow(Operation.DESCRIBE, TOPIC),
    allow(Operation.DESCRIBE, "g", kind=GROUP),
    allow(Operation.DESCRIBE, "t", kind=TRANSACTION),
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with strict_kafka(tmp_path_factory.mktemp("strict-kafka")) as running:
        trio.run(make_topics, running, RECORDS)
        yield running


def about_shut(key: ApiKey, version: int, side: Side) -> object:
    return full_request(key, version, side.topic_id(TOPIC))


@pytest.mark.parametrize("rights", [(), TO_SEE], ids=["none", "to see"])
async def test_every_api_refuses_as_kafka_does(kafka: Kafka, rights: tuple[Acl, ...]) -> None:
    different = {}
    async with twins(kafka, *rights) as both:
        for key, version in both.every_api():
            theirs, ours = await both.ask(partial(about_shut, key, version), version)
            if theirs != ours:
                different[key.name, version] = (theirs, ours)
    assert different == {}, next(iter(different.items()))


def fetching(epoch: int) -> Callable[[Side], object]:
    """Return a fetch with a leader epoch, and the same as that of the last record fetched."""

    def request(side: Side) -> FetchRequest:
        partition = FetchPartition(
            current_leader_epoch=epoch,
            last_fetched_epoch=epoch,
            fetch_offset=0,
            partition_max_bytes=1000,
        )
        topic = FetchTopic(topic="open", topic_id=side.topic_id("open"), partitions=[partition])
        return FetchRequest(session_epoch=-1, max_bytes=1000, topics=[topic])

    return request


def produced(topic: str, *records: bytes | None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=each) for each in records]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)


def offsets_of(version: int) -> OffsetFetchRequest:
    topics = [
        OffsetFetchTopic(name="open", partition_indexes=[]),
        OffsetFetchTopic(name="shut", partition_indexes=[0]),
        OffsetFetchTopic(name="shut", partition_indexes=[0, 1]),
    ]
    if version < 8:
        return OffsetFetchRequest(group_id="g", topics=topics)
    return OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=topics)])


def added(*topics: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics],
    )


def initialised(timeout_ms: int, _: Side) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)


ODD: Final[dict[str, tuple[Callable[[Side], object], Iterable[int]]]] = {
    "leader epoch -2": (fetching(-2), (9, 12, 17)),
    "leader epoch -1": (fetching(-1), (9, 12, 17)),
    "leader epoch 99": (fetching(99), (9, 12, 17)),
    "offsets of no partitions": (lambda _: offsets_of(7), (1, 5, 7)),
    "offsets of no partitions, by group": (lambda _: offsets_of(9), (8, 9)),
    "list no partitions": (
        lambda _: ListOffsetsRequest(topics=[ListOffsetsTopic(name="open")]),
        (1, 9),
    ),
    "commit no partitions": (
        lambda _: OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, topics=[OffsetCommitTopic(name="open")]
        ),
        (2, 9),
    ),
    "produce no partitions": (lambda _: produced("open"), (3, 12)),
    "produce garbage where nothing is": (lambda _: produced("nope", b"garbage"), (3, 12)),
    "add internal topics": (
        lambda _: added("__consumer_offsets", "__transaction_state", "open", "nope"),
        range(4),
    ),
    "producers of no valid topic": (
        lambda _: DescribeProducersRequest(
            topics=[
                DescribeProducersTopic(name=name, partition_indexes=[0]) for name in ("a b", "nope")
            ]
        ),
        (0,),
    ),
    "a transaction of no time": (partial(initialised, 0), (0, 3, 5)),
    "a transaction of less": (partial(initialised, -1), (0, 3, 5)),
    "a transaction of too long": (partial(initialised, 2**31 - 1), (0, 3, 5)),
}


async def test_odd_requests_are_answered_as_kafka_does(kafka: Kafka) -> None:
    different = {}
    async with twins(kafka) as both:
        for side in (both.kafka, both.ours):
            await coordinated(side)
        await both.ours.ask(produced("open", RECORDS), 9, as_boss=True)
        for name, (request, versions) in ODD.items():
            for version in versions:
                theirs, ours = await both.ask(request, version, as_boss=True)
                if theirs != ours:
                    different[name, version] = (theirs, ours)
    assert different == {}, next(iter(different.items()))


async def coordinated(side: Side) -> None:
    """Wait until there are coordinators of the group and of the transactional ids."""
    for key_type, key in ((0, "g"), (1, "t"), (1, "x")):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while True:
            (found,) = (await side.ask(request, 4, as_boss=True))["coordinators"]
            if found["error_code"] == ErrorCode.NONE:
                break
            await trio.sleep(0.1)  # a real broker makes the topic first


# What Apache Kafka does not look at, or stumbles over: (its error, ours).
LENIENT = (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
STUMBLES = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)
DEPARTURES: Final = {
    ("a record that is too short", Codec.LZ4): LENIENT,
    ("a record that is too long", Codec.LZ4): LENIENT,
    ("offsets that do not count up", Codec.LZ4): STUMBLES,
}


def _the_same(request: object, _: Side) -> object:
    return request


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_records_are_taken_and_refused_as_kafka_does(kafka: Kafka, codec: Codec) -> None:
    sent = {name: (record(0, **parts), 1) for name, parts in (UNSOUND | SOUND).items()}  # type: ignore[arg-type] # parts of it
    sent["offsets that do not count up"] = (record(0) + record(0), 2)
    sent["records of a batch and bytes"] = (record(0) + b"zz", 1)
    different = {}
    async with twins(kafka) as both:
        for name, (records, count) in sent.items():
            plain = records if codec is Codec.NONE else compress(codec, records)
            request = produced("open", bytes(claiming(count, plain, codec)))
            answers = await both.ask(partial(_the_same, request), 12, as_boss=True)
            errors = tuple(
                each["responses"][0]["partition_responses"][0]["error_code"] for each in answers
            )
            if errors != DEPARTURES.get((name, codec), (errors[0], errors[0])):
                different[name] = errors
    assert different == {}


async def test_null_records_are_answered_by_us_alone(kafka: Kafka) -> None:
    """KafkaApis counts the bytes of what is null, and nobody hears of it."""
    async with twins(kafka) as both:
        request = produced("open", None)
        response = await both.ours.ask(request, 12, as_boss=True)
        (answer,) = response["responses"][0]["partition_responses"]
        assert answer["error_code"] == ErrorCode.INVALID_RECORD
        impatient = attrs.evolve(both.kafka.boss, timeout_ms=3000)
        with pytest.raises(PeerUnavailableError, match="did not answer"):
            await impatient.ask(both.kafka.boss_address, request, version=12)
