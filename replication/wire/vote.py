"""Vote (KIP-595, 853, 996): a voter of the metadata log's quorum asks the others for their votes.

Version 1 brought directory ids, so that a voter that lost its disk is another voter, and
version 2 the pre-vote, by which a voter learns whether it could win before it begins an epoch.
"""

from replication.wire.schema import (
    array,
    boolean,
    define,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


@define(kw_only=True)
class VotePartition:
    """A candidate's request for one partition; `last_offset` is the end of its log."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("1+")
    voter_directory_id: bytes = uuid("1+")
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


@define(kw_only=True)
class VoteTopic:
    topic_name: str = string()
    partitions: list[VotePartition] = array(VotePartition)


@define(kw_only=True)
class VoteRequest:
    """`voter_id` is the id of the receiver."""

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[VoteTopic] = array(VoteTopic)


@define(kw_only=True)
class VotedPartition:
    """The vote of one voter, with the leader and the epoch that it knows."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


@define(kw_only=True)
class VotedTopic:
    topic_name: str = string()
    partitions: list[VotedPartition] = array(VotedPartition)


@define(kw_only=True)
class QuorumEndpoint:
    """Where to reach a leader that a response of the quorum names."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


@define(kw_only=True)
class VoteResponse:
    error_code: int = int16()
    topics: list[VotedTopic] = array(VotedTopic)
    node_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, "1+", tag=0)
