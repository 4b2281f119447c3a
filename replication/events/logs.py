"""Logs, and the disks under them."""

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
    truncated_bytes: int  # cut from its end
    clean: bool  # whether a clean-shutdown marker made recovery unnecessary


@attrs.frozen(kw_only=True)
class SegmentsDeleted(Event):
    """Segments have left a log; their files are unlinked `file.delete.delay.ms` later."""

    name: ClassVar[str] = "segments_deleted"
    partition: TopicPartition
    segments: int  # so many
    bytes: int  # of their `.log` files
    first_offset: Offset  # of the first of them
    end_offset: Offset  # exclusive
    cause: str  # "log start", "size", "time", "truncation", ...


@attrs.frozen(kw_only=True)
class LogDeleted(Event):
    """A whole log is gone from its disk."""

    name: ClassVar[str] = "log_deleted"
    partition: TopicPartition
    path: str
    cause: str  # "topic deleted", "not a replica any more", "deletion interrupted"


@attrs.frozen(kw_only=True)
class LogCleaned(Event):
    """A log was compacted: of each key in [first_dirty_offset, end_offset) the last record
    stays, and none before it.
    """

    name: ClassVar[str] = "log_cleaned"
    partition: TopicPartition
    first_dirty_offset: Offset
    end_offset: Offset
    bytes_read: int  # before
    bytes_written: int  # after
    invalid_records: int  # without a key: gone


@attrs.frozen(kw_only=True)
class LogUncleanable(Event):
    """A log cannot be compacted, and is left alone until it is opened again."""

    name: ClassVar[str] = "log_uncleanable"
    partition: TopicPartition
    cause: str


@attrs.frozen(kw_only=True)
class LogRepaired(Event):
    """Opening a log found something wrong: `bytes` from `position` on went, into `kept` if that
    had been promised to anybody.
    """

    name: ClassVar[str] = "log_repaired"
    partition: TopicPartition
    path: str
    position: int  # the byte in `path`
    offset: Offset  # of the first batch that went
    cause: str
    bytes: int  # so many went
    kept: str  # the copy's name; empty where nobody was promised them


@attrs.frozen(kw_only=True)
class LogDirectoryWarned(Event):
    """Something in a log directory is odd, and was left as it is."""

    name: ClassVar[str] = "log_directory_warned"
    directory: str
    message: str  # what is odd


@attrs.frozen(kw_only=True)
class LogDirectoryFailed(Event):
    """A disk has failed: every log in that directory is offline."""

    name: ClassVar[str] = "log_directory_failed"
    directory: str
    cause: str
