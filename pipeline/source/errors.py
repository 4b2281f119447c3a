"""The errors of reads and writes.

    SourceError
    ├── OptionError            an option is unknown, missing or invalid
    ├── NotALogDirectoryError  a `path` holds no logs
    ├── UnknownTopicError      a topic or partition is not there
    ├── CorruptBatchesError    bytes are no batch, or its CRC does not match
    ├── DataLossError          records to be read are gone (`failOnDataLoss`)
    ├── TopicReplacedError     a topic was deleted and created again under the same name
    └── BrokerError            no broker answered in time, or a broker refused

The message names the topic, file or option: Spark's stack trace keeps nothing but the message.
"""

from replication.errors import UnderstudyError
from storage.types import Offset, TopicPartition


class SourceError(UnderstudyError):
    """The base of the errors of reads and writes."""


class OptionError(SourceError, ValueError):
    """An error: an option is unknown, missing or invalid."""


class NotALogDirectoryError(SourceError):
    """An error: a `path` holds no logs."""


class UnknownTopicError(SourceError):
    """An error: a topic or partition to be read is not there."""


class CorruptBatchesError(SourceError):
    """An error: bytes are no batch, or the CRC of a batch does not match."""


class DataLossError(SourceError):
    """An error: records to be read are gone; `failOnDataLoss=false` reads on without them."""


class TopicReplacedError(DataLossError):
    """An error: a topic was deleted and created again under the same name (KIP-516)."""


class BrokerError(SourceError):
    """An error: no broker answered in time, or a broker refused."""


def lost_before(tp: TopicPartition, wanted: Offset, first: Offset) -> str:
    """Return the message for offsets below the start of the log."""
    return (
        f"{tp}: offsets {wanted} to {first - 1} are gone, the log begins at {first}"
        " (retention, or records were deleted); failOnDataLoss=false reads on from there"
    )


def lost_behind(tp: TopicPartition, wanted: Offset, end: Offset) -> str:
    """Return the message for planned offsets beyond the end of the log."""
    return (
        f"{tp}: offsets {end} to {wanted - 1} are not there, the log ends at {end};"
        " failOnDataLoss=false reads to its end"
    )
