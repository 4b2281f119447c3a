"""DescribeQuorum (KIP-595, KIP-836, KIP-853): the controller, and how far each node has read its log."""

from replication.wire.control_records import VoterEndpoint
from replication.wire.schema import array, define, int16, int32, int64, string, uuid

QUORUM_TOPIC = "__cluster_metadata"
"""The name of Kafka's metadata log, which clients ask for."""


@define(kw_only=True)
class QuorumPartition:
    partition_index: int = int32()


@define(kw_only=True)
class QuorumTopic:
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@define(kw_only=True)
class DescribeQuorumRequest:
    topics: list[QuorumTopic] = array(QuorumTopic)


@define(kw_only=True)
class QuorumReplica:
    """A node that has a copy of the metadata log."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@define(kw_only=True)
class DescribedQuorum:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[QuorumReplica] = array(QuorumReplica)
    observers: list[QuorumReplica] = array(QuorumReplica)


@define(kw_only=True)
class DescribedQuorumTopic:
    topic_name: str = string()
    partitions: list[DescribedQuorum] = array(DescribedQuorum)


@define(kw_only=True)
class QuorumNode:
    node_id: int = int32("2+")
    listeners: list[VoterEndpoint] = array(VoterEndpoint, "2+")


@define(kw_only=True)
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[DescribedQuorumTopic] = array(DescribedQuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
