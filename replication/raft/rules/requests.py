"""The requests of elections and of replication, as a node of the quorum answers them.

The sender is checked first: its cluster, its epoch, the voter that it means, and whether what it
says is possible. (Kafka: KafkaRaftClient, the handlers of Vote, BeginQuorumEpoch, EndQuorumEpoch,
Fetch and FetchSnapshot.)
"""

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.leader import LeaderProgress
from replication.raft.rules.log_view import Position, ReadOn, position_of
from replication.raft.rules.messages import (
    BeginReceived,
    EndReceived,
    FetchReceived,
    Misconfiguration,
    VoteReceived,
)
from replication.raft.rules.states import (
    Follower,
    Leading,
    Prospective,
    Unattached,
)
from replication.raft.rules.turn import QuorumTurn
from replication.raft.rules.types import ReplicaKey
from storage.types import LeaderEpoch, Offset


def answer(
    turn: QuorumTurn, event: VoteReceived | BeginReceived | EndReceived | FetchReceived
) -> None:
    match event:
        case VoteReceived():
            _vote(turn, event)
        case BeginReceived():
            _begin(turn, event)
        case EndReceived():
            _end(turn, event)
        case FetchReceived():
            _fetch(turn, event)


def _vote(turn: QuorumTurn, event: VoteReceived) -> None:
    call, candidate = event.call, event.candidate
    error = _vote_refusal(turn, event)
    if error != ErrorCode.NONE:
        turn.reply(error)
        return
    if call.leader_epoch > turn.quorum.leader_epoch:
        turn.unattach(call.leader_epoch)
    if not _is_me(turn, event.voter):
        turn.reply(ErrorCode.INVALID_VOTER_KEY)
        return
    up_to_date = turn.log.is_reached_by(last_epoch=call.last_epoch, end_offset=call.end_offset)
    state = turn.quorum.state
    granted = state.grants(candidate, up_to_date=up_to_date, pre_vote=call.pre_vote)
    if granted and not call.pre_vote:
        _give_vote(turn, candidate)
    turn.reply(ErrorCode.NONE, vote_granted=granted)


def _vote_refusal(turn: QuorumTurn, event: VoteReceived) -> ErrorCode:
    call = event.call
    # A candidate has raised the epoch above that of its log; a prospective has not.
    most = call.leader_epoch if call.pre_vote else call.leader_epoch - 1
    is_possible = (
        call.end_offset >= 0
        and 0 <= call.last_epoch <= most
        and event.candidate.id != turn.quorum.me.id
    )
    error = _refusal(turn, event.cluster_id, event.candidate.id, call.leader_epoch)
    if is_possible or error == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return error
    return ErrorCode.INVALID_REQUEST


def _give_vote(turn: QuorumTurn, candidate: ReplicaKey) -> None:
    """Keep the vote that is granted, unless it is kept already."""
    state = turn.quorum.state
    assert isinstance(state, Unattached | Prospective), "no other state grants a vote"
    if state.voted is None:
        deadline_ms = turn.election_ms if turn.quorum.is_voter else None
        if isinstance(state, Unattached):
            turn.enter(attrs.evolve(state, voted=candidate, deadline_ms=deadline_ms))
        else:
            turn.enter(turn.prospective(voted=candidate))


def _begin(turn: QuorumTurn, event: BeginReceived) -> None:
    error = _refusal(turn, event.cluster_id, event.leader_id, event.call.leader_epoch)
    if error == ErrorCode.NONE:
        error = turn.hear(event.leader_id, event.call.leader_epoch, event.leader_endpoints)
    if error == ErrorCode.NONE and not _is_me(turn, event.voter):
        error = ErrorCode.INVALID_VOTER_KEY
    turn.reply(error)


