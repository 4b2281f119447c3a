"""Events: every change of state that matters, as a typed value.

An event is frozen, and handed to the sink of the object that reports it. The human log, the
journal, the reports and the checkers read the same values.

The file is long because it is one catalogue, from which docs/events.md is made.

    a broker ──> sink ──fan_out──> structlog, journal, a scenario's trace

Rule 1: a `name` never changes; a field may be added with a default, which raises `version`.
A golden file per version keeps old journals readable.

Rule 2: an event says why. An ISR change carries the high watermark, the log end, the lag and the
epoch that decided it; an election carries its cause.

Rule 3: the time and the reporting node are in the envelope (of the journal, of the trace), so that
an event can be compared with the one that a test expects.

Rule 4: fields are integers, strings, booleans, bytes, a `TopicPartition`, or tuples of these.
Only these have the same bytes in every process.

Rule 5: a high watermark moves thousands of times a second, so it is reported once per tick,
and not at all without a listening sink.

The file is long because it is one catalogue.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

import attrs

from storage.attributes import define, frozen
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@frozen(kw_only=True)
class Event:
    """A change of state; `name` and `version` determine its fields."""

    name: ClassVar[str]
    version: ClassVar[int] = 1


EventSink: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Receive an event and do nothing: the default sink."""


def fan_out(*sinks: EventSink) -> EventSink:
    """Return one sink for several; `ignore` if none of them listens."""
    listening = tuple(sink for sink in sinks if sink is not ignore)
    if not listening:
        return ignore
    if len(listening) == 1:
        return listening[0]

    def to_each(event: Event) -> None:
        for sink in listening:
            sink(event)

    return to_each


# Brokers: start and stop, registration and fencing.


@frozen(kw_only=True)
class BrokerRegistered(Event):
    """A broker has registered (KIP-631); it is fenced until it has caught up."""

    name: ClassVar[str] = "broker_registered"
    broker: int
    broker_epoch: int
    incarnation_id: bytes = b""  # drawn anew by each process
    previous_broker_epoch: int = -1  # of its last clean shutdown; -1: there was none


@frozen(kw_only=True)
class RegistrationRefused(Event):
    """The controller does not register a broker or a controller that does not fit its cluster."""

    name: ClassVar[str] = "registration_refused"
    node: int  # the id that the request names
    role: str  # "broker" or "controller"
    error: str  # "UNSUPPORTED_VERSION", "INVALID_REGISTRATION", "INCONSISTENT_CLUSTER_ID"
    cause: str
    left_out: int = 0  # refusals since the last one reported: one in ten seconds is


@frozen(kw_only=True)
class BrokerFenced(Event):
    """A broker leads no partition and is in no ISR any more, until the controller hears from it."""

    name: ClassVar[str] = "broker_fenced"
    broker: int
    broker_epoch: int
    cause: str  # "session expired", "registered again", "controlled shutdown", ...
    since_heartbeat_ms: int = -1  # how long it had been silent


@frozen(kw_only=True)
class BrokerUnfenced(Event):
    """A broker has caught up with the metadata, and may lead."""

    name: ClassVar[str] = "broker_unfenced"
    broker: int
    broker_epoch: int


@frozen(kw_only=True)
class ControlledShutdownStarted(Event):
    """A broker has asked to shut down: other brokers take over its leaderships first."""

    name: ClassVar[str] = "controlled_shutdown_started"
    broker: int
    broker_epoch: int
    leading: int = -1  # partitions it still leads


@frozen(kw_only=True)
class CertificatesRead(Event):
    """A broker has read its certificates again, because it was altered (KIP-226)."""

    name: ClassVar[str] = "certificates_read"
    broker: int
    refused: str = ""  # why the old ones stay in force; empty if the new ones are


@frozen(kw_only=True)
class BrokerStarted(Event):
    """A broker has started to listen."""

    name: ClassVar[str] = "broker_started"
    broker: int
    host: str
    port: int


