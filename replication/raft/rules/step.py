"""One step of a node in the quorum: what it knows, and something that happens, become what it then
knows and what it has to do. `step` is pure and total: no order of events makes it raise.

A task owns the Quorum, the log and the file `quorum-state`, and does this without end:

    now ──> step(quorum, event, log, now_ms=..., jitter_ms=...) ──> QuorumStep(quorum, effects)
     ^                                                                     │
     │       the effects in their order, each complete before the next:    │
     │         Persist             synced                                  │
     │         StopLeading         waiting requests are answered           │
     │         StopFetching        FetchFrom                               │
     │         LeaderChanged                                               │
     │         Lead                appended; then step(LogChanged)         │
     │         Send                not waited for: its answer is an event  │
     │         TakeFetched         appended, flushed; then step(LogChanged)│
     │         HighWatermark                                               │
     │         Reply               the answer to this event                │
     │                                                                     v
     └── the next event, or TimerExpired at `quorum.deadline_ms`  <────────┘

`jitter_ms` is a random number from 0 up to, not including, the election timeout. A new one comes
with each step, so that two nodes seldom stand for election at the same moment.

Rule 1: nobody can notice a vote or an epoch that is not synced: `step` puts Persist first, wherever
the ElectionState has changed.

Rule 2: what a state sends is a function of the state (`quorum.call_to`); `pending` says to whom, and when.
A request without an answer is due again after the retry backoff, while the state lasts. A leader
says so again to a voter that has not fetched for half a fetch timeout: it may not know it.

Rule 3: a peer's word is checked first: its cluster, its epoch, the voter that it means. An answer
counts only for the epoch, and for the kind of vote, that it was asked for.

Rule 4: an observer has an epoch and a leader, and follows; it never stands for election. It votes
when it is asked: the candidate's log may already name it as a voter.

turn.py has the transitions, requests.py, answers.py and voter_requests.py what peers say.
(Kafka: KafkaRaftClient.)
"""

from typing import Final

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.answers import send_again, take_answer
from replication.raft.rules.log_view import LogView
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    Answered,
    AppendVoters,
    AskLeader,
    AskLevels,
    BeginCall,
    BeginReceived,
    Disagreement,
    Effect,
    EndReceived,
    Event,
    FetchAnswered,
    FetchFrom,
    FetchReceived,
    HighWatermark,
    Lead,
    LeaderChanged,
    LevelsAnswered,
    LogChanged,
    Misconfiguration,
    Persist,
    RemoveVoterReceived,
    Reply,
    ReportAnswered,
    ResignAsked,
    Send,
    ShutdownAsked,
    ShutdownComplete,
    StopFetching,
    StopLeading,
    TakeFetched,
    TimerExpired,
    Unanswered,
    UpdateVoterReceived,
    UpgradeAsked,
    VoteReceived,
    VotersChanged,
)
from replication.raft.rules.quorum import Quorum, call_to, fetch_source
from replication.raft.rules.requests import answer
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    Resigned,
    Unattached,
)
from replication.raft.rules.turn import QuorumTurn
from replication.raft.rules.types import ElectionState
from replication.raft.rules.voter_requests import change_voters
from replication.raft.rules.voters import VoterSet
from storage.attributes import frozen
from storage.types import Offset


@frozen
class QuorumStep:
    """The node's knowledge after an event, and the effects that it carries out in this order."""

    quorum: Quorum
    effects: tuple[Effect, ...]


# The order in which effects are carried out.
_ORDER: Final[tuple[type[Effect], ...]] = (
    Persist,
    StopLeading,
    StopFetching,
    FetchFrom,
    LeaderChanged,
    Lead,
    Send,
    AskLevels,
    AppendVoters,
    AskLeader,
    TakeFetched,
    HighWatermark,
    AnswerChange,
    Disagreement,
    Misconfiguration,
    Reply,
    ShutdownComplete,
)


def start(
    quorum: Quorum, election: ElectionState | None, log: LogView, *, now_ms: int, jitter_ms: int
) -> QuorumStep:
    """Return the first step of a node that has just read its log and `quorum-state`.

    `quorum` is `fresh(...)`; `election` is None where there is no file yet.
    """
    turn = QuorumTurn(quorum, log, now_ms, jitter_ms)
    _restore(turn, election or ElectionState(leader_epoch=0))
    _look_for_former_disk(turn)
    return _finish(turn, None, election)


