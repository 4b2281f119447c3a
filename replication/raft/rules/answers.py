"""The answers of peers to what a node of the quorum has sent.

An answer first tells of an epoch and a leader. The rest of it counts only for the epoch, and for the
kind of vote, that it was asked for. (Kafka: KafkaRaftClient, maybeHandleCommonResponse.)
"""

from collections.abc import Mapping
from typing import Final

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.log_view import Diverging
from replication.raft.rules.messages import (
    Answered,
    BeginCall,
    Call,
    FetchAnswered,
    LevelsAnswered,
    Misconfiguration,
    Reply,
    ReportAnswered,
    Send,
    TakeFetched,
    VoteCall,
)
from replication.raft.rules.quorum import call_to
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Prospective,
)
from replication.raft.rules.turn import QuorumTurn
from replication.raft.rules.voter_requests import levels_answered

REFUSED_FOR_GOOD: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "this node is of another cluster",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process has the node id of this one",
    ErrorCode.INVALID_VOTER_KEY: "its directory is not the one that the voter set names",
}
"""What a voter says that stays so until somebody mends the configuration of one of the two."""


def take_answer(
    turn: QuorumTurn, event: Answered | FetchAnswered | LevelsAnswered | ReportAnswered
) -> None:
    match event:
        case Answered(sent, reply):
            _answered(turn, sent, reply)
        case FetchAnswered(reply):
            _fetch_answered(turn, reply)
        case LevelsAnswered():
            levels_answered(turn, event)
        case ReportAnswered(reply):
            _report_answered(turn, reply)


def _answered(turn: QuorumTurn, sent: Send, reply: Reply) -> None:
    was = turn.quorum.state
    if reply.error in REFUSED_FOR_GOOD:
        _report_refusal(turn, f"controller {sent.to.id}", reply.error)
    if reply.error == ErrorCode.UNSUPPORTED_VERSION:
        # The peer is too old for a pre-vote, so there is none.
        if isinstance(was, Prospective) and _is_current(turn, sent.call):
            turn.enter_candidate(was.leader_epoch + 1)
        return
    is_heard = _hear_answer(turn, reply)
    if not is_heard or reply.error != ErrorCode.NONE:
        send_again(turn, sent)
    elif isinstance(sent.call, VoteCall) and _is_current(turn, sent.call):
        _count(turn, sent.to.id, granted=reply.vote_granted)


def _count(turn: QuorumTurn, voter_id: int, *, granted: bool) -> None:
    state = turn.quorum.state
    assert isinstance(state, Prospective | Candidate), "only they ask for votes"
    election = state.election.record(voter_id, granted=granted)
    turn.quorum = attrs.evolve(turn.quorum, state=attrs.evolve(state, election=election))
    turn.settle_election()


def send_again(turn: QuorumTurn, sent: Send) -> None:
    if _is_current(turn, sent.call) and not isinstance(sent.call, BeginCall):
        due_ms = turn.now_ms + turn.quorum.settings.retry_backoff_ms
        turn.quorum = attrs.evolve(turn.quorum, pending={**turn.quorum.pending, sent.to.id: due_ms})


def _is_current(turn: QuorumTurn, call: Call) -> bool:
    """Return whether the state that sent this still lasts."""
    now = call_to(turn.quorum, turn.log)
    if isinstance(call, VoteCall) and isinstance(now, VoteCall):
        return (call.pre_vote, call.leader_epoch) == (now.pre_vote, now.leader_epoch)
    return type(call) is type(now) and call.leader_epoch == turn.quorum.leader_epoch


def _hear_answer(turn: QuorumTurn, reply: Reply) -> bool:
    """Take the epoch and the leader from an answer. Return whether the rest of it counts."""
    epoch = turn.quorum.leader_epoch
    if reply.leader_epoch < epoch or reply.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    turn.hear(reply.leader_id, reply.leader_epoch, reply.leader_endpoints)
    return reply.leader_epoch == epoch


def _report_refusal(turn: QuorumTurn, peer: str, error: ErrorCode) -> None:
    turn.effects.append(Misconfiguration(f"{peer} says that {REFUSED_FOR_GOOD[error]}"))


def _fetch_answered(turn: QuorumTurn, reply: Reply) -> None:
    if reply.error in REFUSED_FOR_GOOD:
        knows_leader = reply.leader_id is not None
        asked = f"{reply.leader_id}, which leads," if knows_leader else "that was asked for records"
        _report_refusal(turn, f"the controller {asked}", reply.error)
    is_heard = _hear_answer(turn, reply)
    state = turn.quorum.state
    # The leader may have deleted the snapshot meanwhile: it is there, and is asked again.
    is_taken = reply.error in {ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND}
    if not (is_heard and is_taken and isinstance(state, Follower)):
        return
    committed, position = turn.quorum.high_watermark or 0, reply.position
    if isinstance(position, Diverging) and position.end.offset < committed:
        turn.disagree(f"the leader's log ends at {position.end.offset} of {committed} committed")
        return
    deadline_ms = turn.now_ms + turn.quorum.settings.fetch_timeout_ms
    turn.quorum = attrs.evolve(
        turn.quorum, state=attrs.evolve(state, deadline_ms=deadline_ms, has_fetched=True)
    )
    turn.effects.append(TakeFetched())


def _report_answered(turn: QuorumTurn, reply: Reply) -> None:
    is_heard = _hear_answer(turn, reply)
    is_taken = reply.error in {ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION}
    if not (is_heard and is_taken and isinstance(turn.quorum.state, Follower)):
        return
    state = turn.quorum.state
    if state.deadline_ms is not None:
        state = attrs.evolve(state, deadline_ms=max(state.deadline_ms, turn.fetch_ms))
    turn.quorum = attrs.evolve(turn.quorum, state=state, reported_epoch=state.leader_epoch)