@frozen(kw_only=True)
class BrokerStopped(Event):
    """A broker has shut down; one that was killed does not report it."""

    name: ClassVar[str] = "broker_stopped"
    broker: int
    clean: bool  # whether it left its logs in good order


@frozen(kw_only=True)
class MetadataApplied(Event):
    """A node has applied the metadata log up to `offset`."""

    name: ClassVar[str] = "metadata_applied"
    offset: Offset  # exclusive: the next record to apply
    leader_epoch: LeaderEpoch
    records: int  # the number of records applied


@frozen(kw_only=True)
class PeerContradicted(Event):
    """A controller of the quorum said what cannot be true, such as a second leader in one epoch.

    It was not believed. The cause is a bug, a lost disk, or a node of another cluster.
    """

    name: ClassVar[str] = "peer_contradicted"
    claim: str  # what it said, and what this node knows
    left_out: int = 0  # such claims since the last one reported: one in ten seconds is


@frozen(kw_only=True)
class QuorumMisconfigured(Event):
    """A controller cannot work with another one until somebody mends the configuration of a node.

    One of the two is of another cluster, has another log directory than the voter set names, or
    has a node id that is in use.
    """

    name: ClassVar[str] = "quorum_misconfigured"
    cause: str  # what the other one said, or did
    left_out: int = 0  # such causes since the last one reported: one in ten seconds is


@frozen(kw_only=True)
class MetadataNotServed(Event):
    """Controllers close the connection of a broker that fetches metadata, again and again.

    Most likely they do not serve its version of Fetch. The broker goes on asking.
    """

    name: ClassVar[str] = "metadata_not_served"
    cause: str
    left_out: int = 0  # such fetches since the last one reported: one in ten seconds is


# Topics and partitions: leaders, followers and the ISR.


@frozen(kw_only=True)
class TopicCreated(Event):
    """A topic was created."""

    name: ClassVar[str] = "topic_created"
    topic: str
    topic_id: TopicId
    partitions: int  # the number of partitions
    replication_factor: int  # the number of replicas of each partition


@frozen(kw_only=True)
class TopicDeleted(Event):
    """A topic was deleted."""

    name: ClassVar[str] = "topic_deleted"
    topic: str
    topic_id: TopicId


@frozen(kw_only=True)
class LeaderElected(Event):
    """The controller has elected a leader for a partition."""

    name: ClassVar[str] = "leader_elected"
    version: ClassVar[int] = 2
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str  # "clean", "eligible", "last known", "unclean" (`election.py`), or "created"
    previous_leader: int = -1  # the leader before; -1 if there was none
    reason: str = ""  # why there was an election: "created", "leader fenced", "preferred", ...


@frozen(kw_only=True)
class PartitionOffline(Event):
    """A partition has no leader, because no replica may lead."""

    name: ClassVar[str] = "partition_offline"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str


@frozen(kw_only=True)
class BecameLeader(Event):
    """A broker has become the leader of a partition."""

    name: ClassVar[str] = "became_leader"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    leader_epoch_start_offset: Offset  # the log end when this epoch began
    high_watermark: Offset
    isr: tuple[int, ...] = ()


@frozen(kw_only=True)
class BecameFollower(Event):
    """A broker has become a follower of a partition, at a new leader epoch."""

    name: ClassVar[str] = "became_follower"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset = -1


@frozen(kw_only=True)
class PartitionStopped(Event):
    """A broker no longer holds a replica."""

    name: ClassVar[str] = "partition_stopped"
    partition: TopicPartition
    deleted: bool  # whether its log is deleted too


@frozen(kw_only=True)
class DuplicateRecognised(Event):
    """An idempotent producer has sent a batch again that is in the log.

    It is answered with the offset of the first one, and nothing is written.
    """

    name: ClassVar[str] = "duplicate_recognised"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset  # the first offset of that batch
    last_offset: Offset  # its last offset, inclusive


