"""Kafka's requests of the quorum, and the values of the rules in them.

    Send ──> request ─ ─ ─> (request, sender) ──> event ──> step ──> Reply ──> response
    Reply <── response <─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘

Each request is about one partition of one topic: the metadata log. One about anything else is an
INVALID_REQUEST as a whole, as another cluster's is INCONSISTENT_CLUSTER_ID (RaftUtil).
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from replication.errors import ErrorCode, ProtocolError
from replication.metadata.rules.records import METADATA_PARTITION
from replication.raft.rules.messages import (
    BeginCall,
    BeginReceived,
    EndCall,
    EndReceived,
    Reply,
    Send,
    VoteCall,
    VoteReceived,
)
from replication.raft.rules.quorum import Quorum
from replication.raft.rules.types import (
    NO_DIRECTORY_ID,
    NO_ENDPOINTS,
    Endpoints,
    ListenerAddress,
    ReplicaKey,
)
from replication.raft.rules.voters import from_wire, to_wire
from replication.wire.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BegunPartition,
    BegunTopic,
    QuorumEpochPartition,
    QuorumEpochTopic,
)
from replication.wire.end_quorum_epoch import (
    EndedPartition,
    EndedTopic,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    PreferredCandidate,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.vote import (
    QuorumEndpoint,
    VotedPartition,
    VotedTopic,
    VotePartition,
    VoteRequest,
    VoteResponse,
    VoteTopic,
)
from storage.types import NO_LEADER_EPOCH, LeaderEpoch

QuorumRequest: TypeAlias = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
QuorumResponse: TypeAlias = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse
Received: TypeAlias = VoteReceived | BeginReceived | EndReceived
WHOLE_ERRORS: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID,)


def request_of(send: Send, quorum: Quorum) -> QuorumRequest:
    """Return the request that says what `send` says."""
    me, to = quorum.me, send.to
    index = METADATA_PARTITION.partition
    match send.call:
        case VoteCall() as vote:
            asked = VotePartition(
                partition_index=index,
                replica_epoch=vote.leader_epoch,
                replica_id=me.id,
                replica_directory_id=me.directory_id,
                voter_directory_id=to.directory_id,
                last_offset_epoch=vote.last_epoch,
                last_offset=vote.end_offset,
                pre_vote=vote.pre_vote,
            )
            return VoteRequest(
                cluster_id=quorum.cluster_id,
                voter_id=to.id,
                topics=[VoteTopic(topic_name=METADATA_PARTITION.topic, partitions=[asked])],
            )
        case BeginCall() as begin:
            begun = BegunPartition(
                partition_index=index,
                voter_directory_id=to.directory_id,
                leader_id=me.id,
                leader_epoch=begin.leader_epoch,
            )
            return BeginQuorumEpochRequest(
                cluster_id=quorum.cluster_id,
                voter_id=to.id,
                topics=[BegunTopic(topic_name=METADATA_PARTITION.topic, partitions=[begun])],
                leader_endpoints=to_wire(quorum.endpoints),
            )
        case EndCall() as end:
            ended = EndedPartition(
                partition_index=index,
                leader_id=me.id,
                leader_epoch=end.leader_epoch,
                preferred_candidates=[
                    PreferredCandidate(
                        candidate_id=each.id, candidate_directory_id=each.directory_id
                    )
                    for each in end.successors
                ],
            )
            return EndQuorumEpochRequest(
                cluster_id=quorum.cluster_id,
                topics=[EndedTopic(topic_name=METADATA_PARTITION.topic, partitions=[ended])],
                leader_endpoints=to_wire(quorum.endpoints),
            )


def event_of(request: QuorumRequest) -> Received | None:
    """Return what `request` says; None where it is not about the metadata log alone."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    name, index = request.topics[0].topic_name, request.topics[0].partitions[0].partition_index
    return _received(request) if (name, index) == METADATA_PARTITION else None


def _received(request: QuorumRequest) -> Received:
    match request:
        case VoteRequest():
            vote = request.topics[0].partitions[0]
            return VoteReceived(
                candidate=ReplicaKey(vote.replica_id, vote.replica_directory_id),
                call=VoteCall(
                    leader_epoch=vote.replica_epoch,
                    last_epoch=vote.last_offset_epoch,
                    end_offset=vote.last_offset,
                    pre_vote=vote.pre_vote,
                ),
                voter=_voter(request.voter_id, vote.voter_directory_id),
                cluster_id=request.cluster_id,
            )
        case BeginQuorumEpochRequest():
            begun = request.topics[0].partitions[0]
            return BeginReceived(
                leader_id=begun.leader_id,
                call=BeginCall(leader_epoch=begun.leader_epoch),
                leader_endpoints=from_wire(request.leader_endpoints),
                voter=_voter(request.voter_id, begun.voter_directory_id),
                cluster_id=request.cluster_id,
            )
        case EndQuorumEpochRequest():
            ended = request.topics[0].partitions[0]
            return EndReceived(
                leader_id=ended.leader_id,
                call=EndCall(leader_epoch=ended.leader_epoch, successors=_successors(ended)),
                leader_endpoints=from_wire(request.leader_endpoints),
                cluster_id=request.cluster_id,
            )


