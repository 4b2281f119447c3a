"""What can go wrong with a read or a write, each under a name of its own.

    SourceError
    ├── OptionError            an option that is unknown, missing, or makes no sense
    ├── NotALogDirectoryError  a `path` that holds no logs
    ├── UnknownTopicError      what is to be read is not there
    ├── CorruptBatchesError    bytes that are no batch, or whose CRC does not match
    ├── DataLossError          records that were to be read are gone (`failOnDataLoss`)
    ├── TopicReplacedError     a topic was deleted and made again under the same name
    └── BrokerError            nobody answered in time, or a broker refused

The message names the thing: it is all that is left of an error in Spark's stack trace.
"""

from replication.errors import UnderstudyError
from storage.types import Offset, TopicPartition


class SourceError(UnderstudyError):
    """The root of the tree above."""


class OptionError(SourceError, ValueError):
    """An option that is unknown, missing, or makes no sense."""


class NotALogDirectoryError(SourceError):
    """A `path` that holds no logs."""


class UnknownTopicError(SourceError):
    """What is to be read is not there."""


class CorruptBatchesError(SourceError):
    """Bytes that are no batch, or whose CRC does not match."""


class DataLossError(SourceError):
    """Records that were to be read are gone; `failOnDataLoss=false` reads on without them."""


class TopicReplacedError(DataLossError):
    """A topic was deleted and made again under the same name (KIP-516)."""


class BrokerError(SourceError):
    """Nobody answered in time, or a broker refused."""


def lost_before(tp: TopicPartition, wanted: Offset, first: Offset) -> str:
    """What is said of offsets that have aged out."""
    return (
        f"{tp}: offsets {wanted} to {first - 1} are gone, the log begins at {first}"
        " (retention, or records were deleted); failOnDataLoss=false reads on from there"
    )


def lost_behind(tp: TopicPartition, wanted: Offset, end: Offset) -> str:
    """What is said of offsets that were promised and are not there."""
    return (
        f"{tp}: offsets {end} to {wanted - 1} are not there, the log ends at {end};"
        " failOnDataLoss=false reads to its end"
    )
