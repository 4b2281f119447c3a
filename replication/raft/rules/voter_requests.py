"""The requests that change the voters, as a leader carries them out; membership.py decides.

(Kafka: AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler.)
"""

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.membership import (
    AskingVoter,
    ChangeRefused,
    UncommittedVoters,
    added,
    may_add,
    removed,
    updated,
    upgraded,
)
from replication.raft.rules.messages import (
    AddVoterReceived,
    AppendVoters,
    AskLevels,
    LevelsAnswered,
    RemoveVoterReceived,
    UpdateVoterReceived,
    UpgradeAsked,
    VoterChangeAsked,
)
from replication.raft.rules.states import (
    Leading,
)
from replication.raft.rules.turn import QuorumTurn
from replication.raft.rules.voters import RECONFIGURABLE, VoterSet


def change_voters(turn: QuorumTurn, event: VoterChangeAsked) -> None:
    state = turn.quorum.state
    error = _change_refusal(turn, event)
    if error != ErrorCode.NONE or not isinstance(state, Leading):
        turn.reply(error)
        return
    ground, deadline_ms = turn.ground(state), turn.request_ms
    made: ChangeRefused | AskingVoter | VoterSet
    match event:
        case AddVoterReceived(voter=voter, endpoints=endpoints):
            made = may_add(ground, voter, endpoints) or AskingVoter(
                voter=voter,
                endpoints=endpoints,
                ack_when_committed=event.ack_when_committed,
                deadline_ms=deadline_ms,
            )
        case RemoveVoterReceived(voter=voter):
            made = removed(ground, voter)
        case UpdateVoterReceived(node=node):
            made = updated(ground, state.reported, node)
        case UpgradeAsked(kraft_version=level):
            made = upgraded(ground, state.reported, level)
    match made:
        case ChangeRefused(error, sentence):
            turn.reply(error, sentence=sentence)
        case AskingVoter(voter=voter, endpoints=endpoints):
            turn.lead_with(state, change=made)
            turn.effects.append(AskLevels(voter=voter, endpoints=endpoints))
        case VoterSet():
            _take_voters(turn, state, event, made)


def _take_voters(
    turn: QuorumTurn, state: Leading, event: VoterChangeAsked, voters: VoterSet
) -> None:
    """Write the voters that a request leads to, or remember them, and answer unless it waits."""
    change = UncommittedVoters(voters=voters, deadline_ms=turn.request_ms)
    at_once = attrs.evolve(change, is_answered=True)
    match event:
        case RemoveVoterReceived():
            _write_voters(turn, state, change)
            return
        case UpdateVoterReceived(node=node):
            if turn.quorum.kraft_version < RECONFIGURABLE:
                turn.lead_with(state, reported=voters)
            elif voters != turn.quorum.voters:
                _write_voters(turn, state, at_once)
            turn.take_progress(state.progress.is_alive(node.key, now_ms=turn.now_ms))
        case UpgradeAsked(kraft_version=level, validate_only=False):
            if level != turn.quorum.kraft_version:
                _write_voters(turn, state, at_once, level)
        case _:
            pass
    turn.reply(ErrorCode.NONE)


def levels_answered(turn: QuorumTurn, event: LevelsAnswered) -> None:
    """Add the voter that has named its levels, if it is still wanted."""
    state = turn.quorum.state
    if not isinstance(state, Leading) or not isinstance(state.change, AskingVoter):
        return
    asking = state.change
    if asking.voter.id != event.voter_id:
        return
    if event.error != ErrorCode.NONE:
        sentence = f"node {event.voter_id} does not answer: {event.error.name}"
        turn.end_change(state, ErrorCode.REQUEST_TIMED_OUT, sentence)
        return
    made = added(turn.ground(state), asking, event.supported, now_ms=turn.now_ms)
    if isinstance(made, ChangeRefused):
        turn.end_change(state, made.error, made.sentence)
        return
    change = UncommittedVoters(
        voters=made,
        deadline_ms=asking.deadline_ms,
        ack_when_committed=asking.ack_when_committed,
    )
    _write_voters(turn, state, change)


def _write_voters(
    turn: QuorumTurn, state: Leading, change: UncommittedVoters, kraft_version: int | None = None
) -> None:
    turn.lead_with(state, change=change)
    turn.effects.append(AppendVoters(voters=change.voters, kraft_version=kraft_version))


def _change_refusal(turn: QuorumTurn, event: VoterChangeAsked) -> ErrorCode:
    epoch = turn.quorum.leader_epoch
    if isinstance(event, UpdateVoterReceived | UpgradeAsked):
        epoch = event.leader_epoch
    if not isinstance(event, UpgradeAsked) and not turn.is_our_cluster(event.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return turn.leader_refusal(epoch)
