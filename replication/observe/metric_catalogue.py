"""The meaning of every metric: its help text on `/metrics`, and docs/metrics.md.

A test compares this list with a running cluster: the cluster serves exactly these metrics.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from replication.metrics import MetricName
from storage.attributes import frozen

# group:type, the tags of the series, and below it the name and the meaning of each metric.
_TABLE: Final = """
kafka.server:ReplicaManager
    UnderReplicatedPartitions: Partitions led here whose ISR lacks a replica.
    UnderMinIsrPartitionCount: Partitions led here whose ISR is below min.insync.replicas.
    AtMinIsrPartitionCount: Partitions led here whose ISR is exactly min.insync.replicas.
    OfflineReplicaCount: Replicas here whose log cannot be used because their disk has failed.
    LeaderCount: Partitions led here.
    PartitionCount: Replicas here, leading or not.
    ReassigningPartitions: Partitions led here whose replicas are being moved.
    PartitionsWithLateTransactionsCount: Partitions led here with a transaction that has been open
        for longer than transaction.max.timeout.ms and five minutes.
    ProducerIdCount: Idempotent producers whose state the logs here keep.
    IsrShrinksPerSec: Times that a partition led here has lost a member of its ISR.
    IsrExpandsPerSec: Times that a partition led here has gained a member of its ISR.
    FailedIsrUpdatesPerSec: ISR changes that the controller has refused.
kafka.server:ReplicaFetcherManager clientId
    MaxLag: Records that the partition furthest behind its leader lacks.
    MinFetchRate: Fetches per second of the slowest fetcher, over a minute.
    FailedPartitionsCount: Followed partitions that are no longer fetched.
    DeadThreadCount: Fetchers that ended although they were not stopped.
kafka.server:FetcherStats clientId brokerHost brokerPort
    RequestsPerSec: Fetches sent to a leader.
    BytesPerSec: Bytes of records fetched from a leader.
kafka.server:FetcherLagMetrics clientId topic partition
    ConsumerLag: Records of the leader that this follower lacks; -1 before the first response.
kafka.server:FetchSessionCache
    NumIncrementalFetchSessions: Fetch sessions that this broker keeps (KIP-227).
    NumIncrementalFetchPartitionsCached: Partitions in these fetch sessions.
    IncrementalFetchSessionEvictionsPerSec: Fetch sessions that were closed to make room for others.
kafka.server:BrokerTopicMetrics topic
    MessagesInPerSec: Records that producers have appended. Without the tag `topic`: the sum over
        all topics.
    BytesInPerSec: Bytes of batches that producers have appended. Without the tag `topic`: the sum
        over all topics.
    BytesOutPerSec: Bytes of batches sent to consumers. Without the tag `topic`: the sum over all
        topics.
    TotalProduceRequestsPerSec: Partitions named by produce requests. Without the tag `topic`: the
        sum over all topics.
    FailedProduceRequestsPerSec: Partitions named by produce requests that failed unexpectedly.
        Without the tag `topic`: the sum over all topics.
    TotalFetchRequestsPerSec: Partitions named by fetch requests that were looked at. Without the
        tag `topic`: the sum over all topics.
kafka.server:BrokerTopicMetrics
    ReplicationBytesInPerSec: Bytes of batches fetched from leaders.
    ReplicationBytesOutPerSec: Bytes of batches sent to followers.
    ReassignmentBytesInPerSec: Bytes of batches fetched for a replica that is being added.
    InvalidMessageCrcRecordsPerSec: Partitions of produce requests refused as corrupt: their CRC-32C
        does not match, or a batch is incomplete.
kafka.network:RequestMetrics request version
    RequestsPerSec: Requests read.
kafka.network:RequestMetrics request (distribution)
    RequestQueueTimeMs: Milliseconds of a request, from its last byte until its handler begins,
        while it is decoded and checked. The last 1,024 requests count.
    LocalTimeMs: Milliseconds of a request, in the handler, without remote waits. The last 1,024
        requests count.
    RemoteTimeMs: Milliseconds of a request, in purgatories, waiting for followers, bytes or
        deletions. The last 1,024 requests count.
    ResponseQueueTimeMs: Milliseconds of a request, from the end of the handler until the response
        is sent, while it is encoded. The last 1,024 requests count.
    ResponseSendTimeMs: Milliseconds of a request, until the kernel has taken the response. The last
        1,024 requests count.
    TotalTimeMs: Milliseconds of a request, in total. The last 1,024 requests count.
kafka.network:RequestMetrics request attribute
    RequestBytes: Bytes of a request, without its length.
    RequestBodyBytes: Bytes of a request, without its length and header. Kafka has no such metric.
kafka.server:socket-server-metrics
    connection-count: Connections open now.
kafka.server:DelayedOperationPurgatory delayedOperation
    PurgatorySize: Partitions that delayed requests wait for, counted for each request.
    NumDelayedOperations: Delayed requests.
kafka.log:Log topic partition
    LogEndOffset: Offset of the next record.
    LogStartOffset: Offset of the first record.
    Size: Bytes of all batches.
    NumLogSegments: Segments of the log.