def _voter(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


def _successors(asked: EndedPartition) -> tuple[ReplicaKey, ...]:
    if asked.preferred_candidates:
        return tuple(
            ReplicaKey(each.candidate_id, each.candidate_directory_id)
            for each in asked.preferred_candidates
        )
    return tuple(ReplicaKey(each, NO_DIRECTORY_ID) for each in asked.preferred_successors)


def response_of(request: QuorumRequest, reply: Reply | None, listener: str) -> QuorumResponse:
    """Return the response with `reply`; None is the answer to a request about another log."""
    if reply is None or reply.error in WHOLE_ERRORS:
        return refused(request, ErrorCode.INVALID_REQUEST if reply is None else reply.error)
    topic, index = METADATA_PARTITION
    nodes = node_endpoints(reply, listener)
    if isinstance(request, VoteRequest):
        voted = VotedPartition(
            partition_index=index,
            error_code=reply.error,
            leader_id=leader_id_of(reply),
            leader_epoch=reply.leader_epoch,
            vote_granted=reply.vote_granted,
        )
        return VoteResponse(
            error_code=ErrorCode.NONE,
            topics=[VotedTopic(topic_name=topic, partitions=[voted])],
            node_endpoints=nodes,
        )
    known = QuorumEpochPartition(
        partition_index=index,
        error_code=reply.error,
        leader_id=leader_id_of(reply),
        leader_epoch=reply.leader_epoch,
    )
    response = refused(request, ErrorCode.NONE)
    assert not isinstance(response, VoteResponse), "it answers the same request"
    response.topics = [QuorumEpochTopic(topic_name=topic, partitions=[known])]
    response.node_endpoints = nodes
    return response


def refused(request: QuorumRequest, error: ErrorCode) -> QuorumResponse:
    """Return a response about no partition, with an error for the whole."""
    match request:
        case VoteRequest():
            return VoteResponse(error_code=error, topics=[])
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(error_code=error, topics=[])
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(error_code=error, topics=[])


def leader_id_of(reply: Reply) -> int:
    """Return the leader's node id, -1 where it is not known."""
    return NO_LEADER if reply.leader_id is None else reply.leader_id


def node_endpoints(reply: Reply, listener: str) -> list[QuorumEndpoint]:
    """Return where the leader is reached; an empty list where that is not known."""
    where = reply.leader_endpoints.address(listener)
    if where is None or reply.leader_id is None:
        return []
    return [QuorumEndpoint(node_id=reply.leader_id, host=where.host, port=where.port)]


def reply_of(response: QuorumResponse, listener: str) -> Reply:
    """Return what `response` says; raise ProtocolError where it says nothing of the metadata log."""
    if response.error_code != ErrorCode.NONE:
        return Reply(error=ErrorCode.of(response.error_code), leader_epoch=NO_LEADER_EPOCH)
    answered = [each for topic in response.topics for each in topic.partitions]
    if len(answered) != 1:
        raise ProtocolError("a controller answers for another log than the metadata log")
    found = answered[0]
    return answer_about(
        error=found.error_code,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        nodes=[(each.node_id, each.host, each.port) for each in response.node_endpoints],
        listener=listener,
        vote_granted=isinstance(found, VotedPartition) and found.vote_granted,
    )


def answer_about(
    *,
    error: int,
    leader_id: int,
    leader_epoch: LeaderEpoch,
    nodes: Sequence[tuple[int, str, int]],
    listener: str,
    vote_granted: bool = False,
) -> Reply:
    """Return a reply with the leader that a response names, and where that is reached."""
    where = [
        ListenerAddress(listener, host, port) for node, host, port in nodes if node == leader_id
    ]
    return Reply(
        error=ErrorCode.of(error),
        leader_epoch=leader_epoch,
        leader_id=None if leader_id < 0 else leader_id,
        leader_endpoints=Endpoints(tuple(where)) if where else NO_ENDPOINTS,
        vote_granted=vote_granted,
    )
