"""What fetchers do: their tasks, their partitions, and the sessions in which they ask (KIP-227)."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.frozen(kw_only=True)
class FetcherStarted(Event):
    """A task follows a leader for some of its partitions."""

    name: ClassVar[str] = "fetcher_started"
    leader: int
    fetcher_id: int  # which of `num.replica.fetchers` to that leader


@attrs.frozen(kw_only=True)
class FetcherStopped(Event):
    """That task has ended: it has no partition any more, or its broker stops."""

    name: ClassVar[str] = "fetcher_stopped"
    leader: int
    fetcher_id: int  # which of `num.replica.fetchers` to that leader
    cause: str


@attrs.frozen(kw_only=True)
class FollowerFetching(Event):
    """A followed partition has nothing (more) to truncate and fetches from `fetch_offset`."""

    name: ClassVar[str] = "follower_fetching"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    fetch_offset: Offset  # the first that it asks for


@attrs.frozen(kw_only=True)
class PartitionFailed(Event):
    """A followed partition that is fetched no more until its leader or its log changes."""

    name: ClassVar[str] = "partition_failed"
    partition: TopicPartition
    cause: str


@attrs.frozen(kw_only=True)
class FetchRefused(Event):
    """The leader answered with an error, and is asked again after a while."""

    name: ClassVar[str] = "fetch_refused"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    error: str


@attrs.frozen(kw_only=True)
class LogTruncated(Event):
    """A follower has cut what its leader does not have."""

    name: ClassVar[str] = "log_truncated"
    partition: TopicPartition
    from_offset: Offset  # the log end before
    to_offset: Offset  # and after
    high_watermark: Offset
    cause: str  # "diverging epoch", "offset out of range", ...
    leader_epoch: LeaderEpoch = -1


@attrs.frozen(kw_only=True)
class HighWatermarkAdvanced(Event):
    """The last of a tick's advances, see `HighWatermarkReporter`."""

    name: ClassVar[str] = "high_watermark_advanced"
    partition: TopicPartition
    high_watermark: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch


@attrs.frozen(kw_only=True)
class FollowersBehind(Event):
    """A leader has appended, and followers lack records: while the high watermark stands, or out
    of the ISR. At most once a tick.
    """

    name: ClassVar[str] = "followers_behind"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    isr: tuple[int, ...]
    broker: int  # the follower furthest behind
    lag: int  # records that it lacks, as far as its leader knows
    lag_ms: int  # and since when it has lacked any; -1 where this leader never saw it caught up


@attrs.frozen(kw_only=True)
class FetchSessionOpened(Event):
    """A leader remembers what somebody follows (KIP-227)."""

    name: ClassVar[str] = "fetch_session_opened"
    session_id: int
    partitions: int  # in its first request
    privileged: bool  # a follower's


@attrs.frozen(kw_only=True)
class FetchSessionClosed(Event):
    """Whoever asked in that session has ended it."""

    name: ClassVar[str] = "fetch_session_closed"
    session_id: int


@attrs.frozen(kw_only=True)
class FetchSessionEvicted(Event):
    """A session has given way to another, or is too old."""

    name: ClassVar[str] = "fetch_session_evicted"
    version: ClassVar[int] = 2
    session_id: int
    cause: str = ""
    behind: int = 0  # partitions of which it had not asked for all that it was told is committed
