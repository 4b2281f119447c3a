"""What happened, as typed facts.

Every change of state that matters is one frozen value, handed to the sink that its owner
was given. The human log, the journal, the reports and the checkers read the same values.

    a broker ──> sink ──fan_out──> structlog, journal, a scenario's trace

Rule 1: `name` is stable for ever; a field may be added with a default, which raises
`version`. A golden file per version keeps old journals readable.

Rule 2: an event says why. One about the ISR carries the high watermark, the log end, the
lag and the epoch that decided it; one about an election its cause.

Rule 3: who reports, and when, is the envelope's business (the journal's, the trace's), so
that an event can be compared with the one a test expects.

Rule 4: fields are integers, strings, booleans, bytes, a `TopicPartition`, or tuples of these.
Nothing else has the same bytes in every process.

Rule 5: a high watermark moves thousands of times a second, so it is reported once per tick,
and not at all when nobody listens.
"""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import attrs

from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen(kw_only=True)
class Event:
    """A fact. `name` and `version` say how its fields are to be read."""

    name: ClassVar[str]
    version: ClassVar[int] = 1


EventSink: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The sink of those who were given none."""


def fan_out(*sinks: EventSink) -> EventSink:
    """One sink for several; `ignore` where none of them listens."""
    listening = tuple(sink for sink in sinks if sink is not ignore)
    if not listening:
        return ignore
    if len(listening) == 1:
        return listening[0]

    def to_each(event: Event) -> None:
        for sink in listening:
            sink(event)

    return to_each


# -- brokers and their standing with the controller


@attrs.frozen(kw_only=True)
class BrokerRegistered(Event):
    name: ClassVar[str] = "broker_registered"
    broker: int
    broker_epoch: int
    incarnation_id: bytes = b""
    previous_broker_epoch: int = -1


@attrs.frozen(kw_only=True)
class BrokerFenced(Event):
    name: ClassVar[str] = "broker_fenced"
    broker: int
    broker_epoch: int
    cause: str  # "session expired", "registered again", "controlled shutdown", ...
    since_heartbeat_ms: int = -1


@attrs.frozen(kw_only=True)
class BrokerUnfenced(Event):
    name: ClassVar[str] = "broker_unfenced"
    broker: int
    broker_epoch: int


@attrs.frozen(kw_only=True)
class ControlledShutdownStarted(Event):
    name: ClassVar[str] = "controlled_shutdown_started"
    broker: int
    broker_epoch: int
    leading: int = -1  # partitions it still leads


@attrs.frozen(kw_only=True)
class BrokerStarted(Event):
    name: ClassVar[str] = "broker_started"
    broker: int
    host: str
    port: int


@attrs.frozen(kw_only=True)
class BrokerStopped(Event):
    name: ClassVar[str] = "broker_stopped"
    broker: int
    clean: bool


@attrs.frozen(kw_only=True)
class MetadataApplied(Event):
    name: ClassVar[str] = "metadata_applied"
    offset: Offset  # exclusive: the next record to apply
    leader_epoch: LeaderEpoch
    records: int


# -- topics and leaders


@attrs.frozen(kw_only=True)
class TopicCreated(Event):
    name: ClassVar[str] = "topic_created"
    topic: str
    topic_id: TopicId
    partitions: int
    replication_factor: int


@attrs.frozen(kw_only=True)
class TopicDeleted(Event):
    name: ClassVar[str] = "topic_deleted"
    topic: str
    topic_id: TopicId


@attrs.frozen(kw_only=True)
class LeaderElected(Event):
    name: ClassVar[str] = "leader_elected"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str  # "clean", "eligible", "last known", "unclean" (`election.py`), or "created"
    previous_leader: int = -1


@attrs.frozen(kw_only=True)
class PartitionOffline(Event):
    """No replica may lead."""

    name: ClassVar[str] = "partition_offline"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str


@attrs.frozen(kw_only=True)
class BecameLeader(Event):
    name: ClassVar[str] = "became_leader"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    leader_epoch_start_offset: Offset
    high_watermark: Offset
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class BecameFollower(Event):
    name: ClassVar[str] = "became_follower"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset = -1


@attrs.frozen(kw_only=True)
class PartitionStopped(Event):
    """A replica that this broker no longer hosts."""

    name: ClassVar[str] = "partition_stopped"
    partition: TopicPartition
    deleted: bool


# -- following


@attrs.frozen(kw_only=True)
class FetcherStarted(Event):
    name: ClassVar[str] = "fetcher_started"
    leader: int
    fetcher_id: int


@attrs.frozen(kw_only=True)
class FetcherStopped(Event):
    name: ClassVar[str] = "fetcher_stopped"
    leader: int
    fetcher_id: int
    cause: str


@attrs.frozen(kw_only=True)
class FollowerFetching(Event):
    """A followed partition has nothing (more) to truncate and fetches from `fetch_offset`."""

    name: ClassVar[str] = "follower_fetching"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    fetch_offset: Offset


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


# -- producing


@attrs.frozen(kw_only=True)
class DuplicateRecognised(Event):
    """An idempotent producer sent again what is in the log: it hears where, and nothing is
    written.
    """

    name: ClassVar[str] = "duplicate_recognised"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset
    last_offset: Offset


# -- in-sync replicas


@attrs.frozen(kw_only=True)
class IsrChangeProposed(Event):
    name: ClassVar[str] = "isr_change_proposed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]  # as proposed
    leaving: tuple[int, ...]
    joining: tuple[int, ...]
    high_watermark: Offset
    log_end_offset: Offset
    lag: int  # records the furthest behind of those that leave or join lacks
    lag_ms: int = -1  # and since when it has lacked any


@attrs.frozen(kw_only=True)
class IsrChangeRefused(Event):
    name: ClassVar[str] = "isr_change_refused"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    error: str
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class IsrChanged(Event):
    name: ClassVar[str] = "isr_changed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]
    previous_isr: tuple[int, ...] = ()


# -- fetch sessions (KIP-227)


@attrs.frozen(kw_only=True)
class FetchSessionOpened(Event):
    name: ClassVar[str] = "fetch_session_opened"
    session_id: int
    partitions: int
    privileged: bool  # a follower's


@attrs.frozen(kw_only=True)
class FetchSessionClosed(Event):
    name: ClassVar[str] = "fetch_session_closed"
    session_id: int


@attrs.frozen(kw_only=True)
class FetchSessionEvicted(Event):
    name: ClassVar[str] = "fetch_session_evicted"
    version: ClassVar[int] = 2
    session_id: int
    cause: str = ""
    behind: int = 0  # partitions of which it had not asked for all that it was told is committed


# -- transactions


@attrs.frozen(kw_only=True)
class TransactionsLoaded(Event):
    """A coordinator has read what it is to look after."""

    name: ClassVar[str] = "transactions_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    transactions: int


@attrs.frozen(kw_only=True)
class TransactionsUnloaded(Event):
    name: ClassVar[str] = "transactions_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class TransactionPrepared(Event):
    """How a transaction ends is written down, and nothing can change it any more."""

    name: ClassVar[str] = "transaction_prepared"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    partitions: int


@attrs.frozen(kw_only=True)
class TransactionCompleted(Event):
    """Every partition that it wrote to has been told."""

    name: ClassVar[str] = "transaction_completed"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool


# -- logs and disks


@attrs.frozen(kw_only=True)
class LogRecovered(Event):
    name: ClassVar[str] = "log_recovered"
    partition: TopicPartition
    recovery_point: Offset
    log_end_offset: Offset
    truncated_bytes: int
    clean: bool  # whether a clean-shutdown marker made recovery unnecessary


@attrs.frozen(kw_only=True)
class SegmentsDeleted(Event):
    """Segments have left a log; their files are unlinked `file.delete.delay.ms` later."""

    name: ClassVar[str] = "segments_deleted"
    partition: TopicPartition
    segments: int
    bytes: int
    first_offset: Offset
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
    bytes_read: int
    bytes_written: int
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
    position: int
    offset: Offset
    cause: str
    bytes: int
    kept: str


@attrs.frozen(kw_only=True)
class LogDirectoryWarned(Event):
    name: ClassVar[str] = "log_directory_warned"
    directory: str
    message: str


@attrs.frozen(kw_only=True)
class LogDirectoryFailed(Event):
    name: ClassVar[str] = "log_directory_failed"
    directory: str
    cause: str


# -- consumer groups


@attrs.frozen(kw_only=True)
class GroupsLoaded(Event):
    """This broker coordinates the groups of one partition of `__consumer_offsets`."""

    name: ClassVar[str] = "groups_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    groups: int
    offsets: int


@attrs.frozen(kw_only=True)
class GroupsUnloaded(Event):
    name: ClassVar[str] = "groups_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class GroupMemberJoined(Event):
    name: ClassVar[str] = "group_member_joined"
    group: str
    member: str
    instance: str  # empty of a dynamic member
    client: str


@attrs.frozen(kw_only=True)
class GroupMemberLeft(Event):
    name: ClassVar[str] = "group_member_left"
    group: str
    member: str
    instance: str
    cause: str  # "left", "session expired", "did not rejoin", ...


@attrs.frozen(kw_only=True)
class GroupRebalanceStarted(Event):
    name: ClassVar[str] = "group_rebalance_started"
    group: str
    generation: int  # the one that ends
    members: int
    cause: str


@attrs.frozen(kw_only=True)
class GroupStabilized(Event):
    """Everybody knows its part of this generation."""

    name: ClassVar[str] = "group_stabilized"
    group: str
    generation: int
    protocol: str
    leader: str
    members: tuple[str, ...]


@attrs.frozen(kw_only=True)
class GroupOffsetsForgotten(Event):
    name: ClassVar[str] = "group_offsets_forgotten"
    group: str
    offsets: int
    whole: bool  # the group with them
    cause: str  # "deleted", "expired", "topic deleted"


# -- strangers


@attrs.frozen(kw_only=True)
class ConnectionRefused(Event):
    """A connection was closed for what came over it: no protocol of ours, or no answer to it."""

    name: ClassVar[str] = "connection_refused"
    peer: str
    cause: str


# -- our own mistakes


@attrs.frozen(kw_only=True)
class BugCaught(Event):
    """An exception at a boundary: one connection, fetcher or background job was closed."""

    name: ClassVar[str] = "bug_caught"
    boundary: str
    error: str


EVENTS: tuple[type[Event], ...] = (
    BrokerRegistered,
    BrokerFenced,
    BrokerUnfenced,
    ControlledShutdownStarted,
    BrokerStarted,
    BrokerStopped,
    MetadataApplied,
    TopicCreated,
    TopicDeleted,
    LeaderElected,
    PartitionOffline,
    BecameLeader,
    BecameFollower,
    PartitionStopped,
    FetcherStarted,
    FetcherStopped,
    FollowerFetching,
    PartitionFailed,
    FetchRefused,
    LogTruncated,
    HighWatermarkAdvanced,
    DuplicateRecognised,
    IsrChangeProposed,
    IsrChangeRefused,
    IsrChanged,
    FetchSessionOpened,
    FetchSessionClosed,
    FetchSessionEvicted,
    TransactionsLoaded,
    TransactionsUnloaded,
    TransactionPrepared,
    TransactionCompleted,
    LogRecovered,
    LogRepaired,
    LogDirectoryWarned,
    SegmentsDeleted,
    LogDeleted,
    LogCleaned,
    LogUncleanable,
    LogDirectoryFailed,
    GroupsLoaded,
    GroupsUnloaded,
    GroupMemberJoined,
    GroupMemberLeft,
    GroupRebalanceStarted,
    GroupStabilized,
    GroupOffsetsForgotten,
    ConnectionRefused,
    BugCaught,
)


@attrs.define
class HighWatermarkReporter:
    """Collects advances and reports, at each tick of its owner, where each partition stands.

    Between ticks an advance is one dictionary store; with nobody listening, one comparison.
    """

    _sink: EventSink
    _latest: dict[TopicPartition, tuple[Offset, Offset, LeaderEpoch]] = attrs.field(
        init=False, factory=dict
    )

    def advanced(
        self,
        partition: TopicPartition,
        *,
        high_watermark: Offset,
        log_end_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> None:
        if self._sink is not ignore:
            self._latest[partition] = (high_watermark, log_end_offset, leader_epoch)

    @property
    def has_news(self) -> bool:
        return bool(self._latest)

    def tick(self) -> None:
        """Report what has moved since the last tick, and forget it."""
        latest, self._latest = self._latest, {}
        for partition, (high_watermark, log_end_offset, leader_epoch) in latest.items():
            self._sink(
                HighWatermarkAdvanced(
                    partition=partition,
                    high_watermark=high_watermark,
                    log_end_offset=log_end_offset,
                    leader_epoch=leader_epoch,
                )
            )