@frozen(kw_only=True)
class IsrChangeProposed(Event):
    """A leader has asked the controller for another ISR (AlterPartition, KIP-497)."""

    name: ClassVar[str] = "isr_change_proposed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]  # the proposed ISR
    leaving: tuple[int, ...]  # the brokers that leave it
    joining: tuple[int, ...]  # the brokers that join it
    high_watermark: Offset
    log_end_offset: Offset
    lag: int  # records that the leaving or joining broker furthest behind lacks
    lag_ms: int = -1  # for how long it has been behind


@frozen(kw_only=True)
class IsrChangeRefused(Event):
    """The controller has refused an ISR change; the leader keeps its ISR, or asks again."""

    name: ClassVar[str] = "isr_change_refused"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    error: str
    isr: tuple[int, ...] = ()


@frozen(kw_only=True)
class IsrChanged(Event):
    """The ISR of a partition has changed: the leader asked for it, or a broker was fenced."""

    name: ClassVar[str] = "isr_changed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]
    previous_isr: tuple[int, ...] = ()  # the ISR before


# Followers: fetchers, their partitions, and fetch sessions (KIP-227).


@frozen(kw_only=True)
class FetcherStarted(Event):
    """A fetcher has started to follow some partitions of a leader."""

    name: ClassVar[str] = "fetcher_started"
    leader: int
    fetcher_id: int  # which of `num.replica.fetchers` to that leader


@frozen(kw_only=True)
class FetcherStopped(Event):
    """A fetcher has stopped: it has no partition any more, its leader moved, or its broker stops."""

    name: ClassVar[str] = "fetcher_stopped"
    leader: int
    fetcher_id: int  # which of `num.replica.fetchers` to that leader
    cause: str


@frozen(kw_only=True)
class FollowerFetching(Event):
    """A followed partition has nothing (more) to truncate and fetches from `fetch_offset`."""

    name: ClassVar[str] = "follower_fetching"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    fetch_offset: Offset  # the first offset that it requests


@frozen(kw_only=True)
class PartitionFailed(Event):
    """A partition has failed: it is offline or no longer fetched until its leader or log changes."""

    name: ClassVar[str] = "partition_failed"
    partition: TopicPartition
    cause: str


@frozen(kw_only=True)
class FetchRefused(Event):
    """A fetch of a partition was refused or unusable; it is repeated after a backoff."""

    name: ClassVar[str] = "fetch_refused"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    error: str


@frozen(kw_only=True)
class FetchResponseUnusable(Event):
    """A leader broke off in the middle of a response to a fetch, or sent what is no such response.

    All partitions of the fetch are asked for again after a backoff.
    """

    name: ClassVar[str] = "fetch_response_unusable"
    leader: int
    cause: str
    left_out: int = 0  # such responses since the last one reported: one in ten seconds is


@frozen(kw_only=True)
class LogTruncated(Event):
    """A follower has truncated its log to where it agrees with its leader's."""

    name: ClassVar[str] = "log_truncated"
    partition: TopicPartition
    from_offset: Offset  # the log end before
    to_offset: Offset  # the log end after
    high_watermark: Offset
    cause: str  # "diverging epoch", "offset out of range", ...
    leader_epoch: LeaderEpoch = -1


@frozen(kw_only=True)
class HighWatermarkAdvanced(Event):
    """A partition's high watermark has advanced; the last advance of a tick is reported."""

    name: ClassVar[str] = "high_watermark_advanced"
    partition: TopicPartition
    high_watermark: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class FetchSessionOpened(Event):
    """A leader has opened a fetch session (KIP-227)."""

    name: ClassVar[str] = "fetch_session_opened"
    session_id: int
    partitions: int  # the number of partitions in its first request
    privileged: bool  # whether it is a follower's session


@frozen(kw_only=True)
class FetchSessionClosed(Event):
    """The follower or consumer of a fetch session has ended it."""

    name: ClassVar[str] = "fetch_session_closed"
    session_id: int


@frozen(kw_only=True)
class FetchSessionEvicted(Event):
    """A fetch session was evicted: it was too old, or another one needed its slot."""

    name: ClassVar[str] = "fetch_session_evicted"
    version: ClassVar[int] = 3
    session_id: int
    cause: str = ""
    partitions: int = 0  # the number of its partitions
    privileged: bool = False  # whether it was a follower's session
    behind: int = 0  # its partitions with committed records that it had not requested yet


