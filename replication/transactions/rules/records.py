"""The records of `__transaction_state`, in Kafka's bytes (TransactionLogKey, TransactionLogValue).

    key    version i16 = 0 | transactional id
    value  version i16 = 1 | producer id, epoch, timeout, state, partitions by topic, two times,
                             and tagged: previous and next producer id, transaction version
           none: a tombstone, the id is forgotten

Values are written in version 1, as Kafka 4.0 writes them, and version 0 is read too. A key of
another version belongs to another protocol and is passed over.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from replication.errors import ProtocolError
from replication.transactions.rules.transaction import (
    Transaction,
    TransactionState,
)
from replication.wire.api_versions import EPOCH_BUMPING_VERSION
from replication.wire.codec import decode_versioned, encode_versioned, version_of
from replication.wire.schema import Kind, array, define, int8, int16, int32, int64, string
from storage.batch.record_batch import NO_PRODUCER_ID, BatchHeader
from storage.batch.records import decode_batch
from storage.types import TopicPartition

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1


@define(kw_only=True)
class TransactionLogKey:
    transactional_id: str = string()


@define(kw_only=True)
class PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array(Kind.INT32)


@define(kw_only=True)
class TransactionLogValue:
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=NO_PRODUCER_ID, tag=0)
    next_producer_id: int = int64("1+", default=NO_PRODUCER_ID, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2)


class TransactionEntry(NamedTuple):
    """The state of a transactional id; without a transaction the id is deleted."""

    transactional_id: str
    transaction: Transaction | None


def key_of(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return encode_versioned(key, _KEY_VERSION)


def value_of(transaction: Transaction) -> bytes:
    ended = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if ended else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=EPOCH_BUMPING_VERSION if transaction.bumps_epoch else 0,
    )
    return encode_versioned(value, _VALUE_VERSION, flexible=True)


def read_batch(header: BatchHeader, batch: memoryview) -> list[TransactionEntry]:
    """Return the entries of a batch; raise ProtocolError where no coordinator has written it."""
    if header.is_control:
        return []
    parsed = (parse(record.key, record.value) for record in decode_batch(batch))
    return [entry for entry in parsed if entry is not None]


def parse(key: bytes | None, value: bytes | None) -> TransactionEntry | None:
    """Return the entry of a record; None for a key of an unknown version."""
    if version_of(key) != _KEY_VERSION or key is None:
        return None
    name = decode_versioned(TransactionLogKey, key, _KEY_VERSION)
    if value is None:
        return TransactionEntry(name.transactional_id, None)
    version = version_of(value)
    if version not in (0, _VALUE_VERSION):
        raise ProtocolError(f"a transaction of version {version}")
    read = decode_versioned(TransactionLogValue, value, version, flexible=version > 0)
    return TransactionEntry(name.transactional_id, _transaction(name.transactional_id, read))


def _transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction in state {value.transaction_status}") from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        bumps_epoch=value.client_transaction_version >= EPOCH_BUMPING_VERSION,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [
        PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in by_topic.items()
    ]
