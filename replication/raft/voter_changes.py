"""Kafka's requests that change the voters of the metadata log, and the values of the rules in them.

    AskLeader ──> request ─ ─ ─> request ──> event ──> step ──> Reply, or AnswerChange later
                                                                  │
    Reply <── UpdateRaftVoter's response <─ ─ ─ ─ ─ response <────┘
    AskLevels ──> ApiVersions ─ ─ ─> response ──> LevelsAnswered

Of the three only the response to UpdateRaftVoter names the leader.
"""

from typing import TypeAlias

from replication.errors import ErrorCode
from replication.raft.envelopes import answer_about, leader_id_of
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    LevelsAnswered,
    RemoveVoterReceived,
    Reply,
    UpdateVoterReceived,
)
from replication.raft.rules.types import ReplicaKey
from replication.raft.rules.voters import VoterNode, from_wire, to_wire
from replication.wire.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from replication.wire.api_versions import KRAFT_VERSION, ApiVersionsResponse
from replication.wire.control_records import KRaftVersionFeature
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from replication.wire.update_raft_voter import (
    UpdateRaftVoterLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

VoterRequest: TypeAlias = AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest
VoterResponse: TypeAlias = AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse
VoterEvent: TypeAlias = AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived


def voter_event(request: VoterRequest) -> VoterEvent:
    """Return what `request` says."""
    voter = ReplicaKey(request.voter_id, request.voter_directory_id)
    match request:
        case AddRaftVoterRequest():
            return AddVoterReceived(
                voter=voter,
                endpoints=from_wire(request.listeners),
                ack_when_committed=request.ack_when_committed,
                cluster_id=request.cluster_id,
            )
        case RemoveRaftVoterRequest():
            return RemoveVoterReceived(voter=voter, cluster_id=request.cluster_id)
        case UpdateRaftVoterRequest():
            return UpdateVoterReceived(
                node=VoterNode(voter, from_wire(request.listeners), request.kraft_version_feature),
                leader_epoch=request.current_leader_epoch,
                cluster_id=request.cluster_id,
            )


def voter_request(event: VoterEvent, *, timeout_ms: int) -> VoterRequest:
    """Return the request by which a node asks its leader for this."""
    match event:
        case AddVoterReceived(voter=voter):
            return AddRaftVoterRequest(
                cluster_id=event.cluster_id,
                timeout_ms=timeout_ms,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                listeners=to_wire(event.endpoints),
                ack_when_committed=event.ack_when_committed,
            )
        case RemoveVoterReceived(voter=voter):
            return RemoveRaftVoterRequest(
                cluster_id=event.cluster_id,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
            )
        case UpdateVoterReceived(node=node):
            return UpdateRaftVoterRequest(
                cluster_id=event.cluster_id,
                current_leader_epoch=event.leader_epoch,
                voter_id=node.key.id,
                voter_directory_id=node.key.directory_id,
                listeners=to_wire(node.endpoints),
                kraft_version_feature=node.kraft_versions,
            )


def voter_response(
    request: VoterRequest, answer: Reply | AnswerChange, listener: str
) -> VoterResponse:
    """Return the response with what the rules answer, at once or later."""
    match request:
        case AddRaftVoterRequest():
            return AddRaftVoterResponse(error_code=answer.error, error_message=answer.sentence)
        case RemoveRaftVoterRequest():
            return RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.sentence)
        case UpdateRaftVoterRequest():
            assert isinstance(answer, Reply), "a voter's report is answered at once"
            where = answer.leader_endpoints.address(listener)
            return UpdateRaftVoterResponse(
                error_code=answer.error,
                current_leader=UpdateRaftVoterLeader(
                    leader_id=leader_id_of(answer),
                    leader_epoch=answer.leader_epoch,
                    host="" if where is None else where.host,
                    port=0 if where is None else where.port,
                ),
            )


def report_reply(response: UpdateRaftVoterResponse, listener: str) -> Reply:
    """Return what the leader says to a voter that has reported."""
    leader = response.current_leader
    return answer_about(
        error=response.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        nodes=[(leader.leader_id, leader.host, leader.port)] if leader.host else [],
        listener=listener,
    )


def levels_in(voter_id: int, response: ApiVersionsResponse | None) -> LevelsAnswered:
    """Return which levels of `kraft.version` a replica supports; None means that it has not
    answered.
    """
    if response is None:
        return LevelsAnswered(voter_id=voter_id, error=ErrorCode.BROKER_NOT_AVAILABLE)
    named = [each for each in response.supported_features if each.name == KRAFT_VERSION]
    return LevelsAnswered(
        voter_id=voter_id,
        error=ErrorCode.of(response.error_code),
        supported=KRaftVersionFeature(
            min_supported_version=named[0].min_version,
            max_supported_version=named[0].max_version,
        )
        if named
        else None,
    )
