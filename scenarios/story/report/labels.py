"""The contents of a message, in the few words that fit beside an arrow.

    t-0 from 5            a follower or a consumer fetches at offset 5
    t-0 3-4, HW 5         offsets 3 to 4 come, and the leader's high watermark
    t-0 diverges: e0@3    the follower's last epoch ended at 3 on the leader (KIP-595)
    t-0 acks=all          records are produced
    t-0 at 7              they were appended at 7

A message without news (an empty fetch, a heartbeat) has no label, and the page hides it at first.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch

from replication.errors import ErrorCode
from replication.wire.alter_partition import (
    AlterPartitionData as ProposedIsr,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from replication.wire.broker_registration import BrokerRegistrationRequest
from replication.wire.fetch import (
    NO_DIVERGENCE,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from replication.wire.produce import ProduceRequest, ProduceResponse
from storage.batch.record_batch import walk
from storage.types import Buffer, TopicId

Names = Mapping[TopicId, str]


@singledispatch
def label(message: object, names: Names) -> str:
    """Return the label of a message; `names` maps the topic ids of the wire to names (KIP-516)."""
    del names
    error = getattr(message, "error_code", ErrorCode.NONE)
    return ErrorCode.of(error).name if error else ""


@label.register
def _(message: FetchRequest, names: Names) -> str:
    return ", ".join(
        f"{_called(topic, names)}-{each.partition} from {each.fetch_offset}"
        for topic in message.topics
        for each in topic.partitions
    )


@label.register
def _(message: FetchResponse, names: Names) -> str:
    answers = (
        _fetched(f"{_called(topic, names)}-{each.partition_index}", each)
        for topic in message.responses
        for each in topic.partitions
    )
    return _sentence(message.error_code, answers)


def _called(topic: FetchTopic | FetchableTopicResponse, names: Names) -> str:
    return topic.topic or names.get(topic.topic_id, "?")


def _fetched(partition: str, data: PartitionData) -> str:
    if data.error_code:
        return f"{partition} {ErrorCode.of(data.error_code).name}"
    if data.diverging_epoch != NO_DIVERGENCE:
        return (
            f"{partition} diverges: e{data.diverging_epoch.epoch}@{data.diverging_epoch.end_offset}"
        )
    records = data.records
    assert isinstance(records, Buffer | None), "what was received is in memory"
    headers = [header for _, header in walk(records or b"")]
    held = f"{headers[0].base_offset}-{headers[-1].last_offset}, " if headers else ""
    return f"{partition} {held}HW {data.high_watermark}"


@label.register
def _(message: ProduceRequest, _names: Names) -> str:
    acks = "all" if message.acks < 0 else message.acks
    return ", ".join(
        f"{topic.name}-{each.index} acks={acks}"
        for topic in message.topic_data
        for each in topic.partition_data
    )


@label.register
def _(message: ProduceResponse, _names: Names) -> str:
    return ", ".join(
        f"{topic.name}-{each.index} {ErrorCode.of(each.error_code).name}"
        if each.error_code
        else f"{topic.name}-{each.index} at {each.base_offset}"
        for topic in message.responses
        for each in topic.partition_responses
    )


@label.register
def _(message: AlterPartitionRequest, _names: Names) -> str:
    return ", ".join(
        f"isr {' '.join(f'b{broker}' for broker in _members(each))}"
        for topic in message.topics
        for each in topic.partitions
    )


def _members(partition: ProposedIsr) -> Iterator[int]:
    """Return the members of an ISR; version 3 has their broker epochs too (KIP-903)."""
    yield from partition.new_isr
    yield from (each.broker_id for each in partition.new_isr_with_epochs)


@label.register
def _(message: AlterPartitionResponse, _names: Names) -> str:
    answers = (
        ErrorCode.of(each.error_code).name if each.error_code else "accepted"
        for topic in message.topics
        for each in topic.partitions
    )
    return _sentence(message.error_code, answers)


@label.register
def _(message: BrokerRegistrationRequest, _names: Names) -> str:
    return f"b{message.broker_id} registers"


def _sentence(error_code: int, answers: Iterable[str]) -> str:
    return ErrorCode.of(error_code).name if error_code else ", ".join(answers)
