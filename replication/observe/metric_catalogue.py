"""The meaning of every metric: its help text on `/metrics`, and docs/metrics.md.

A test compares this list with a running cluster: the cluster serves exactly these metrics.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from replication.groups.rules.group import GroupState
from replication.metrics import MetricName
from replication.server.request_metrics import TIMES


@attrs.frozen
class MetricDescription:
    """A metric: all series of one group, type and name."""

    group: str
    type: str
    name: str
    meaning: str
    tags: tuple[str, ...] = ()
    """The names of all tags that its series have; some series may lack some of them."""
    distribution: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.type, self.name

    @property
    def example(self) -> MetricName:
        return MetricName(*self.key, tuple((tag, "...") for tag in self.tags))


_PARTITION = ("topic", "partition")


def _replica_manager() -> Iterator[MetricDescription]:
    for name, meaning in {
        "UnderReplicatedPartitions": "Partitions led here whose ISR lacks a replica.",
        "UnderMinIsrPartitionCount": "Partitions led here whose ISR is below min.insync.replicas.",
        "AtMinIsrPartitionCount": "Partitions led here whose ISR is exactly min.insync.replicas.",
        "OfflineReplicaCount": "Replicas here whose log cannot be used because their disk has failed.",
        "LeaderCount": "Partitions led here.",
        "PartitionCount": "Replicas here, leading or not.",
        "ReassigningPartitions": "Partitions led here whose replicas are being moved.",
        "PartitionsWithLateTransactionsCount": "Partitions led here with a transaction that has been open"
        " for longer than transaction.max.timeout.ms and five minutes.",
        "ProducerIdCount": "Idempotent producers whose state the logs here keep.",
        "IsrShrinksPerSec": "Times that a partition led here has lost a member of its ISR.",
        "IsrExpandsPerSec": "Times that a partition led here has gained a member of its ISR.",
        "FailedIsrUpdatesPerSec": "ISR changes that the controller has refused.",
    }.items():
        yield MetricDescription("kafka.server", "ReplicaManager", name, meaning)


def _fetchers() -> Iterator[MetricDescription]:
    client = ("clientId",)
    for name, meaning in {
        "MaxLag": "Records that the partition furthest behind its leader lacks.",
        "MinFetchRate": "Fetches per second of the slowest fetcher, over a minute.",
        "FailedPartitionsCount": "Followed partitions that are no longer fetched.",
        "DeadThreadCount": "Fetchers that ended although they were not stopped.",
    }.items():
        yield MetricDescription("kafka.server", "ReplicaFetcherManager", name, meaning, client)
    of_fetcher = ("clientId", "brokerHost", "brokerPort")
    yield MetricDescription(
        "kafka.server", "FetcherStats", "RequestsPerSec", "Fetches sent to a leader.", of_fetcher
    )
    yield MetricDescription(
        "kafka.server",
        "FetcherStats",
        "BytesPerSec",
        "Bytes of records fetched from a leader.",
        of_fetcher,
    )
    yield MetricDescription(
        "kafka.server",
        "FetcherLagMetrics",
        "ConsumerLag",
        "Records of the leader that this follower lacks; -1 before the first response.",
        (*client, *_PARTITION),
    )
    for name, meaning in {
        "NumIncrementalFetchSessions": "Fetch sessions that this broker keeps (KIP-227).",
        "NumIncrementalFetchPartitionsCached": "Partitions in these fetch sessions.",
        "IncrementalFetchSessionEvictionsPerSec": "Fetch sessions that were closed to make room for others.",
    }.items():
        yield MetricDescription("kafka.server", "FetchSessionCache", name, meaning)


def _topics() -> Iterator[MetricDescription]:
    for name, meaning in {
        "MessagesInPerSec": "Records that producers have appended.",
        "BytesInPerSec": "Bytes of batches that producers have appended.",
        "BytesOutPerSec": "Bytes of batches sent to consumers.",
        "TotalProduceRequestsPerSec": "Partitions named by produce requests.",
        "FailedProduceRequestsPerSec": "Partitions named by produce requests that failed unexpectedly.",
        "TotalFetchRequestsPerSec": "Partitions named by fetch requests that were looked at.",
    }.items():
        text = f"{meaning} Without the tag `topic`: the sum over all topics."
        yield MetricDescription("kafka.server", "BrokerTopicMetrics", name, text, ("topic",))
    for name, meaning in {
        "ReplicationBytesInPerSec": "Bytes of batches fetched from leaders.",
        "ReplicationBytesOutPerSec": "Bytes of batches sent to followers.",
        "ReassignmentBytesInPerSec": "Bytes of batches fetched for a replica that is being added.",
        "InvalidMessageCrcRecordsPerSec": "Partitions of produce requests refused as corrupt:"
        " their CRC-32C does not match, or a batch is incomplete.",
    }.items():
        yield MetricDescription("kafka.server", "BrokerTopicMetrics", name, meaning)


def _requests() -> Iterator[MetricDescription]:
    request = ("request",)
    yield MetricDescription(
        "kafka.network", "RequestMetrics", "RequestsPerSec", "Requests read.", (*request, "version")
    )
    meanings = (
        "from its last byte until its handler begins, while it is decoded and checked",
        "in the handler, without remote waits",
        "in purgatories, waiting for followers, bytes or deletions",
        "from the end of the handler until the response is sent, while it is encoded",
        "until the kernel has taken the response",
        "in total",
    )
    for name, meaning in zip(TIMES, meanings, strict=True):
        text = f"Milliseconds of a request, {meaning}. The last 1,024 requests count."
        yield MetricDescription(
            "kafka.network", "RequestMetrics", name, text, request, distribution=True
        )
    for name, meaning in {
        "RequestBytes": "Bytes of a request, without its length.",
        "RequestBodyBytes": "Bytes of a request, without its length and header. Kafka has no such metric.",
    }.items():
        tags = (*request, "attribute")
        yield MetricDescription("kafka.network", "RequestMetrics", name, meaning, tags)
    yield MetricDescription(
        "kafka.server", "socket-server-metrics", "connection-count", "Connections open now."
    )
    for name, meaning in {
        "PurgatorySize": "Partitions that delayed requests wait for, counted for each request.",
        "NumDelayedOperations": "Delayed requests.",
    }.items():
        operation = ("delayedOperation",)
        yield MetricDescription(
            "kafka.server", "DelayedOperationPurgatory", name, meaning, operation
        )


def _logs() -> Iterator[MetricDescription]:
    for name, meaning in {
        "LogEndOffset": "Offset of the next record.",
        "LogStartOffset": "Offset of the first record.",
        "Size": "Bytes of all batches.",
        "NumLogSegments": "Segments of the log.",
    }.items():
        yield MetricDescription("kafka.log", "Log", name, meaning, _PARTITION)
    for name, meaning in {
        "UnderReplicated": "1 if the ISR lacks a replica; 0 on a follower.",
        "InSyncReplicasCount": "Members of the ISR; 0 on a follower.",
        "UnderMinIsr": "1 if the ISR is below min.insync.replicas; 0 on a follower.",
        "AtMinIsr": "1 if the ISR is exactly min.insync.replicas; 0 on a follower.",
        "ReplicasCount": "Replicas of the partition; 0 on a follower.",
        "LastStableOffsetLag": "Records from the last stable offset to the high watermark.",
    }.items():
        yield MetricDescription("kafka.cluster", "Partition", name, meaning, _PARTITION)
    for name, meaning in {
        "cleaner-recopy-percent": "The share of the bytes read by compaction that it has written again.",
        "max-clean-time-secs": "Seconds of the longest last round of a cleaner.",
        "max-buffer-utilization-percent": "The fill level of the fullest offset map.",
        "max-compaction-delay-secs": "Seconds by which the most overdue log exceeds max.compaction.lag.ms.",
        "DeadThreadCount": "Cleaners that have ended because of a bug.",
    }.items():
        yield MetricDescription("kafka.log", "LogCleaner", name, meaning)
    manager = "LogCleanerManager"
    yield MetricDescription(
        "kafka.log", manager, "max-dirty-percent", "The dirty share of the dirtiest log."
    )
    yield MetricDescription(
        "kafka.log",
        manager,
        "uncleanable-partitions-count",
        "Logs that cannot be compacted.",
        ("logDirectory",),
    )


def _groups() -> Iterator[MetricDescription]:
    group, kind = "kafka.coordinator.group", "GroupMetadataManager"
    yield MetricDescription(group, kind, "NumGroups", "Consumer groups coordinated here.")
    yield MetricDescription(group, kind, "NumOffsets", "Offsets that these groups have committed.")
    for state in GroupState:
        meaning = f"Consumer groups coordinated here that are {state.value}."
        yield MetricDescription(group, kind, f"NumGroups{state.value}", meaning)


def _controller() -> Iterator[MetricDescription]:
    for name, meaning in {
        "ActiveControllerCount": "1 on the controller.",
        "ActiveBrokerCount": "Brokers registered and not fenced.",
        "FencedBrokerCount": "Brokers registered and fenced.",
        "GlobalTopicCount": "Topics.",
        "GlobalPartitionCount": "Partitions.",
        "OfflinePartitionsCount": "Partitions without a leader.",
        "PreferredReplicaImbalanceCount": "Partitions that their first replica does not lead.",
    }.items():
        yield MetricDescription("kafka.controller", "KafkaController", name, meaning)
    stats = "ControllerStats"
    yield MetricDescription(
        "kafka.controller",
        stats,
        "UncleanLeaderElectionsPerSec",
        "Elections of a leader that may lack committed records.",
    )
    yield MetricDescription(
        "kafka.controller",
        stats,
        "LeaderElectionRateAndTimeMs",
        "Milliseconds of an election, from the decision until it is synced. The last 1,024 count.",
        distribution=True,
    )


def _ours() -> Iterator[MetricDescription]:
    own = "understudy"
    for name, meaning in {
        "high_watermark_lag_records": "Records of this leader that are not committed yet.",
        "leader_epoch": "Leader epoch of a partition led here.",
    }.items():
        yield MetricDescription(own, "Partition", name, meaning, _PARTITION)
    for name, meaning in {
        "follower_lag_records": "Records that a follower lacks, as its leader sees it.",
        "follower_behind_seconds": "Seconds since a follower was last caught up, as its leader sees"
        " it; the limit is replica.lag.time.max.ms.",
    }.items():
        yield MetricDescription(own, "Follower", name, meaning, (*_PARTITION, "follower"))
    yield MetricDescription(own, "Node", "events_total", "Events of this kind.", ("event",))
    yield MetricDescription(
        own,
        "Node",
        "connections_refused_total",
        "Connections that were closed at once: their address had too many"
        " (max.connections.per.ip), or no file descriptor was free for them.",
    )
    yield MetricDescription(own, "Node", "truncations_total", "Times that a log was truncated.")
    yield MetricDescription(own, "Node", "truncated_records_total", "Offsets that were truncated.")
    yield MetricDescription(
        own,
        "Node",
        "divergence_offset",
        "The offset to which this replica was last truncated because its log diverged.",
        _PARTITION,
    )
    yield MetricDescription(own, "Cluster", "broker_up", "1 while this broker runs.", ("broker",))
    yield MetricDescription(own, "Process", "bugs_total", "Bugs of understudy that were caught.")
    yield MetricDescription(
        own,
        "Process",
        "loop_stall_seconds",
        "How late the event loop woke a task. The last 1,024 measurements count, 20 a second.",
        distribution=True,
    )
    yield MetricDescription(
        own, "Process", "loop_stall_max_seconds", "The greatest of these delays."
    )
    for name, meaning in {
        "cpu_seconds_total": "Seconds of processor time, in user and kernel mode.",
        "resident_memory_bytes": "Resident memory.",
        "open_fds": "Open files and sockets.",
    }.items():
        yield MetricDescription("process", "Process", name, meaning)


CATALOGUE: Final[Mapping[tuple[str, str, str], MetricDescription]] = {
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
    """Return the help text of a metric; its object name if the catalogue lacks it."""
    found = CATALOGUE.get((name.group, name.type, name.name))
    return str(name) if found is None else found.meaning
