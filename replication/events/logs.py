"""Events of logs, and of the disks that hold them."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import Offset, TopicPartition


@attrs.frozen(kw_only=True)
class LogRecovered(Event):
    """A log was opened."""

    name: ClassVar[str] = "log_recovered"
    partition: TopicPartition
    recovery_point: Offset
    log_end_offset: Offset
    truncated_bytes: int  # the bytes removed from its end
    clean: bool  # whether a clean-shutdown marker made recovery unnecessary


@attrs.frozen(kw_only=True)
class SegmentsDeleted(Event):
    """Segments were deleted; their files are unlinked `file.delete.delay.ms` later."""

    name: ClassVar[str] = "segments_deleted"
    partition: TopicPartition
    segments: int  # the number of segments
    bytes: int  # the size of their `.log` files
    first_offset: Offset  # the first offset of the first one
    end_offset: Offset  # the end of the last one, exclusive
    cause: str  # "log start", "size", "time", "truncation", ...


@attrs.frozen(kw_only=True)
class LogDeleted(Event):
    """A log was unlinked from its disk."""

    name: ClassVar[str] = "log_deleted"
    partition: TopicPartition
    path: str
    cause: str  # "topic deleted", "not a replica any more", "deletion interrupted"


@attrs.frozen(kw_only=True)
class LogCleaned(Event):
    """A log was compacted.

    The last record of each key in [first_dirty_offset, end_offset) stays, and none before it.
    """

    name: ClassVar[str] = "log_cleaned"
    partition: TopicPartition
    first_dirty_offset: Offset
    end_offset: Offset
    bytes_read: int  # the size before
    bytes_written: int  # the size after
    invalid_records: int  # the number of records without a key, which were removed


@attrs.frozen(kw_only=True)
class LogUncleanable(Event):
    """A log cannot be compacted, and is not tried again before it is opened again."""

    name: ClassVar[str] = "log_uncleanable"
    partition: TopicPartition
    cause: str


@attrs.frozen(kw_only=True)
class LogRepaired(Event):
    """Opening a log found something wrong, and removed `bytes` from `position` on.

    They were copied to the file `kept` if they may have been acknowledged.
    """

    name: ClassVar[str] = "log_repaired"
    partition: TopicPartition
    path: str
    position: int  # the position in `path`
    offset: Offset  # the offset of the first batch that was removed
    cause: str
    bytes: int  # the number of bytes removed
    kept: str  # the name of the copy; empty if they cannot have been acknowledged


@attrs.frozen(kw_only=True)
class LogDirectoryWarned(Event):
    """Something in a log directory is unexpected, and was left as it is."""

    name: ClassVar[str] = "log_directory_warned"
    directory: str
    message: str  # what is unexpected


@attrs.frozen(kw_only=True)
class LogDirectoryFailed(Event):
    """A log directory has failed: every log in it is offline."""

    name: ClassVar[str] = "log_directory_failed"
    directory: str
    cause: str