def _end(turn: QuorumTurn, event: EndReceived) -> None:
    error = _refusal(turn, event.cluster_id, event.leader_id, event.call.leader_epoch)
    if error == ErrorCode.NONE:
        error = turn.hear(event.leader_id, event.call.leader_epoch, event.leader_endpoints)
    state = turn.quorum.state
    if error == ErrorCode.NONE and isinstance(state, Follower):
        deadline_ms = turn.now_ms + _backoff_ms(turn, event.call.successors)
        # Its leader is gone: it grants pre-votes, as after a fetch timeout. Kafka's refuses.
        left = attrs.evolve(state, deadline_ms=deadline_ms, has_fetched=False)
        turn.quorum = attrs.evolve(turn.quorum, state=left)
    turn.reply(error)


def _backoff_ms(turn: QuorumTurn, successors: tuple[ReplicaKey, ...]) -> int:
    """Return how long this node lets the voters go first that the old leader prefers."""
    most_ms, count = turn.quorum.settings.election_backoff_max_ms, len(successors)
    place = next((i for i, key in enumerate(successors) if key.matches(turn.quorum.me)), count)
    if place == count:
        return most_ms if count else 0
    return min(most_ms, (most_ms >> (count - 1)) << (place - 1)) if place else 0


def _fetch(turn: QuorumTurn, event: FetchReceived) -> None:
    error = _fetch_refusal(turn, event)
    state = turn.quorum.state
    if error != ErrorCode.NONE or not isinstance(state, Leading):
        turn.reply(error)
        return
    position = None
    if event.fetch_offset is not None:
        position = position_of(
            turn.log,
            fetch_offset=event.fetch_offset,
            last_fetched_epoch=event.last_fetched_epoch,
        )
    if event.replica.id >= 0 and not event.has_waited:
        _follow_up(turn, state.progress, event.replica, event.fetch_offset, position)
    turn.reply(ErrorCode.NONE, position=position)


def _follow_up(
    turn: QuorumTurn,
    progress: LeaderProgress,
    replica: ReplicaKey,
    fetch_offset: Offset | None,
    position: Position | None,
) -> None:
    """Count a fetch whose offset is valid, or the fetch of a snapshot, which has none."""
    if fetch_offset is None:
        turn.take_progress(progress.is_alive(replica, now_ms=turn.now_ms))
    elif isinstance(position, ReadOn):
        turn.take_progress(progress.fetched(replica, fetch_offset, now_ms=turn.now_ms))
    if replica.id in turn.quorum.pending and turn.quorum.voters.is_voter(replica):
        due_ms = turn.now_ms + turn.begin_interval_ms  # it knows who leads
        pending = {**turn.quorum.pending, replica.id: due_ms}
        turn.quorum = attrs.evolve(turn.quorum, pending=pending)


def _fetch_refusal(turn: QuorumTurn, event: FetchReceived) -> ErrorCode:
    quorum = turn.quorum
    if not turn.is_our_cluster(event.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    is_possible = (
        0 <= event.last_fetched_epoch <= event.leader_epoch
        and (event.fetch_offset is None or event.fetch_offset >= 0)
        and event.replica.id != quorum.me.id
    )
    if not is_possible:
        return ErrorCode.INVALID_REQUEST
    error, state = turn.leader_refusal(event.leader_epoch), quorum.state
    if error != ErrorCode.NONE or not isinstance(state, Leading) or event.has_waited:
        return error
    if not state.progress.has_another(event.replica, now_ms=turn.now_ms):
        return ErrorCode.NONE
    cause = f"two processes fetch as controller {event.replica.id}"
    turn.effects.append(Misconfiguration(cause))
    return ErrorCode.DUPLICATE_BROKER_REGISTRATION


def _refusal(
    turn: QuorumTurn, cluster_id: str | None, sender_id: int, leader_epoch: LeaderEpoch
) -> ErrorCode:
    """Return what is wrong with a voter's request at first sight, or NONE."""
    if not turn.is_our_cluster(cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if leader_epoch < turn.quorum.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE


def _is_me(turn: QuorumTurn, voter: ReplicaKey | None) -> bool:
    return voter is None or voter.matches(turn.quorum.me)
