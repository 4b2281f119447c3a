"""What is read and written in steps is what is read and written at once, with pauses in it."""

from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from replication.errors import ProtocolError
from replication.steps import STEP, Steps, T, at_once
from replication.wire.apis import Api
from replication.wire.codec import (
    FEW_ITEMS,
    decode,
    decode_in_steps,
    encode,
    encode_in_steps,
    encode_short,
)
from replication.wire.decoder_source import STEP_BYTES
from replication.wire.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from replication.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from replication.wire.frames import MAX_ITEMS
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic
from replication.wire.primitives import MAX_TAGS, uvarint
from replication.wire.schema import Kind, Part, fields_of
from tests.replication.wire.samples import EVERY_VERSION, parameters, sample


def joined(parts: Iterable[Part]) -> bytes:
    return b"".join(each for each in parts if isinstance(each, bytes))


def lengthened(message: Any, count: int) -> Any:
    """Return `message` with `count` items in each array that is not within another."""
    arrays = {
        field.name: getattr(message, field.name)[:1] * count
        for field in fields_of(message.__class__)
        if field.wire.kind is Kind.ARRAY
    }
    return attrs.evolve(message, **arrays)


def read_in_steps(message: type, body: memoryview, version: int, *, flexible: bool) -> Steps[Any]:
    return decode_in_steps(message, body, version=version, flexible=flexible, most_items=MAX_ITEMS)


def pauses(steps: Steps[T]) -> tuple[int, T]:
    """Return how often `steps` ask for a pause, and what they come to."""
    asked = 0
    while True:
        try:
            asked += next(steps) >= STEP
        except StopIteration as end:
            return asked, end.value


@pytest.mark.parametrize(("api", "message", "version"), parameters(EVERY_VERSION))
def test_a_message_is_the_same_in_steps(api: Api, message: type, version: int) -> None:
    flexible = api.is_flexible(version)
    for whole in (sample(message), lengthened(sample(message), STEP + 1)):
        body = joined(encode(whole, version=version, flexible=flexible))
        assert joined(at_once(encode_in_steps(whole, version=version, flexible=flexible))) == body
        read: object = decode(message, memoryview(body), version=version, flexible=flexible)
        steps = read_in_steps(message, memoryview(body), version, flexible=flexible)
        assert at_once(steps) == read


def test_a_message_of_few_items_is_written_without_steps() -> None:
    for count in (FEW_ITEMS, FEW_ITEMS + 1):
        topics = [FetchTopic(topic_id=bytes(16), partitions=[FetchPartition()] * (count - 1))]
        message = FetchRequest(topics=topics)
        short = encode_short(message, version=17, flexible=True)
        parts = at_once(encode_in_steps(message, version=17, flexible=True))
        assert short == (parts if count == FEW_ITEMS else None)


def test_pauses_come_by_the_bytes_read_and_by_the_items_written() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 20) for _ in range(5_000)])
    written, parts = pauses(encode_in_steps(message, version=8, flexible=False))
    assert written == 5_000 // STEP
    body = memoryview(joined(parts))
    read, again = pauses(read_in_steps(MetadataRequest, body, 8, flexible=False))
    # It pauses behind the item that crosses the line.
    assert len(body) // (STEP_BYTES + 22) <= read <= len(body) // STEP_BYTES
    assert again == message


def test_a_long_array_of_numbers_is_read_in_pieces() -> None:
    topic = DescribeProducersTopic(name="t", partition_indexes=list(range(10_000)))
    message = DescribeProducersRequest(topics=[topic])
    body = memoryview(joined(encode(message, version=0, flexible=True)))
    read, again = pauses(read_in_steps(DescribeProducersRequest, body, 0, flexible=True))
    assert read == 40_000 // STEP_BYTES
    assert again == message


def test_the_bytes_of_records_are_no_work() -> None:
    data = [PartitionData(records=bytes(STEP_BYTES)) for _ in range(20)]
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=data)])
    body = memoryview(joined(encode(message, version=17, flexible=True)))
    asked, again = pauses(read_in_steps(FetchResponse, body, 17, flexible=True))
    assert asked == 0
    assert again == message


def test_more_items_than_a_message_may_have_are_refused_before_they_are_read() -> None:
    body = memoryview(uvarint(MAX_ITEMS + 2) + bytes(2 * MAX_ITEMS + 10))
    with pytest.raises(ProtocolError, match="too many items"):
        at_once(read_in_steps(MetadataRequest, body, 9, flexible=True))


def test_a_section_with_more_tags_than_any_message_has_is_refused() -> None:
    most = uvarint(MAX_TAGS) + b"\x63\0" * MAX_TAGS
    more = uvarint(MAX_TAGS + 1) + b"\x63\0" * (MAX_TAGS + 1)
    decode(MetadataRequest, memoryview(b"\x01\0\0" + most), version=12, flexible=True)
    with pytest.raises(ProtocolError, match="101 tagged fields"):
        decode(MetadataRequest, memoryview(b"\x01\0\0" + more), version=12, flexible=True)
