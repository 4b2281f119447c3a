"""Records on their way to one partition, and what becomes of them.

    filling ─> closed ─> sent ─┬─> Acked(base_offset)
                ^──────────────┤     tried again, the same bytes under the same sequence
                               ├─> Failed(error)
                               └─> in parts: it was too large, and each half is a batch now

Rule 1: what a batch has once been sent as (producer id, epoch, sequence) does not change while
a broker might have taken it: the same again is recognised there, anything else would be there
twice (KIP-98).

Rule 2: an outcome is set once.

(Kafka: ProducerBatch.)
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.wire.end_txn import EndTxnResponse
from replication.wire.init_producer_id import InitProducerIdResponse
from storage.batch.compression import Codec
from storage.batch.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    next_sequence,
)
from storage.batch.records import Header, RecordFields, encode_batch
from storage.types import Offset, TopicPartition

# Length, attributes, deltas and the lengths of key, value and headers, at their longest; and
# where key and value are small, and the timestamps of a batch within a quarter of an hour.
_RECORD_OVERHEAD: Final = 21
_SMALL_OVERHEAD: Final = 13
_SMALL: Final = 8000
_HEADER_OVERHEAD: Final = 10


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


NOBODY: Final = ProducerIdentity()


def identity_in(response: InitProducerIdResponse | EndTxnResponse) -> ProducerIdentity:
    """Whom it makes of its producer; KafkaError where that is nobody."""
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the answer names no producer id")
    return ProducerIdentity(response.producer_id, response.producer_epoch)


class Stamp(NamedTuple):
    """As what a batch is known to the brokers."""

    identity: ProducerIdentity = NOBODY
    base_sequence: int = NO_SEQUENCE


@attrs.frozen
class Acked:
    """There, the first record at `base_offset`.

    -1: it is there, but where was not said: acks=0, or a duplicate whose offset the broker
    no longer knew.
    """

    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = -1


@attrs.frozen
class Failed:
    """Given up. Whether it is there is known only where the error says so."""

    error: Exception
    of_records: dict[int, Exception] = attrs.field(factory=dict)
    """Those that are to blame, by their place in the batch (KIP-467)."""


@attrs.frozen
class InParts:
    """Its records are in these, in order, the first of each at the place that is told."""

    parts: "tuple[tuple[int, ProducerBatch], ...]"


Outcome: TypeAlias = Acked | Failed | InParts


def record_size(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """About the most bytes that a record can take, uncompressed: batches fill up to it.

    (DefaultRecord.recordSizeUpperBound, which is 8 bytes more for a small one.)
    """
    size = (len(key) if key else 0) + (len(value) if value else 0)
    size += _SMALL_OVERHEAD if size < _SMALL else _RECORD_OVERHEAD
    for name, header in headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + (len(header) if header else 0)
    return size


@attrs.define(eq=False, kw_only=True)
class ProducerBatch:
    partition: TopicPartition
    created_at: float
    """When its first record came, in seconds on the node's clock: deliveries time out by it."""
    records: list[RecordFields] = attrs.field(factory=list)
    size: int = HEADER_SIZE
    """Of what it may take at the most, uncompressed."""
    is_closed: bool = False
    """Takes no more records: full, or sent."""
    attempts: int = 0
    not_before: float = 0.0
    """It waits until then before it is sent again."""
    identity: ProducerIdentity = NOBODY
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    sequence_was_reset: bool = False
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

    def stamp(self, identity: ProducerIdentity, base_sequence: int, *, transactional: bool) -> None:
        """Who sends it, and as which of its records."""
        self.identity, self.base_sequence = identity, base_sequence
        self.transactional = transactional
        self._encoded = None

    def restamp(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """As another one: only where no broker has it as what it was."""
        self.stamp(identity, base_sequence, transactional=self.transactional)
        self.sequence_was_reset = True

    def encoded(self, codec: Codec) -> bytes:
        """As it goes over the wire; made once for each stamp."""
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
        for tell in self.on_outcome:
            tell()

    def halves(self) -> "Iterator[tuple[int, ProducerBatch]]":
        """Two batches of its records, under the sequences that these have; the place of the
        first of each.
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
