"""The results of requests to a broker's replicas, and the error codes of a log's refusals."""

from collections.abc import Mapping

import attrs

from replication.errors import ErrorCode
from storage.attributes import frozen
from storage.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    ShortageError,
    StorageError,
    TransactionCoordinatorFencedError,
    UnsupportedCompressionTypeError,
)
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

# The first that fits counts: a class stands before its bases.
_CODES: tuple[tuple[type[StorageError], ErrorCode], ...] = (
    (CorruptRecordError, ErrorCode.CORRUPT_MESSAGE),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordBatchTooLargeError, ErrorCode.RECORD_LIST_TOO_LARGE),
    (InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (UnsupportedCompressionTypeError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (InvalidRecordError, ErrorCode.INVALID_RECORD),
    (OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (InvalidProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (InvalidTransactionStateError, ErrorCode.INVALID_TXN_STATE),
    (TransactionCoordinatorFencedError, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (KafkaStorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (ShortageError, ErrorCode.KAFKA_STORAGE_ERROR),
)


def code_of(error: StorageError) -> ErrorCode:
    """Return the error code to answer for `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


@frozen(kw_only=True)
class ProduceResult:
    """The outcome of one partition's records."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    record_errors: Mapping[int, str] = attrs.field(factory=dict)
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteRecordsResult:
    """The greatest log start of the live replicas; -1 with an error."""

    error: ErrorCode = ErrorCode.NONE
    low_watermark: Offset = NO_OFFSET


@frozen(kw_only=True)
class ListOffsetsResult:
    """A timestamp and its offset; -1 and -1, without an error, if there is none."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@frozen(kw_only=True)
class EpochEndResult:
    """The greatest epoch up to the one asked for, and where it ends; -1 and -1 if there is none."""

    error: ErrorCode = ErrorCode.NONE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    end_offset: Offset = NO_OFFSET
