"""What every metric means: its help text on `/metrics`, and docs/metrics.md.

A test compares this with what a cluster serves: nothing is served that is not here, and what
is here is served by somebody.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from replication.groups.rules import GroupState
from replication.metrics import MetricName
from replication.server.request_metrics import TIMES


@attrs.frozen
class Described:
    """A metric, whatever its tags say."""

    group: str
    type: str
    name: str
    meaning: str
    tags: tuple[str, ...] = ()
    """Of each of its series; where there are series with and without some, `tags` has all."""
    distribution: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.type, self.name

    @property
    def example(self) -> MetricName:
        return MetricName(*self.key, tuple((tag, "...") for tag in self.tags))


_PARTITION = ("topic", "partition")


def _replica_manager() -> Iterator[Described]:
    for name, meaning in {
        "UnderReplicatedPartitions": "Partitions led here whose ISR lacks a replica.",
        "UnderMinIsrPartitionCount": "Partitions led here whose ISR is below min.insync.replicas.",
        "AtMinIsrPartitionCount": "Partitions led here whose ISR is exactly min.insync.replicas.",
        "OfflineReplicaCount": "Replicas here whose log cannot be used: their disk has failed.",
        "LeaderCount": "Partitions led here.",
        "PartitionCount": "Replicas here, leading or not.",
        "ReassigningPartitions": "Partitions led here whose replicas are being moved.",
        "PartitionsWithLateTransactionsCount": "Partitions led here with a transaction open since"
        " transaction.max.timeout.ms and five minutes.",
        "ProducerIdCount": "Idempotent producers that the logs here know.",
        "IsrShrinksPerSec": "Times that a partition led here has lost a member of its ISR.",
        "IsrExpandsPerSec": "Times that a partition led here has gained one.",
        "FailedIsrUpdatesPerSec": "ISR changes that the controller has refused.",
    }.items():
        yield Described("kafka.server", "ReplicaManager", name, meaning)


def _fetchers() -> Iterator[Described]:
    client = ("clientId",)
    for name, meaning in {
        "MaxLag": "Records that the followed partition furthest behind lacks.",
        "MinFetchRate": "Fetches per second of the fetcher that asks least, over a minute.",
        "FailedPartitionsCount": "Followed partitions that are fetched no more.",
        "DeadThreadCount": "Fetchers that ended without being asked to.",
    }.items():
        yield Described("kafka.server", "ReplicaFetcherManager", name, meaning, client)
    of_fetcher = ("clientId", "brokerHost", "brokerPort")
    yield Described(
        "kafka.server", "FetcherStats", "RequestsPerSec", "Fetches sent to a leader.", of_fetcher
    )
    yield Described(
        "kafka.server",
        "FetcherStats",
        "BytesPerSec",
        "Bytes of records fetched from it.",
        of_fetcher,
    )
    yield Described(
        "kafka.server",
        "FetcherLagMetrics",
        "ConsumerLag",
        "Records that this follower lacks of what its leader has; -1 before the first answer.",
        (*client, *_PARTITION),
    )
    for name, meaning in {
        "NumIncrementalFetchSessions": "Fetch sessions that this broker keeps (KIP-227).",
        "NumIncrementalFetchPartitionsCached": "Partitions in them.",
        "IncrementalFetchSessionEvictionsPerSec": "Sessions that made room for others.",
    }.items():
        yield Described("kafka.server", "FetchSessionCache", name, meaning)


def _topics() -> Iterator[Described]:
    for name, meaning in {
        "MessagesInPerSec": "Records that producers have appended.",
        "BytesInPerSec": "Bytes of batches that producers have appended.",
        "BytesOutPerSec": "Bytes of batches sent to consumers.",
        "TotalProduceRequestsPerSec": "Partitions named by produce requests.",
        "FailedProduceRequestsPerSec": "Of those, the ones that failed in a way clients do not expect.",
        "TotalFetchRequestsPerSec": "Partitions named by fetch requests and looked at.",
    }.items():
        text = f"{meaning} Without `topic`: of all topics together."
        yield Described("kafka.server", "BrokerTopicMetrics", name, text, ("topic",))
    for name, meaning in {
        "ReplicationBytesInPerSec": "Bytes of batches fetched from leaders.",
        "ReplicationBytesOutPerSec": "Bytes of batches sent to followers.",
        "ReassignmentBytesInPerSec": "Bytes of batches fetched for a replica that is being added.",
        "InvalidMessageCrcRecordsPerSec": "Partitions of produce requests refused as corrupt:"
        " a CRC-32C that does not match, or a batch cut short.",
    }.items():
        yield Described("kafka.server", "BrokerTopicMetrics", name, meaning)


def _requests() -> Iterator[Described]:
    request = ("request",)
    yield Described(
        "kafka.network", "RequestMetrics", "RequestsPerSec", "Requests read.", (*request, "version")
    )
    meanings = (
        "from its last byte until the handler begins: it is decoded, its client admitted",
        "in the handler, without what is remote",
        "waited in purgatories: for followers, for bytes, for deletions",
        "from the handler's answer until it is sent: it is encoded",
        "until the kernel has taken it",
        "all of it",
    )
    for name, meaning in zip(TIMES, meanings, strict=True):
        text = f"Milliseconds of a request, {meaning}. Of the last 1,024."
        yield Described("kafka.network", "RequestMetrics", name, text, request, distribution=True)
    for name, meaning in {
        "RequestBytes": "Bytes of a request, without its length.",
        "RequestBodyBytes": "Bytes of a request, without its length and header. Ours.",
    }.items():
        tags = (*request, "attribute")
        yield Described("kafka.network", "RequestMetrics", name, meaning, tags)
    yield Described(
        "kafka.server", "socket-server-metrics", "connection-count", "Connections open now."
    )
    for name, meaning in {
        "PurgatorySize": "Watches of requests that wait, one for each partition waited for.",
        "NumDelayedOperations": "Requests that wait.",
    }.items():
        operation = ("delayedOperation",)
        yield Described("kafka.server", "DelayedOperationPurgatory", name, meaning, operation)


def _logs() -> Iterator[Described]:
    for name, meaning in {
        "LogEndOffset": "Offset of the next record.",
        "LogStartOffset": "Offset of the first record.",
        "Size": "Bytes of batches.",
        "NumLogSegments": "Segments.",
    }.items():
        yield Described("kafka.log", "Log", name, meaning, _PARTITION)
    for name, meaning in {
        "UnderReplicated": "1 where the ISR lacks a replica; of a follower, 0.",
        "InSyncReplicasCount": "Members of the ISR; of a follower, 0.",
        "UnderMinIsr": "1 where the ISR is below min.insync.replicas; of a follower, 0.",
        "AtMinIsr": "1 where the ISR is exactly min.insync.replicas; of a follower, 0.",
        "ReplicasCount": "Replicas; of a follower, 0.",
        "LastStableOffsetLag": "Records from the last stable offset to the high watermark.",
    }.items():
        yield Described("kafka.cluster", "Partition", name, meaning, _PARTITION)
    for name, meaning in {
        "cleaner-recopy-percent": "Of what compaction has read, how much it has written again.",
        "max-clean-time-secs": "Seconds of the longest of the cleaners' last rounds.",
        "max-buffer-utilization-percent": "How full the fullest offset map was.",
        "max-compaction-delay-secs": "Seconds past max.compaction.lag.ms of the log longest due.",
        "DeadThreadCount": "Cleaners that have died of a bug.",
    }.items():
        yield Described("kafka.log", "LogCleaner", name, meaning)
    manager = "LogCleanerManager"
    yield Described("kafka.log", manager, "max-dirty-percent", "Dirt of the dirtiest log.")
    yield Described(
        "kafka.log",
        manager,
        "uncleanable-partitions-count",
        "Logs that cannot be compacted.",
        ("logDirectory",),
    )


def _groups() -> Iterator[Described]:
    group, kind = "kafka.coordinator.group", "GroupMetadataManager"
    yield Described(group, kind, "NumGroups", "Consumer groups coordinated here.")
    yield Described(group, kind, "NumOffsets", "Offsets that they have committed.")
    for state in GroupState:
        meaning = f"Consumer groups coordinated here that are {state.value}."
        yield Described(group, kind, f"NumGroups{state.value}", meaning)


def _controller() -> Iterator[Described]:
    for name, meaning in {
        "ActiveControllerCount": "1 of a controller.",
        "ActiveBrokerCount": "Brokers registered and not fenced.",
        "FencedBrokerCount": "Brokers registered and fenced.",
        "GlobalTopicCount": "Topics.",
        "GlobalPartitionCount": "Partitions.",
        "OfflinePartitionsCount": "Partitions that nobody leads.",
        "PreferredReplicaImbalanceCount": "Partitions that their first replica does not lead.",
    }.items():
        yield Described("kafka.controller", "KafkaController", name, meaning)
    stats = "ControllerStats"
    yield Described(
        "kafka.controller",
        stats,
        "UncleanLeaderElectionsPerSec",
        "Elections of a leader that may lack what was committed.",
    )
    yield Described(
        "kafka.controller",
        stats,
        "LeaderElectionRateAndTimeMs",
        "Milliseconds of an election, from the decision until it is synced. Of the last 1,024.",
        distribution=True,
    )


def _ours() -> Iterator[Described]:
    own = "understudy"
    for name, meaning in {
        "high_watermark_lag_records": "Records that this leader has and that are not committed.",
        "leader_epoch": "Leader epoch of a partition led here.",
    }.items():
        yield Described(own, "Partition", name, meaning, _PARTITION)
    for name, meaning in {
        "follower_lag_records": "Records that a follower lacks, as its leader sees it.",
        "follower_behind_seconds": "Since when a follower lacks anything, as its leader sees it:"
        " replica.lag.time.max.ms is compared with that.",
    }.items():
        yield Described(own, "Follower", name, meaning, (*_PARTITION, "follower"))
    yield Described(own, "Node", "events_total", "Events of that kind.", ("event",))
    yield Described(
        own,
        "Node",
        "connections_refused_total",
        "Connections that were closed as they came in: their address had too many"
        " (max.connections.per.ip), or only the descriptors kept for files were left.",
    )
    yield Described(own, "Node", "truncations_total", "Times that a log was cut at its end.")
    yield Described(own, "Node", "truncated_records_total", "Offsets that were cut off.")
    yield Described(
        own,
        "Node",
        "divergence_offset",
        "Where this replica's log was last cut because it had parted from its leader's.",
        _PARTITION,
    )
    yield Described(own, "Cluster", "broker_up", "1 while that broker runs.", ("broker",))
    yield Described(own, "Process", "bugs_total", "Mistakes of ours that were caught.")
    yield Described(
        own,
        "Process",
        "loop_stall_seconds",
        "How late the loop woke who was due. Of the last 1,024 times, 20 each second.",
        distribution=True,
    )
    yield Described(own, "Process", "loop_stall_max_seconds", "The greatest of those.")
    for name, meaning in {
        "cpu_seconds_total": "Seconds of processor time, of users and the kernel.",
        "resident_memory_bytes": "Resident memory.",
        "open_fds": "Open files and sockets.",
    }.items():
        yield Described("process", "Process", name, meaning)


CATALOGUE: Final[Mapping[tuple[str, str, str], Described]] = {
    each.key: each
    for part in (
        _replica_manager,
        _fetchers,
        _topics,
        _requests,
        _logs,
        _groups,
        _controller,
        _ours,
    )
    for each in part()
}


def help_of(name: MetricName) -> str:
    """Its object name where nobody has said more."""
    found = CATALOGUE.get((name.group, name.type, name.name))
    return str(name) if found is None else found.meaning