kafka.cluster:Partition topic partition
    UnderReplicated: 1 if the ISR lacks a replica; 0 on a follower.
    InSyncReplicasCount: Members of the ISR; 0 on a follower.
    UnderMinIsr: 1 if the ISR is below min.insync.replicas; 0 on a follower.
    AtMinIsr: 1 if the ISR is exactly min.insync.replicas; 0 on a follower.
    ReplicasCount: Replicas of the partition; 0 on a follower.
    LastStableOffsetLag: Records from the last stable offset to the high watermark.
kafka.log:LogCleaner
    cleaner-recopy-percent: The share of the bytes read by compaction that it has written again.
    max-clean-time-secs: Seconds of the longest last round of a cleaner.
    max-buffer-utilization-percent: The fill level of the fullest offset map.
    max-compaction-delay-secs: Seconds by which the most overdue log exceeds max.compaction.lag.ms.
    DeadThreadCount: Cleaners that have ended because of a bug.
kafka.log:LogCleanerManager
    max-dirty-percent: The dirty share of the dirtiest log.
kafka.log:LogCleanerManager logDirectory
    uncleanable-partitions-count: Logs that cannot be compacted.
kafka.coordinator.group:GroupMetadataManager
    NumGroups: Consumer groups coordinated here.
    NumOffsets: Offsets that these groups have committed.
    NumGroupsEmpty: Consumer groups coordinated here that are Empty.
    NumGroupsPreparingRebalance: Consumer groups coordinated here that are PreparingRebalance.
    NumGroupsCompletingRebalance: Consumer groups coordinated here that are CompletingRebalance.
    NumGroupsStable: Consumer groups coordinated here that are Stable.
    NumGroupsDead: Consumer groups coordinated here that are Dead.
kafka.controller:KafkaController
    ActiveControllerCount: 1 on the controller that decides, 0 on the others.
    ActiveBrokerCount: Brokers registered and not fenced.
    FencedBrokerCount: Brokers registered and fenced.
    GlobalTopicCount: Topics.
    GlobalPartitionCount: Partitions.
    OfflinePartitionsCount: Partitions without a leader.
    PreferredReplicaImbalanceCount: Partitions that their first replica does not lead.
kafka.server:raft-metrics
    current-leader: Id of the leader of the metadata log, as this controller knows it; -1 if it knows none.
    current-epoch: Leader epoch of the quorum, as this controller knows it.
    current-vote: Id of the controller that this one has voted for in its epoch; -1 for none.
    high-watermark: Offset below which the metadata log is committed, as this controller knows it.
    log-end-offset: End of this controller's metadata log.
    log-end-epoch: Leader epoch of the last record in this controller's metadata log.
    number-of-voters: Controllers that vote.
kafka.server:raft-metrics state
    current-state: 1 for the state that this controller is in, 0 for the others.
kafka.controller:ControllerStats
    UncleanLeaderElectionsPerSec: Elections of a leader that may lack committed records.
kafka.controller:ControllerStats (distribution)
    LeaderElectionRateAndTimeMs: Milliseconds of an election, from the decision until it is synced.
        The last 1,024 count.
understudy:Partition topic partition
    high_watermark_lag_records: Records of this leader that are not committed yet.
    leader_epoch: Leader epoch of a partition led here.
understudy:Follower topic partition follower
    follower_lag_records: Records that a follower lacks, as its leader sees it.
    follower_behind_seconds: Seconds since a follower was last caught up, as its leader sees it; the
        limit is replica.lag.time.max.ms.
understudy:Node event
    events_total: Events of this kind.
understudy:Node
    connections_refused_total: Connections that were closed at once: their address had too many
        (max.connections.per.ip), or no file descriptor was free for them.
    truncations_total: Times that a log was truncated.
    truncated_records_total: Offsets that were truncated.
understudy:Node topic partition
    divergence_offset: The offset to which this replica was last truncated because its log diverged.
understudy:Cluster broker
    broker_up: 1 while this broker runs.
understudy:Process
    bugs_total: Bugs of understudy that were caught.
understudy:Process (distribution)
    loop_stall_seconds: How late the event loop woke a task. The last 1,024 measurements count, 20 a
        second.
understudy:Process
    loop_stall_max_seconds: The greatest of these delays.
process:Process
    cpu_seconds_total: Seconds of processor time, in user and kernel mode.
    resident_memory_bytes: Resident memory.
    open_fds: Open files and sockets.
"""


@frozen
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


def _descriptions(table: str) -> Iterator[MetricDescription]:
    """Yield the metrics of `table`; a meaning goes on in lines that are indented further."""
    group, kind, is_distribution = "", "", False
    tags: tuple[str, ...] = ()
    for line in table.replace("\n        ", " ").splitlines():
        if line.startswith("    "):
            name, _, meaning = line.strip().partition(": ")
            yield MetricDescription(group, kind, name, meaning, tags, is_distribution)
        elif line:
            family, *words = line.split()
            group, _, kind = family.partition(":")
            is_distribution = "(distribution)" in words
            tags = tuple(word for word in words if word != "(distribution)")


CATALOGUE: Final[Mapping[tuple[str, str, str], MetricDescription]] = {
    each.key: each for each in _descriptions(_TABLE)
}


def help_of(name: MetricName) -> str:
    """Return the help text of a metric; its object name if the catalogue lacks it."""
    found = CATALOGUE.get((name.group, name.type, name.name))
    return str(name) if found is None else found.meaning
