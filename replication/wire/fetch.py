"""Fetch (KIP-74, 227, 392, 516, 595, 903, 951, 1166): reads the records of partitions, for followers and consumers.

version   what it brought
5         log_start_offset, so that deletion reaches followers (KIP-107)
7         incremental fetch sessions (KIP-227): session id, epoch, forgotten topics
9         current_leader_epoch (KIP-320)
11        the consumer's rack (KIP-392)
12        flexible; last_fetched_epoch, and divergence in the answer (KIP-595)
13        topic ids instead of names (KIP-516)
15        replica_state in the tagged section instead of replica_id (KIP-903)
16        the addresses of new leaders (KIP-951)
17        the follower's directory id (KIP-853)
18        the follower's high watermark, in the quorum (KIP-1166); brokers neither send nor use it
"""

from replication.wire.metadata import NO_CURRENT_LEADER, LeaderIdAndEpoch, NodeEndpoint
from replication.wire.schema import (
    Kind,
    Part,
    array,
    define,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)
from storage.attributes import frozen

CONSUMER_REPLICA_ID = -1
NO_HIGH_WATERMARK_ASKED = 2**63 - 1
"""The high watermark in the request of a follower that does not wait for a higher one."""
DEBUGGING_REPLICA_ID = -2
"""The replica id of a client that may read from any replica."""
FIRST_VERSION_WITH_TOPIC_IDS = 13


@frozen(kw_only=True)
class ReplicaState:
    """The id and the epoch of the follower that fetches."""

    replica_id: int = int32(default=CONSUMER_REPLICA_ID)
    replica_epoch: int = int64(default=-1)


@define(kw_only=True)
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=NO_HIGH_WATERMARK_ASKED, tag=1)


@define(kw_only=True)
class FetchTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


@define(kw_only=True)
class ForgottenTopic:
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array(Kind.INT32, "7+")


@define(kw_only=True)
class FetchRequest:
    """A follower sets `replica_id` and `replica_state` both; the version takes its own."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=CONSUMER_REPLICA_ID)
    replica_state: ReplicaState = struct(ReplicaState, "15+", default=ReplicaState(), tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2**31 - 1)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")

    @property
    def replica(self) -> ReplicaState:
        """The id of the follower that fetches, from the field that the version has for it."""
        if (
            self.replica_state.replica_id == CONSUMER_REPLICA_ID
            and self.replica_id != CONSUMER_REPLICA_ID
        ):
            return ReplicaState(replica_id=self.replica_id)
        return self.replica_state


@frozen(kw_only=True)
class DivergingEpoch:
    """The leader's largest epoch at or below the follower's, and its end offset."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@frozen(kw_only=True)
class FetchSnapshotId:
    end_offset: int = int64("12+", default=-1)
    epoch: int = int32("12+", default=-1)


NO_DIVERGENCE = DivergingEpoch()
NO_SNAPSHOT = FetchSnapshotId()


@define(kw_only=True)
class AbortedTransactionData:
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@define(kw_only=True)
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: DivergingEpoch = struct(DivergingEpoch, "12+", default=NO_DIVERGENCE, tag=0)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, "12+", default=NO_CURRENT_LEADER, tag=1
    )
    snapshot_id: FetchSnapshotId = struct(FetchSnapshotId, "12+", default=NO_SNAPSHOT, tag=2)
    aborted_transactions: list[AbortedTransactionData] | None = array(
        AbortedTransactionData, "4+", nullable="4+", null_by_default=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    # Null is allowed on the wire, but Kafka's own broker says "nothing" with no bytes.
    records: Part | None = records(default=b"")


@define(kw_only=True)
class FetchableTopicResponse:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


@define(kw_only=True)
class FetchResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
