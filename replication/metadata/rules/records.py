"""The metadata log and the bytes of its batches; the records are Kafka's (`wire/metadata_records.py`).

A batch is one decision: it is on disk whole or not at all, by its CRC. Beside these there are control
batches, such as the leader of each epoch (`wire/control_records.py`).
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from replication.errors import MetadataError
from replication.metadata.rules.levels import check_level, version_of
from replication.wire.api_versions import KAFKA_4_4
from replication.wire.control_records import control_records_in
from replication.wire.metadata_records import (
    API_KEYS,
    FeatureLevelRecord,
    MetadataRecord,
    check_known,
    decode_record,
    encode_record,
)
from storage.batch.record_batch import check_crc, walk
from storage.batch.records import Record, decode_columns, encode_batch
from storage.types import NO_OFFSET, Buffer, TopicId, TopicPartition

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final[TopicId] = bytes(15) + b"\x01"
METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
MAX_RECORDS: Final = 10_000
"""The records that one request may add (QuorumController.MAX_RECORDS_PER_USER_OP)."""
TOO_LARGE: Final = "Unable to perform excessively large batch operation."
"""The error message, Kafka's own, for a request that would add more."""


class LeaderRecoveryState(enum.IntEnum):
    """Whether a leader elected outside the ISR may still have to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


def encode_all(records: Iterable[MetadataRecord], *, level: int) -> Iterator[bytes]:
    """Yield the values of records, as a level of `metadata.version` writes them."""
    for each in records:
        yield encode_record(each, version_of(each, level))


def as_written(records: Sequence[MetadataRecord], *, level: int) -> Sequence[MetadataRecord]:
    """Return the records as they are read again: an older level leaves out newer fields."""
    if level == KAFKA_4_4:
        return records
    return [decode_record(each) for each in encode_all(records, level=level)]


def batch_of(
    records: Sequence[MetadataRecord], *, wall_ms: int, level: int = KAFKA_4_4
) -> bytearray:
    """Return one batch, writable, because the log stamps offset and epoch where they stand."""
    assert records, "a batch has records"
    encoded = (
        Record(offset=NO_OFFSET, timestamp=wall_ms, key=None, value=value)
        for value in encode_all(records, level=level)
    )
    return bytearray(encode_batch(encoded))


def refuse_unknown(batches: Buffer) -> None:
    """Raise MetadataError, with its offset, for a record that this release cannot read, or a level
    that it does not support.

    A batch that is partial or fails its checksum is left to the log, which refuses it.
    """
    view = memoryview(batches)
    for position, header in walk(view):
        batch = view[position : position + header.size]
        if not check_crc(batch):
            return
        if header.is_control:
            control_records_in(batch)
            continue
        columns = decode_columns(batch)
        for offset, value in zip(columns.offsets, columns.values, strict=False):
            try:
                _check_readable(value or b"")
            except MetadataError as error:
                raise MetadataError(f"offset {offset} of {METADATA_PARTITION}: {error}") from None


def _check_readable(value: bytes) -> None:
    check_known(value)
    if value[1] == API_KEYS[FeatureLevelRecord]:
        record = decode_record(value)
        assert isinstance(record, FeatureLevelRecord), "the key says so"
        check_level(record)
