"""BeginQuorumEpoch (KIP-595, KIP-853): a new leader of the quorum tells the voters of its epoch."""

from replication.wire.control_records import VoterEndpoint
from replication.wire.schema import array, define, int16, int32, string, uuid
from replication.wire.vote import QuorumEndpoint


@define(kw_only=True)
class BegunPartition:
    partition_index: int = int32()
    voter_directory_id: bytes = uuid("1+")
    leader_id: int = int32()
    leader_epoch: int = int32()


@define(kw_only=True)
class BegunTopic:
    topic_name: str = string()
    partitions: list[BegunPartition] = array(BegunPartition)


@define(kw_only=True)
class BeginQuorumEpochRequest:
    """`voter_id` is the id of the receiver."""

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[BegunTopic] = array(BegunTopic)
    leader_endpoints: list[VoterEndpoint] = array(VoterEndpoint, "1+")


@define(kw_only=True)
class QuorumEpochPartition:
    """The leader and the epoch that the receiver knows after the request."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


@define(kw_only=True)
class QuorumEpochTopic:
    topic_name: str = string()
    partitions: list[QuorumEpochPartition] = array(QuorumEpochPartition)


@define(kw_only=True)
class BeginQuorumEpochResponse:
    error_code: int = int16()
    topics: list[QuorumEpochTopic] = array(QuorumEpochTopic)
    node_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, "1+", tag=0)