def step(quorum: Quorum, event: Event, log: LogView, *, now_ms: int, jitter_ms: int) -> QuorumStep:
    """Return what the node knows after `event`, and what it has to do.

    `log` is the log as it is now; `jitter_ms` is random, below the election timeout.
    """
    turn = QuorumTurn(quorum, log, now_ms, jitter_ms)
    _handle(turn, event)
    return _finish(turn, quorum, quorum.state.election_state)


def _finish(turn: QuorumTurn, before: Quorum | None, stored: ElectionState | None) -> QuorumStep:
    """Return the step, with the effects that the difference to `before` asks for."""
    if isinstance(turn.quorum.state, Leading) and turn.ground(turn.quorum.state).must_resign:
        turn.resign()
    if before is None or not _leads_on(before, turn.quorum):
        _notice_changes(turn, before, stored)
    _send_what_is_due(turn)
    _ask_leader(turn)
    return QuorumStep(turn.quorum, tuple(sorted(turn.effects, key=lambda e: _ORDER.index(type(e)))))


def _leads_on(before: Quorum, after: Quorum) -> bool:
    """Return whether the node leads in the same epoch as before, so that nobody notices a change."""
    return (
        isinstance(before.state, Leading)
        and isinstance(after.state, Leading)
        and before.state.leader_epoch == after.state.leader_epoch
    )