# Logs, and the disks that hold them.


@frozen(kw_only=True)
class LogRecovered(Event):
    """A log was opened."""

    name: ClassVar[str] = "log_recovered"
    partition: TopicPartition
    recovery_point: Offset
    log_end_offset: Offset
    truncated_bytes: int  # the bytes removed from its end
    clean: bool  # whether a clean-shutdown marker made recovery unnecessary


@frozen(kw_only=True)
class SegmentsDeleted(Event):
    """Segments were deleted; their files are unlinked `file.delete.delay.ms` later."""

    name: ClassVar[str] = "segments_deleted"
    partition: TopicPartition
    segments: int  # the number of segments
    bytes: int  # the size of their `.log` files
    first_offset: Offset  # the first offset of the first one
    end_offset: Offset  # the end of the last one, exclusive
    cause: str  # "log start", "size", "time", "truncation", ...


@frozen(kw_only=True)
class LogDeleted(Event):
    """A log was unlinked from its disk."""

    name: ClassVar[str] = "log_deleted"
    partition: TopicPartition
    path: str
    cause: str  # "topic deleted", "not a replica any more", "deletion interrupted"


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class LogUncleanable(Event):
    """A log cannot be compacted, and is not tried again before it is opened again."""

    name: ClassVar[str] = "log_uncleanable"
    partition: TopicPartition
    cause: str


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class LogDirectoryWarned(Event):
    """Something in a log directory is unexpected, and was left as it is."""

    name: ClassVar[str] = "log_directory_warned"
    directory: str
    message: str  # what is unexpected


@frozen(kw_only=True)
class LogDirectoryFailed(Event):
    """A log directory has failed: every log in it is offline."""

    name: ClassVar[str] = "log_directory_failed"
    directory: str
    cause: str


# Groups of consumers, and their committed offsets.


@frozen(kw_only=True)
class GroupsLoaded(Event):
    """A broker has become coordinator of the groups in one partition of `__consumer_offsets`."""

    name: ClassVar[str] = "groups_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    groups: int  # the number of groups
    offsets: int  # the number of committed offsets


@frozen(kw_only=True)
class GroupsUnloaded(Event):
    """A broker no longer coordinates the groups of a partition."""

    name: ClassVar[str] = "groups_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@frozen(kw_only=True)
class GroupMemberJoined(Event):
    """A member has joined a group; its partitions are assigned later."""

    name: ClassVar[str] = "group_member_joined"
    group: str
    member: str
    instance: str  # its `group.instance.id`; empty for a dynamic member
    client: str


@frozen(kw_only=True)
class GroupMemberLeft(Event):
    """A member has left a group, or was removed."""

    name: ClassVar[str] = "group_member_left"
    group: str
    member: str
    instance: str
    cause: str  # "left", "session expired", "did not rejoin", ...


@frozen(kw_only=True)
class GroupRebalanceStarted(Event):
    """Members have to join again: one has come, has gone, or subscribes to other topics."""

    name: ClassVar[str] = "group_rebalance_started"
    group: str
    generation: int  # the one that ends
    members: int
    cause: str


@frozen(kw_only=True)
class GroupStabilized(Event):
    """Every member of a group has its assignment of this generation."""

    name: ClassVar[str] = "group_stabilized"
    group: str
    generation: int
    protocol: str  # the assignor that all members support
    leader: str  # the member that assigned the partitions
    members: tuple[str, ...]


@frozen(kw_only=True)
class GroupProtocolChanged(Event):
    """A group goes on with the other protocol, and keeps its members and offsets (KIP-848)."""

    name: ClassVar[str] = "group_protocol_changed"
    group: str
    protocol: str  # `consumer` after an upgrade, `classic` after a downgrade
    epoch: int  # the group epoch, or the generation
    members: tuple[str, ...]


