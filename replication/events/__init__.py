"""Events: every change of state that matters, as a typed value.

An event is frozen, and handed to the sink of the object that reports it. The human log, the
journal, the reports and the checkers read the same values.

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

    event            the base class, and sinks
    brokers  partitions  following  logs  groups  transactions  boundaries  faults
                     the events by topic
    high_watermark   rule 5
"""

from replication.events.boundaries import BugCaught, ConnectionRefused
from replication.events.brokers import (
    BrokerFenced,
    BrokerRegistered,
    BrokerStarted,
    BrokerStopped,
    BrokerUnfenced,
    CertificatesRead,
    ControlledShutdownStarted,
    MetadataApplied,
)
from replication.events.event import Event, EventSink, fan_out, ignore
from replication.events.faults import FaultApplied
from replication.events.following import (
    FetcherStarted,
    FetcherStopped,
    FetchRefused,
    FetchSessionClosed,
    FetchSessionEvicted,
    FetchSessionOpened,
    FollowerFetching,
    FollowersBehind,
    HighWatermarkAdvanced,
    LogTruncated,
    PartitionFailed,
)
from replication.events.groups import (
    GroupMemberJoined,
    GroupMemberLeft,
    GroupOffsetsForgotten,
    GroupRebalanceStarted,
    GroupsLoaded,
    GroupStabilized,
    GroupsUnloaded,
)
from replication.events.high_watermark import HighWatermarkReporter
from replication.events.logs import (
    LogCleaned,
    LogDeleted,
    LogDirectoryFailed,
    LogDirectoryWarned,
    LogRecovered,
    LogRepaired,
    LogUncleanable,
    SegmentsDeleted,
)
from replication.events.partitions import (
    BecameFollower,
    BecameLeader,
    DuplicateRecognised,
    IsrChanged,
    IsrChangeProposed,
    IsrChangeRefused,
    LeaderElected,
    PartitionOffline,
    PartitionStopped,
    TopicCreated,
    TopicDeleted,
)
from replication.events.transactions import (
    TransactionCompleted,
    TransactionPrepared,
    TransactionsLoaded,
    TransactionsUnloaded,
)

__all__ = [
    "EVENTS",
    "BecameFollower",
    "BecameLeader",
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerStarted",
    "BrokerStopped",
    "BrokerUnfenced",
    "BugCaught",
    "CertificatesRead",
    "ConnectionRefused",
    "ControlledShutdownStarted",
    "DuplicateRecognised",
    "Event",
    "EventSink",
    "FaultApplied",
    "FetchRefused",
    "FetchSessionClosed",
    "FetchSessionEvicted",
    "FetchSessionOpened",
    "FetcherStarted",
    "FetcherStopped",
    "FollowerFetching",
    "FollowersBehind",
    "GroupMemberJoined",
    "GroupMemberLeft",
    "GroupOffsetsForgotten",
    "GroupRebalanceStarted",
    "GroupStabilized",
    "GroupsLoaded",
    "GroupsUnloaded",
    "HighWatermarkAdvanced",
    "HighWatermarkReporter",
    "IsrChangeProposed",
    "IsrChangeRefused",
    "IsrChanged",
    "LeaderElected",
    "LogCleaned",
    "LogDeleted",
    "LogDirectoryFailed",
    "LogDirectoryWarned",
    "LogRecovered",
    "LogRepaired",
    "LogTruncated",
    "LogUncleanable",
    "MetadataApplied",
    "PartitionFailed",
    "PartitionOffline",
    "PartitionStopped",
    "SegmentsDeleted",
    "TopicCreated",
    "TopicDeleted",
    "TransactionCompleted",
    "TransactionPrepared",
    "TransactionsLoaded",
    "TransactionsUnloaded",
    "fan_out",
    "ignore",
]

# Every kind of event.
EVENTS: tuple[type[Event], ...] = tuple(
    kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
