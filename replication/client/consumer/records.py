"""The records that a consumer hands over (ConsumerRecord), and those of one poll (ConsumerRecords).

for record in records:                      all records, partition by partition
records.partitions                          the partitions that have any
records[TopicPartition("t", 0)]             the records of one partition
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import attrs

from replication.client.offsets import OffsetAndMetadata as OffsetAndMetadata  # noqa: PLC0414 - found here too
from storage.attributes import frozen
from storage.batch.record_batch import TimestampType
from storage.batch.records import Header
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition


class ConsumerRecord(NamedTuple):
    """One record, with its key and value as the deserializers made them."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[Header, ...] = ()
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch in which it was appended."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition in one value."""
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header of that name (Headers.lastHeader)."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@frozen
class OffsetAndTimestamp:
    """The first record at or after a time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@frozen
class ConsumerRecords:
    """The records of one poll; empty if none came in time."""

    by_partition: Mapping[TopicPartition, list[ConsumerRecord]] = attrs.field(factory=dict)
    next_offsets: Mapping[TopicPartition, OffsetAndMetadata] = attrs.field(factory=dict)
    """The offsets to commit when these records have been processed."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have records."""
        return list(self.by_partition)

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(map(len, self.by_partition.values()))

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return the records of one topic."""
        return [record for record in self if record.topic == topic]

    def __getitem__(self, tp: TopicPartition) -> list[ConsumerRecord]:
        return self.by_partition.get(tp, [])

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for records in self.by_partition.values():
            yield from records

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0


class Deserializer(Protocol):
    """The conversion of bytes of a topic to what the program uses."""

    def deserialize(self, topic: str, headers: tuple[Header, ...], data: bytes, /) -> Any:
        """Return the value of `data`; an error becomes a RecordDeserializationError."""


AnyDeserializer: TypeAlias = Callable[[bytes], Any] | Deserializer | None
Deserialize: TypeAlias = Callable[[str, tuple[Header, ...], bytes], Any]


def deserialize_function(given: AnyDeserializer) -> Deserialize | None:
    """Return one form of both: a function of the bytes, or an object with `deserialize`."""
    if given is None:
        return None
    if callable(method := getattr(given, "deserialize", None)):
        found: Deserialize = method
        return found
    assert callable(given), "a deserializer is a function or has `deserialize`"
    function: Callable[[bytes], Any] = given
    return lambda _topic, _headers, data: function(data)
