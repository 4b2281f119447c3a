"""Records on their way to one partition, their outcome, and their delivery as the program sees it.

    filling ─> closed ─> sent ─┬─> Acked(base_offset)
                ^──────────────┤     sent again, the same bytes under the same sequence
                               ├─> Failed(error)
                               └─> InParts: it was too large, and each half is a batch now

Rule 1: the identity under which a batch was sent (producer id, epoch, sequence) does not change
while a broker may have taken it: a broker recognises the same batch, and would write any other a
second time (KIP-98).

Rule 2: an outcome is set once.

(Kafka: ProducerBatch.)
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

import attrs
import trio

from replication.client.errors import raised_again
from replication.errors import ErrorCode, KafkaError
from replication.wire.end_txn import EndTxnResponse
from replication.wire.init_producer_id import InitProducerIdResponse
from storage.attributes import define, frozen
from storage.batch.compression import Codec
from storage.batch.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TimestampType,
    next_sequence,
)
from storage.batch.records import Header, Record, RecordFields, encode_batch
from storage.types import Offset, TopicPartition

# Length, attributes, deltas and the lengths of key, value and headers, at their longest; and the
# same if key and value are small and the timestamps of a batch within a quarter of an hour.
_RECORD_OVERHEAD: Final = 21
_SMALL_OVERHEAD: Final = 13
_SMALL: Final = 8000
_HEADER_OVERHEAD: Final = 10

_CREATE_TIME: Final = TimestampType.CREATE_TIME
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


NOBODY: Final = ProducerIdAndEpoch()


def identity_in(response: InitProducerIdResponse | EndTxnResponse) -> ProducerIdAndEpoch:
    """Return the id and epoch that a response gives its producer; KafkaError if it gives none."""
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the answer names no producer id")
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


class Stamp(NamedTuple):
    """The identity and sequence under which brokers know a batch."""

    identity: ProducerIdAndEpoch = NOBODY
    base_sequence: int = NO_SEQUENCE


@frozen
class Acked:
    """A batch that was written, its first record at `base_offset`.

    -1 if the offset is not known: acks=0, or a duplicate whose offset the broker no longer knew.
    """

    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = -1


@frozen
class Failed:
    """A batch that was given up. Only some errors tell whether it was written."""

    error: Exception
    of_records: dict[int, Exception] = attrs.field(factory=dict)
    """The errors of single records, by their place in the batch (KIP-467)."""


@frozen
class InParts:
    """A batch whose records are in other batches; each with the place of its first record."""

    parts: "tuple[tuple[int, ProducerBatch], ...]"


Outcome: TypeAlias = Acked | Failed | InParts


def record_size(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """Return about the most bytes that a record can take uncompressed; batches fill up to it.

    (DefaultRecord.recordSizeUpperBound, which is 8 bytes more for a small one.)
    """
    size = (len(key) if key else 0) + (len(value) if value else 0)
    size += _SMALL_OVERHEAD if size < _SMALL else _RECORD_OVERHEAD
    for name, header in headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + (len(header) if header else 0)
    return size


@define(eq=False, kw_only=True)
class ProducerBatch:
    """A batch of records for one partition, from its first record to its outcome."""

    partition: TopicPartition
    created_at: float
    """When its first record came, in seconds of the node's clock; deliveries time out by it."""
    records: list[RecordFields] = attrs.field(factory=list)
    size: int = HEADER_SIZE
    """The most bytes that its records can take uncompressed."""
    is_closed: bool = False
    """Whether it takes no more records: it is full, or was sent."""
    attempts: int = 0
    not_before: float = 0.0
    """The moment until which it waits before it is sent again."""
    identity: ProducerIdAndEpoch = NOBODY
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    sequence_was_reset: bool = False
    out_of_order: bool = False
    """Whether a broker has refused it as out of order, and those behind it are to tell why."""
    outcome: Outcome | None = None
    on_outcome: list[Callable[[], None]] = attrs.field(factory=list)
    _encoded: bytes | None = None

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def count(self) -> int:
        return len(self.records)

    @property
    def stamped(self) -> Stamp:
        return Stamp(self.identity, self.base_sequence)

    @property
    def last_sequence(self) -> int:
        assert self.has_sequence, "it has been sent"
        return next_sequence(self.base_sequence, self.count - 1)

    def stamp(
        self, identity: ProducerIdAndEpoch, base_sequence: int, *, transactional: bool
    ) -> None:
        """Set the producer and the sequence under which it is sent."""
        self.identity, self.base_sequence = identity, base_sequence
        self.transactional, self.out_of_order = transactional, False
        self._encoded = None

    def restamp(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Give it another identity; only if no broker has it under the old one."""
        self.stamp(identity, base_sequence, transactional=self.transactional)
        self.sequence_was_reset = True

    def encoded(self, codec: Codec) -> bytes:
        """Return its bytes for the wire, made once for each stamp."""
        if self._encoded is None:
            self.is_closed = True
            self._encoded = encode_batch(
                self.records,
                codec=codec,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=self.transactional,
            )
        return self._encoded

    def resolve(self, outcome: Outcome) -> None:
        assert self.outcome is None, f"a batch of {self.partition} has one outcome"
        self.outcome, self.is_closed = outcome, True
        self._encoded = None
        for call in self.on_outcome:
            call()

    def halves(self) -> "Iterator[tuple[int, ProducerBatch]]":
        """Return two batches of its records, under the sequences of these records.

        Each comes with the place of its first record in this batch.
        """
        assert self.count > 1, "one record is as small as it gets"
        middle = self.count // 2
        for begin, end in ((0, middle), (middle, self.count)):
            records = self.records[begin:end]
            sizes = (record_size(key, value, headers) for _, _, key, value, headers, _ in records)
            half = ProducerBatch(
                partition=self.partition,
                created_at=self.created_at,
                records=records,
                size=HEADER_SIZE + sum(sizes),
                is_closed=True,
                attempts=self.attempts,
            )
            if self.has_sequence:
                sequence = next_sequence(self.base_sequence, begin)
                half.stamp(self.identity, sequence, transactional=self.transactional)
            yield begin, half


@define(eq=False)
class RecordRun:
    """Records that are sent together; batches take them from the front."""

    records: Sequence[RecordFields]
    taken: int = attrs.field(default=0, init=False)
    _sizes: list[int] = attrs.field(init=False)
    _ends: list[int] = attrs.field(init=False)
    """For each record, the bytes of all records up to its end."""
    _has_keys: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sizes = [record_size(key, value, ()) for _, _, key, value, _, _ in self.records]
        self._ends = list(accumulate(self._sizes))
        self._has_keys = any(key is not None for _, _, key, _, _, _ in self.records)

    @property
    def is_done(self) -> bool:
        return self.taken == len(self.records)

    @property
    def largest(self) -> int:
        return max(self._sizes, default=0)

    @property
    def next_size(self) -> int:
        return self._sizes[self.taken]

    @property
    def next_key(self) -> bytes | None:
        _, _, key, _, _, _ = self.records[self.taken]
        return key

    def take(self, room: int) -> tuple[Sequence[RecordFields], int]:
        """Return the next records that fit into `room` bytes, at least one, and their size.

        Records with keys come one by one, since each goes to the partition of its key.
        """
        begin, end = self.taken, self.taken + 1
        before = self._ends[begin - 1] if begin else 0
        if not self._has_keys:
            end = max(bisect_right(self._ends, before + room, lo=begin), end)
        self.taken = end
        return self.records[begin:end], self._ends[end - 1] - before


@frozen(kw_only=True)
class RecordMetadata:
    """The place of a written record; the offset is -1 if it is not known (acks=0)."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: TimestampType
    log_start_offset: Offset = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition in one value."""
        return TopicPartition(self.topic, self.partition)


@define(eq=False)
class Delivery:
    """A record on its way; each `wait` gives the same outcome, and none is required."""

    _batch: ProducerBatch
    _index: int

    @property
    def done(self) -> bool:
        """Whether it has been acknowledged, or has failed."""
        return self._batch.outcome is not None and not isinstance(self._batch.outcome, InParts)

    async def wait(self) -> RecordMetadata:
        """Return the place of the record once it is written; raise the error of its failure."""
        batch = await self._settled()
        outcome = batch.outcome
        if isinstance(outcome, Failed):
            raise raised_again(outcome.of_records.get(self._index, outcome.error))
        assert isinstance(outcome, Acked), "a settled batch is written or has failed"
        appended_at = outcome.log_append_time_ms
        return RecordMetadata(
            topic=batch.partition.topic,
            partition=batch.partition.partition,
            offset=outcome.base_offset + self._index if outcome.base_offset >= 0 else -1,
            timestamp=Record(*batch.records[self._index]).timestamp
            if appended_at < 0
            else appended_at,
            timestamp_type=_CREATE_TIME if appended_at < 0 else _LOG_APPEND_TIME,
            log_start_offset=outcome.log_start_offset,
        )

    async def _settled(self) -> ProducerBatch:
        """Return the batch that holds the record in the end, when that has an outcome."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while isinstance(outcome := await _outcome(self._batch), InParts):
            first, part = next(each for each in reversed(outcome.parts) if each[0] <= self._index)
            self._batch, self._index = part, self._index - first
        return self._batch


@define(eq=False)
class Deliveries:
    """Records that were sent together, in that order; only their batches are kept."""

    _parts: list[tuple[ProducerBatch, int, int]] = attrs.field(factory=list, init=False)

    def add(self, batch: ProducerBatch, index: int, count: int) -> None:
        """Note that `count` records are in `batch`, the first at `index`."""
        self._parts.append((batch, index, count))

    @property
    def last(self) -> ProducerBatch:
        """The batch of the last record."""
        return self._parts[-1][0]

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    def __iter__(self) -> Iterator[Delivery]:
        for batch, first, count in self._parts:
            for index in range(first, first + count):
                yield Delivery(batch, index)

    async def wait(self) -> list[RecordMetadata]:
        """Return the place of each record; raise the error of the first that failed."""
        return [await delivery.wait() for delivery in self]


async def wait_until_settled(batch: ProducerBatch) -> None:
    """Wait until all records of a batch are written or have failed."""
    outcome = await _outcome(batch)
    if isinstance(outcome, InParts):
        for _, part in outcome.parts:
            await wait_until_settled(part)


async def _outcome(batch: ProducerBatch) -> Outcome:
    if batch.outcome is None:
        has_outcome = trio.Event()
        batch.on_outcome.append(has_outcome.set)
        await has_outcome.wait()
    assert batch.outcome is not None, "it was waited for"
    return batch.outcome
