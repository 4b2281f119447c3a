"""Events of followers: fetchers, their partitions, and fetch sessions (KIP-227)."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.frozen(kw_only=True)
class FetcherStarted(Event):
    """A fetcher has started to follow some partitions of a leader."""

    name: ClassVar[str] = "fetcher_started"
    leader: int
    fetcher_id: int  # which of `num.replica.fetchers` to that leader


@attrs.frozen(kw_only=True)
class FetcherStopped(Event):
    """A fetcher has stopped: it has no partition any more, its leader moved, or its broker stops."""

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
    fetch_offset: Offset  # the first offset that it requests


@attrs.frozen(kw_only=True)
class PartitionFailed(Event):
    """A partition has failed: it is offline or no longer fetched until its leader or log changes."""

    name: ClassVar[str] = "partition_failed"
    partition: TopicPartition
    cause: str


@attrs.frozen(kw_only=True)
class FetchRefused(Event):
    """A fetch of a partition was refused or unusable; it is repeated after a backoff."""

    name: ClassVar[str] = "fetch_refused"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    error: str


@attrs.frozen(kw_only=True)
class LogTruncated(Event):
    """A follower has truncated its log to where it agrees with its leader's."""

    name: ClassVar[str] = "log_truncated"
    partition: TopicPartition
    from_offset: Offset  # the log end before
    to_offset: Offset  # the log end after
    high_watermark: Offset
    cause: str  # "diverging epoch", "offset out of range", ...
    leader_epoch: LeaderEpoch = -1


@attrs.frozen(kw_only=True)
class HighWatermarkAdvanced(Event):
    """A partition's high watermark has advanced; the last advance of a tick is reported."""

    name: ClassVar[str] = "high_watermark_advanced"
    partition: TopicPartition
    high_watermark: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch


@attrs.frozen(kw_only=True)
class FollowersBehind(Event):
    """A leader has appended, and followers lack records.

    They are in the ISR while the high watermark does not advance, or out of it. Reported at most
    once a tick.
    """

    name: ClassVar[str] = "followers_behind"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    isr: tuple[int, ...]
    broker: int  # the follower furthest behind
    lag: int  # records that it lacks, as far as its leader knows
    lag_ms: int  # for how long it has been behind; -1 if this leader never saw it caught up


@attrs.frozen(kw_only=True)
class FetchSessionOpened(Event):
    """A leader has opened a fetch session (KIP-227)."""

    name: ClassVar[str] = "fetch_session_opened"
    session_id: int
    partitions: int  # the number of partitions in its first request
    privileged: bool  # whether it is a follower's session


@attrs.frozen(kw_only=True)
class FetchSessionClosed(Event):
    """The follower or consumer of a fetch session has ended it."""

    name: ClassVar[str] = "fetch_session_closed"
    session_id: int


@attrs.frozen(kw_only=True)
class FetchSessionEvicted(Event):
    """A fetch session was evicted: it was too old, or another one needed its slot."""

    name: ClassVar[str] = "fetch_session_evicted"
    version: ClassVar[int] = 2
    session_id: int
    cause: str = ""
    behind: int = 0  # its partitions with committed records that it had not requested yet
