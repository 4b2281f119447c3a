"""The errors of logs and of their files, as a tree.

    StorageError
    ├── CorruptRecordError            bytes that are not a batch, or whose CRC-32C is wrong
    │   └── ExpansionError              compressed bytes that grow past an allowed size
    ├── UnsupportedFormatError        a valid batch of another magic than 2, which is never cut
    ├── OffsetOverflowError           offsets that a segment's base cannot express: split it
    ├── InvalidRecordError            a sound batch that a producer may not send
    │   ├── RecordTooLargeError         over max.message.bytes, or too much in too few bytes
    │   ├── RecordBatchTooLargeError    over segment.bytes
    │   ├── InvalidTimestampError       outside message.timestamp.{before,after}.max.ms
    │   └── UnsupportedCompressionTypeError
    ├── ProducerStateError            idempotence, KIP-98
    │   ├── OutOfOrderSequenceError
    │   ├── InvalidProducerEpochError
    │   ├── InvalidTransactionStateError
    │   └── TransactionCoordinatorFencedError
    ├── AppendOffsetError             a follower's append that does not continue its log
    │   ├── OffsetsOutOfOrderError      offsets go back inside what was sent
    │   └── UnexpectedAppendOffsetError its first offset lies below the log end
    ├── OffsetOutOfRangeError         a read outside [log start, log end]
    ├── CheckpointError               a checkpoint file that does not parse
    ├── CorruptIndexError             an index file that contradicts itself: rebuild it
    ├── LogDirectoryError             a directory that this node must not open
    │   ├── LogDirectoryLockedError     another process holds it
    │   └── InconsistentMetadataError   meta.properties names another cluster or broker
    ├── InconsistentTopicIdError      partition.metadata names another topic of that name
    ├── RegionAbortedError            truncated below a region that was being sent
    ├── CleaningAbortedError          the log was cut or deleted while it was compacted
    ├── LongCheckError                a check that the event loop should not wait for
    ├── IrregularFileError            a link, a pipe or a device, where a file should be
    ├── ShortageError                 descriptors or memory have run out; also an OSError
    └── KafkaStorageError             a write or a sync failed: the directory is offline

A refused append changes nothing. A failed write or sync closes the log to further
appends at once, and takes its directory offline with it.

A shortage ends when a file is closed anywhere. An operation that could not begin without a
descriptor is refused and can be repeated; one that was half done fails as any write does.
"""

import contextlib
import errno
from collections.abc import Iterator

from storage.types import Offset


class StorageError(Exception):
    """The root of the tree above."""


class CorruptRecordError(StorageError):
    """Bytes that are not a record batch, or whose CRC-32C does not match."""


class ExpansionError(CorruptRecordError):
    """Compressed bytes that grow past the size that the reader allows."""


class UnsupportedFormatError(StorageError):
    """A sound batch of a newer message format, or of one before KIP-98's."""


class OffsetOverflowError(StorageError):
    """A segment holds offsets that are too far from its base for an index to express."""

    def __init__(self, message: str, base_offset: Offset) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class InvalidRecordError(StorageError):
    """A sound batch that breaks a rule for producers; `record_errors` maps index to reason."""

    def __init__(self, message: str, record_errors: dict[int, str] | None = None) -> None:
        super().__init__(message)
        self.record_errors = record_errors or {}


class RecordTooLargeError(InvalidRecordError):
    """A batch over `max.message.bytes`, or one that holds too much for the bytes it takes."""


class RecordBatchTooLargeError(InvalidRecordError):
    """An append over `segment.bytes`."""


class InvalidTimestampError(InvalidRecordError):
    """A timestamp outside what the topic allows."""


class UnsupportedCompressionTypeError(InvalidRecordError):
    """A codec that Kafka does not number."""


class ProducerStateError(StorageError):
    """An idempotent producer's batch that does not follow its last (KIP-98)."""


class OutOfOrderSequenceError(ProducerStateError):
    """The base sequence is neither the next one nor a duplicate."""


class InvalidProducerEpochError(ProducerStateError):
    """The producer's epoch is older than one already seen."""


class InvalidTransactionStateError(ProducerStateError):
    """A batch outside the transaction that its producer has open."""


class TransactionCoordinatorFencedError(ProducerStateError):
    """A marker from a coordinator that a newer one has replaced."""


class AppendOffsetError(StorageError):
    """A follower's append that does not continue its log."""


class OffsetsOutOfOrderError(AppendOffsetError):
    """The offsets of the batches to append do not increase."""


class UnexpectedAppendOffsetError(AppendOffsetError):
    """The first offset to be appended lies below the log end offset."""

    def __init__(self, message: str, *, first_offset: Offset, last_offset: Offset) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetOutOfRangeError(StorageError):
    """A read outside [log start offset, log end offset]."""


class CheckpointError(StorageError):
    """A checkpoint file that does not parse."""


class CorruptIndexError(StorageError):
    """An index file that contradicts itself; the log it points into is enough to rebuild it."""


class LogDirectoryError(StorageError):
    """A directory that this node must not open."""


class LogDirectoryLockedError(LogDirectoryError):
    """Another process holds the directory's `.lock`."""


class InconsistentMetadataError(LogDirectoryError):
    """`meta.properties` names another cluster or another broker."""


class InconsistentTopicIdError(StorageError):
    """`partition.metadata` holds the id of another topic of the same name (KIP-516)."""


class RegionAbortedError(StorageError):
    """The log was truncated below bytes that were being sent."""


class CleaningAbortedError(StorageError):
    """The log was cut, deleted or closed while it was compacted; nothing is lost by that."""


class LongCheckError(StorageError):
    """A check that costs more than its caller allowed; repeat it in a thread, with no allowance."""


class IrregularFileError(StorageError, OSError):
    """A link, a pipe, a device or a directory that has the name of a file; it is left alone."""


class ShortageError(StorageError, OSError):
    """A file could not be opened for want of descriptors or memory; nothing was changed."""


_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR))


def raise_shortage(error: OSError) -> None:
    """Raise ShortageError where `error` says that something has run out. Only for a step that has
    changed nothing, or that is done again from its beginning.
    """
    if error.errno in _SHORTAGES:
        raise ShortageError(error.errno, error.strerror, error.filename) from error


class KafkaStorageError(StorageError):
    """A write or a sync failed; the log is closed to appends and its directory offline."""


@contextlib.contextmanager
def naming(path: str, position: int) -> Iterator[None]:
    """Name byte `position` of `path` in every error that a batch raises in this context."""
    try:
        yield
    except (CorruptRecordError, InvalidRecordError) as error:
        raise CorruptRecordError(f"{path}, byte {position}: {error}") from error
