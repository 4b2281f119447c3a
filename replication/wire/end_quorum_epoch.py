"""EndQuorumEpoch (KIP-595, KIP-853): a leader that resigns asks the voters to elect another.

It names the voters in the order in which they should try: the further a voter's log, the
sooner. Version 0 names them by id, version 1 by id and directory.
"""

from replication.wire.begin_quorum_epoch import QuorumEpochTopic
from replication.wire.control_records import VoterEndpoint
from replication.wire.schema import Kind, array, define, int16, int32, string, uuid
from replication.wire.vote import QuorumEndpoint


@define(kw_only=True)
class PreferredCandidate:
    candidate_id: int = int32("1+")
    candidate_directory_id: bytes = uuid("1+")


@define(kw_only=True)
class EndedPartition:
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(Kind.INT32, "0")
    preferred_candidates: list[PreferredCandidate] = array(PreferredCandidate, "1+")


@define(kw_only=True)
class EndedTopic:
    topic_name: str = string()
    partitions: list[EndedPartition] = array(EndedPartition)


@define(kw_only=True)
class EndQuorumEpochRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[EndedTopic] = array(EndedTopic)
    leader_endpoints: list[VoterEndpoint] = array(VoterEndpoint, "1+")


@define(kw_only=True)
class EndQuorumEpochResponse:
    error_code: int = int16()
    topics: list[QuorumEpochTopic] = array(QuorumEpochTopic)
    node_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, "1+", tag=0)