def _notice_changes(turn: QuorumTurn, before: Quorum | None, stored: ElectionState | None) -> None:
    """Add the effects of another state, or another epoch."""
    after = turn.quorum
    if after.state.election_state != stored:
        turn.effects.append(Persist(after.state.election_state))
    if before is not None and isinstance(before.state, Leading):
        turn.effects.append(StopLeading(before.leader_epoch))
        if not any(isinstance(each, AnswerChange) for each in turn.effects):
            turn.answer_change(before.state.change, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    source = fetch_source(after)
    if source != (fetch_source(before) if before is not None else StopFetching()):
        turn.effects.append(source)
    led = (after.leader_epoch, after.leader_id)
    if before is None or led != (before.leader_epoch, before.leader_id):
        turn.effects.append(LeaderChanged(*led))
    if after.may_stop and not (before is not None and before.may_stop):
        turn.effects.append(ShutdownComplete())


def _send_what_is_due(turn: QuorumTurn) -> None:
    due = [each for each, due_ms in turn.quorum.pending.items() if due_ms <= turn.now_ms]
    if not due:
        return
    pending = dict(turn.quorum.pending)
    for voter_id in due:
        del pending[voter_id]
        voter, call = turn.quorum.voters.node(voter_id), call_to(turn.quorum, turn.log)
        if voter is not None and call is not None:
            turn.effects.append(Send(voter.key, call))
            if isinstance(call, BeginCall):
                pending[voter_id] = turn.now_ms + turn.begin_interval_ms
    turn.quorum = attrs.evolve(turn.quorum, pending=pending)


def _ask_leader(turn: QuorumTurn) -> None:
    """Ask the leader for what this node wants of it, once in a fetch timeout."""
    quorum, due_ms, wish = turn.quorum, turn.quorum.report_ms, turn.quorum.wish
    if wish is None:
        if due_ms is not None:
            turn.quorum = attrs.evolve(quorum, report_ms=None)
    elif due_ms is None or due_ms <= turn.now_ms:
        turn.quorum = attrs.evolve(quorum, report_ms=turn.fetch_ms)
        if due_ms is not None and quorum.leader_id is not None:
            endpoints = quorum.leader_endpoints
            turn.effects.append(
                AskLeader(leader_id=quorum.leader_id, endpoints=endpoints, request=wish)
            )


def _handle(turn: QuorumTurn, event: Event) -> None:
    """Carry out what `event` asks for."""
    match event:
        case TimerExpired():
            _expire(turn)
        case VoteReceived() | BeginReceived() | EndReceived() | FetchReceived():
            answer(turn, event)
        case Answered() | FetchAnswered() | LevelsAnswered() | ReportAnswered():
            take_answer(turn, event)
        case Unanswered(sent):
            send_again(turn, sent)
        case LogChanged(high_watermark):
            _log_changed(turn, high_watermark)
        case VotersChanged(voters, offset, kraft_version):
            turn.quorum = attrs.evolve(
                turn.quorum, voters_offset=offset, kraft_version=kraft_version
            )
            _voters_changed(turn, voters)
            _look_for_former_disk(turn)
        case AddVoterReceived() | RemoveVoterReceived() | UpdateVoterReceived() | UpgradeAsked():
            change_voters(turn, event)
        case ResignAsked(leader_epoch):
            if leader_epoch == turn.quorum.leader_epoch:
                turn.resign()
        case ShutdownAsked():
            turn.quorum = attrs.evolve(turn.quorum, is_shutting_down=True)
            turn.resign()


def _restore(turn: QuorumTurn, election: ElectionState) -> None:
    """Go on where the node stopped."""
    quorum, epoch = turn.quorum, election.leader_epoch
    voted, leader_id = election.voted, election.leader_id
    deadline_ms = turn.election_ms if quorum.is_voter else None
    turn.enter(
        Unattached(leader_epoch=epoch, leader_id=leader_id, voted=voted, deadline_ms=deadline_ms)
    )
    if epoch < turn.log.last_epoch:
        turn.unattach(turn.log.last_epoch)
    elif leader_id == quorum.me.id:
        turn.enter_resigned(())
    elif voted is not None and voted.matches(quorum.me) and quorum.is_voter:
        turn.enter_candidate(epoch)
    elif leader_id is not None and quorum.voters.endpoints(leader_id):
        turn.follow(epoch, leader_id, quorum.voters.endpoints(leader_id))
    if turn.quorum.is_only_voter and not isinstance(turn.quorum.state, Candidate | Leading):
        turn.stand()


def _expire(turn: QuorumTurn) -> None:
    state = turn.quorum.state
    if (
        state.deadline_ms is None
        or state.deadline_ms > turn.now_ms
        or turn.quorum.outlasts_its_timer
    ):
        return
    match state:
        case Unattached() | Candidate():
            turn.stand()
        case Follower():
            _lose_leader(turn, state)
        case Prospective():
            turn.step_back(state)
        case Resigned():
            turn.unattach(state.leader_epoch + 1)
        case Leading(progress=progress, change=change):
            if change is not None and change.deadline_ms <= turn.now_ms:
                turn.end_change(state, ErrorCode.REQUEST_TIMED_OUT, "it has taken too long")
            if progress.deadline_ms is not None and progress.deadline_ms <= turn.now_ms:
                turn.resign()


def _log_changed(turn: QuorumTurn, leaders: Offset | None) -> None:
    state = turn.quorum.state
    if isinstance(state, Leading):
        turn.take_progress(state.progress.flushed(turn.log.flushed_end_offset))
    elif leaders is not None:
        turn.raise_high_watermark(min(leaders, turn.log.end_offset))


def _voters_changed(turn: QuorumTurn, voters: VoterSet) -> None:
    joined = voters.ids - turn.quorum.voters.ids - {turn.quorum.me.id}
    due = {voter_id: ms for voter_id, ms in turn.quorum.pending.items() if voter_id in voters.ids}
    if call_to(turn.quorum, turn.log) is not None:
        due |= dict.fromkeys(joined, turn.now_ms)
    turn.quorum = attrs.evolve(turn.quorum, voters=voters, pending=due)
    state, is_voter = turn.quorum.state, turn.quorum.is_voter
    match state:
        case Unattached() if is_voter != (state.deadline_ms is not None):
            turn.enter(attrs.evolve(state, deadline_ms=turn.election_ms if is_voter else None))
        case Follower(deadline_ms=None) if is_voter:
            turn.quorum = attrs.evolve(
                turn.quorum, state=attrs.evolve(state, deadline_ms=turn.fetch_ms)
            )
        case Prospective() if not is_voter:
            turn.step_back(state)
        case Candidate() if not is_voter:
            turn.unattach(state.leader_epoch)
        case Prospective() | Candidate():
            election = state.election.among(voters.ids)
            turn.quorum = attrs.evolve(turn.quorum, state=attrs.evolve(state, election=election))
            turn.settle_election()
        case Leading():
            turn.take_progress(state.progress.among(voters))
        case _:
            pass


def _look_for_former_disk(turn: QuorumTurn) -> None:
    """Report that the voter of this id has another directory, unless the node mends that itself."""
    quorum = turn.quorum
    is_named = quorum.me.id in quorum.voters.ids
    if is_named and not (quorum.is_voter or quorum.settings.auto_join):
        turn.effects.append(
            Misconfiguration(
                f"voter {quorum.me.id} has another directory than this node, which only observes"
            )
        )


def _lose_leader(turn: QuorumTurn, state: Follower) -> None:
    if turn.quorum.is_voter:
        turn.stand()
    else:
        turn.quorum = attrs.evolve(turn.quorum, state=attrs.evolve(state, deadline_ms=None))