@frozen(kw_only=True)
class GroupOffsetsForgotten(Event):
    """Committed offsets of a group were removed."""

    name: ClassVar[str] = "group_offsets_forgotten"
    group: str
    offsets: int  # the number of offsets
    whole: bool  # whether the group was removed with them
    cause: str  # "deleted", "expired", "topic deleted"


# Transactions, reported by their coordinator (KIP-98).


@frozen(kw_only=True)
class TransactionsLoaded(Event):
    """A broker has become coordinator of the transactions in one partition."""

    name: ClassVar[str] = "transactions_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    transactions: int  # the number of transactional ids


@frozen(kw_only=True)
class TransactionsUnloaded(Event):
    """A broker no longer coordinates the transactions of a partition."""

    name: ClassVar[str] = "transactions_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@frozen(kw_only=True)
class TransactionPrepared(Event):
    """The outcome of a transaction is written, and can no longer change."""

    name: ClassVar[str] = "transaction_prepared"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # whether it commits; else it aborts
    partitions: int  # the number of partitions that get a marker


@frozen(kw_only=True)
class TransactionCompleted(Event):
    """Every partition of a transaction has its end marker."""

    name: ClassVar[str] = "transaction_completed"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # whether it was committed; else it was aborted


# Boundaries, at which errors stop: refused connections, and bugs.


@frozen(kw_only=True)
class ConnectionRefused(Event):
    """A connection was closed for what it sent: not Kafka's protocol, or an unanswered request."""

    name: ClassVar[str] = "connection_refused"
    peer: str
    cause: str


@frozen(kw_only=True)
class BugCaught(Event):
    """An exception reached a boundary: one connection, fetcher or background job was closed."""

    name: ClassVar[str] = "bug_caught"
    boundary: str  # where it was stopped
    error: str


# Faults, injected on request.


@frozen(kw_only=True)
class FaultApplied(Event):
    """A fault rule was applied to a request (`replication.faults`)."""

    name: ClassVar[str] = "fault_applied"
    rule: int  # its number, in the order in which rules were added
    api: str  # "PRODUCE"
    client: str  # its client id
    parts: tuple[str, ...]  # the topics or partitions that the request names
    fault: str  # "NOT_LEADER_OR_FOLLOWER", "delay 100 ms", "close-after"


# A proxy, and the brokers behind it.


@frozen(kw_only=True)
class UpstreamLost(Event):
    """A proxy could not connect to a broker that it had reached before; clients lose their connections."""

    name: ClassVar[str] = "upstream_lost"
    broker: int  # its id; -1 while it is not known
    address: str  # host:port
    cause: str


@frozen(kw_only=True)
class UpstreamFound(Event):
    """A proxy has reached a broker again."""

    name: ClassVar[str] = "upstream_found"
    broker: int  # its id; -1 while it is not known
    address: str  # host:port


# What a peer could cause without end.

RARELY_MS: Final = 10_000


@define
class RareReporter:
    """Reports one event in ten seconds at most, so that a broken peer cannot flood a log.

    The next one carries how many were left out since the last.
    """

    _sink: EventSink
    _now_ms: Callable[[], int]
    _next_ms: int | None = attrs.field(init=False, default=None)
    _left_out: int = attrs.field(init=False, default=0)

    def report(self, event_with: Callable[[int], Event]) -> None:
        """Report what `event_with` makes of the number of events that were left out, or count."""
        now_ms = self._now_ms()
        if self._next_ms is not None and now_ms < self._next_ms:
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        self._next_ms = now_ms + RARELY_MS
        self._sink(event_with(left_out))


# Advances of high watermarks (rule 5).


@define
class HighWatermarkReporter:
    """Collects advances, and reports the last one of each partition at each tick of its owner.

    Between ticks an advance costs one dictionary store; without a listening sink one comparison.
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

    def tick(self) -> frozenset[TopicPartition]:
        """Report what has moved since the last tick, and return the partitions."""
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
        return frozenset(latest)


EVENTS: tuple[type[Event], ...] = tuple(
    kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
"""Every kind of event."""
