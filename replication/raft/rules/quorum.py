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

Rule 2: what a state sends is a function of the state (`_call_to`); `pending` says to whom, and when.
A request without an answer is due again after the retry backoff, while the state lasts. A leader
says so again to a voter that has not fetched for half a fetch timeout: it may not know it.

Rule 3: a peer's word is checked first: its cluster, its epoch, the voter that it means. An answer
counts only for the epoch, and for the kind of vote, that it was asked for.

Rule 4: an observer has an epoch and a leader, and follows; it never stands for election. It votes
when it is asked: the candidate's log may already name it as a voter.

The file is long because all of it is this one step. (Kafka: KafkaRaftClient, QuorumState.)
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.leader import LeaderProgress, lead
from replication.raft.rules.log_view import Diverging, LogView, Position, ReadOn, position_of
from replication.raft.rules.membership import (
    AskingVoter,
    ChangeRefused,
    Ground,
    PendingChange,
    UncommittedVoters,
    added,
    may_add,
    removed,
    updated,
    upgraded,
    voters_at_start,
)
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    Answered,
    AppendVoters,
    AskLeader,
    AskLevels,
    BeginCall,
    BeginReceived,
    Call,
    Disagreement,
    Effect,
    EndCall,
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
    VoteCall,
    VoterChangeAsked,
    VoteReceived,
    VotersChanged,
)
from replication.raft.rules.states import (
    Candidate,
    EpochElection,
    Follower,
    Leading,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from replication.raft.rules.types import NO_ENDPOINTS, ElectionState, Endpoints, ReplicaKey
from replication.raft.rules.voters import RECONFIGURABLE, SUPPORTED, VoterNode, VoterSet
from storage.types import LeaderEpoch, Offset


@attrs.frozen(kw_only=True)
class QuorumSettings:
    """The times of a quorum, in milliseconds (`controller.quorum.*`), with Kafka's defaults, and
    whether this node becomes a voter by itself.
    """

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    request_timeout_ms: int = 2000
    auto_join: bool = False


@attrs.frozen(kw_only=True)
class Quorum:
    """What a node knows of its quorum. `pending` holds the voters that a request of this state
    waits for, and when it is due. `voters_offset` is where the voters stand in the log, None if
    they are those of the configuration.
    """

    me: ReplicaKey
    endpoints: Endpoints
    cluster_id: str
    voters: VoterSet
    state: State
    voters_offset: Offset | None = None
    kraft_version: int = 0
    settings: QuorumSettings = QuorumSettings()
    pending: Mapping[int, int] = attrs.field(factory=dict)
    high_watermark: Offset | None = None
    is_shutting_down: bool = False
    # When this node asks its leader next, and the last epoch whose leader knows where it is.
    report_ms: int | None = None
    reported_epoch: LeaderEpoch | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, None while it is not known."""
        return self.state.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        """Where the leader is reached; nowhere while it or its place is not known."""
        match self.state:
            case Unattached() | Candidate():
                return NO_ENDPOINTS
            case state:
                return state.leader_endpoints

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.me)

    @property
    def node(self) -> VoterNode:
        """What this node says of itself as a voter."""
        return VoterNode(self.me, self.endpoints, SUPPORTED)

    @property
    def wish(self) -> AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived | None:
        """What this node asks its leader for, None for nothing.

        A voter whose address or levels the leader may not know reports them. Where voters stand in
        no log, each leader is to learn of them: an upgrade needs all. A controller that joins by
        itself wants to be a voter, and first wants its former disk to be none (KIP-853).
        """
        if not isinstance(self.state, Follower) or self.is_shutting_down:
            return None
        is_in_log, former = self.kraft_version >= RECONFIGURABLE, self.voters.node(self.me.id)
        if self.is_voter:
            is_known = (
                not self.voters.needs_update(self.node)
                if is_in_log
                else self.reported_epoch == self.leader_epoch
            )
            if is_known:
                return None
            return UpdateVoterReceived(
                node=self.node, leader_epoch=self.leader_epoch, cluster_id=self.cluster_id
            )
        if not (self.settings.auto_join and is_in_log):
            return None
        if former is not None:
            return RemoveVoterReceived(voter=former.key, cluster_id=self.cluster_id)
        return AddVoterReceived(
            voter=self.me,
            endpoints=self.endpoints,
            ack_when_committed=False,
            cluster_id=self.cluster_id,
        )

    @property
    def deadline_ms(self) -> int | None:
        """When TimerExpired is due; None: not until something else happens."""
        due = [*self.pending.values()]
        if self.report_ms is not None:
            due.append(self.report_ms)
        if self.state.deadline_ms is not None and not self.outlasts_its_timer:
            due.append(self.state.deadline_ms)
        return min(due, default=None)

    @property
    def outlasts_its_timer(self) -> bool:
        """Whether the state has no end in time, for a node that stops begins no election."""
        return self.is_shutting_down and (self.is_voter or isinstance(self.state, Resigned))

    @property
    def is_only_voter(self) -> bool:
        return self.is_voter and len(self.voters.nodes) == 1

    @property
    def may_stop(self) -> bool:
        """Whether it is shutting down, and the others need nothing more of it."""
        led_by_another = self.leader_id not in {None, self.me.id}
        return self.is_shutting_down and (not self.is_voter or self.is_only_voter or led_by_another)


@attrs.frozen
class QuorumStep:
    """What a node knows after an event, and what it has to do, in this order."""

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
    Reply,
    ShutdownComplete,
)


def start(
    quorum: Quorum, election: ElectionState | None, log: LogView, *, now_ms: int, jitter_ms: int
) -> QuorumStep:
    """Return the first step of a node that has just read its log and `quorum-state`.

    `quorum` is `fresh(...)`; `election` is None where there is no file yet.
    """
    turn = _Turn(quorum, log, now_ms, jitter_ms)
    turn.restore(election or ElectionState(leader_epoch=0))
    return turn.finish(None, election)


def fresh(
    me: ReplicaKey,
    *,
    endpoints: Endpoints,
    cluster_id: str,
    voters: VoterSet,
    settings: QuorumSettings,
    voters_offset: Offset | None = None,
    kraft_version: int = 0,
) -> Quorum:
    """Return what a node knows that has never heard of an election."""
    nothing = Unattached(leader_epoch=0, deadline_ms=None)
    return Quorum(
        me=me,
        endpoints=endpoints,
        cluster_id=cluster_id,
        voters=voters,
        settings=settings,
        voters_offset=voters_offset,
        kraft_version=kraft_version,
        state=nothing,
    )


def step(quorum: Quorum, event: Event, log: LogView, *, now_ms: int, jitter_ms: int) -> QuorumStep:
    """Return what the node knows after `event`, and what it has to do.

    `log` is the log as it is now; `jitter_ms` is random, below the election timeout.
    """
    turn = _Turn(quorum, log, now_ms, jitter_ms)
    turn.handle(event)
    return turn.finish(quorum, quorum.state.election_state)


@attrs.define
class _Turn:
    """One step while it is made: `quorum` and `effects` grow, and `finish` adds what has changed."""

    quorum: Quorum
    log: LogView
    now_ms: int
    jitter_ms: int
    effects: list[Effect] = attrs.Factory(list)

    def finish(self, before: Quorum | None, stored: ElectionState | None) -> QuorumStep:
        """Return the step, with the effects that the difference to `before` asks for."""
        if isinstance(self.quorum.state, Leading) and self._ground(self.quorum.state).must_resign:
            self._resign()
        after = self.quorum
        if after.state.election_state != stored:
            self.effects.append(Persist(after.state.election_state))
        if (
            before is not None
            and isinstance(before.state, Leading)
            and (not isinstance(after.state, Leading) or after.leader_epoch != before.leader_epoch)
        ):
            self.effects.append(StopLeading(before.leader_epoch))
            if not any(isinstance(each, AnswerChange) for each in self.effects):
                self._answer_change(before.state.change, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        source = _fetch_source(after)
        if source != (_fetch_source(before) if before is not None else StopFetching()):
            self.effects.append(source)
        led = (after.leader_epoch, after.leader_id)
        if before is None or led != (before.leader_epoch, before.leader_id):
            self.effects.append(LeaderChanged(*led))
        if after.may_stop and not (before is not None and before.may_stop):
            self.effects.append(ShutdownComplete())
        self._send_what_is_due()
        self._ask_leader()
        return QuorumStep(
            self.quorum, tuple(sorted(self.effects, key=lambda e: _ORDER.index(type(e))))
        )

    def _send_what_is_due(self) -> None:
        pending = dict(self.quorum.pending)
        for voter_id in [each for each, due_ms in pending.items() if due_ms <= self.now_ms]:
            del pending[voter_id]
            voter, call = self.quorum.voters.node(voter_id), _call_to(self.quorum, self.log)
            if voter is not None and call is not None:
                self.effects.append(Send(voter.key, call))
                if isinstance(call, BeginCall):
                    pending[voter_id] = self.now_ms + self._begin_interval_ms
        self.quorum = attrs.evolve(self.quorum, pending=pending)

    def _ask_leader(self) -> None:
        """Ask the leader for what this node wants of it, once in a fetch timeout."""
        quorum, due_ms, wish = self.quorum, self.quorum.report_ms, self.quorum.wish
        if wish is None:
            self.quorum = attrs.evolve(quorum, report_ms=None)
        elif due_ms is None or due_ms <= self.now_ms:
            self.quorum = attrs.evolve(quorum, report_ms=self._fetch_ms)
            if due_ms is not None and quorum.leader_id is not None:
                endpoints = quorum.leader_endpoints
                self.effects.append(
                    AskLeader(leader_id=quorum.leader_id, endpoints=endpoints, request=wish)
                )

    # --- events ------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Carry out what `event` asks for."""
        match event:
            case TimerExpired():
                self._expire()
            case VoteReceived() | BeginReceived() | EndReceived() | FetchReceived():
                self._answer(event)
            case Answered() | FetchAnswered() | LevelsAnswered() | ReportAnswered():
                self._take_answer(event)
            case Unanswered(sent):
                self._send_again(sent)
            case LogChanged(high_watermark):
                self._log_changed(high_watermark)
            case VotersChanged(voters, offset, kraft_version):
                self.quorum = attrs.evolve(
                    self.quorum, voters_offset=offset, kraft_version=kraft_version
                )
                self._voters_changed(voters)
            case (
                AddVoterReceived() | RemoveVoterReceived() | UpdateVoterReceived() | UpgradeAsked()
            ):
                self._change_voters(event)
            case ResignAsked(leader_epoch):
                if leader_epoch == self.quorum.leader_epoch:
                    self._resign()
            case ShutdownAsked():
                self.quorum = attrs.evolve(self.quorum, is_shutting_down=True)
                self._resign()

    def restore(self, election: ElectionState) -> None:
        """Go on where the node stopped."""
        quorum, epoch = self.quorum, election.leader_epoch
        voted, leader_id = election.voted, election.leader_id
        deadline_ms = self._election_ms if quorum.is_voter else None
        self._enter(
            Unattached(
                leader_epoch=epoch, leader_id=leader_id, voted=voted, deadline_ms=deadline_ms
            )
        )
        if epoch < self.log.last_epoch:
            self._unattach(self.log.last_epoch)
        elif leader_id == quorum.me.id:
            self._enter_resigned(())
        elif voted is not None and voted.matches(quorum.me) and quorum.is_voter:
            self._enter_candidate(epoch)
        elif leader_id is not None and quorum.voters.endpoints(leader_id):
            self._follow(epoch, leader_id, quorum.voters.endpoints(leader_id))
        if self.quorum.is_only_voter and not isinstance(self.quorum.state, Candidate | Leading):
            self._stand()

    def _expire(self) -> None:
        state = self.quorum.state
        if (
            state.deadline_ms is None
            or state.deadline_ms > self.now_ms
            or self.quorum.outlasts_its_timer
        ):
            return
        match state:
            case Unattached() | Candidate():
                self._stand()
            case Follower():
                self._lose_leader(state)
            case Prospective():
                self._step_back(state)
            case Resigned():
                self._unattach(state.leader_epoch + 1)
            case Leading(progress=progress, change=change):
                if change is not None and change.deadline_ms <= self.now_ms:
                    self._end_change(state, ErrorCode.REQUEST_TIMED_OUT, "it has taken too long")
                if progress.deadline_ms is not None and progress.deadline_ms <= self.now_ms:
                    self._resign()

    # --- requests ----------------------------------------------------------------------------

    def _answer(self, event: VoteReceived | BeginReceived | EndReceived | FetchReceived) -> None:
        match event:
            case VoteReceived():
                self._vote(event)
            case BeginReceived():
                self._begin(event)
            case EndReceived():
                self._end(event)
            case FetchReceived():
                self._fetch(event)

    def _vote(self, event: VoteReceived) -> None:
        call, candidate = event.call, event.candidate
        error = self._vote_refusal(event)
        if error != ErrorCode.NONE:
            self._reply(error)
            return
        if call.leader_epoch > self.quorum.leader_epoch:
            self._unattach(call.leader_epoch)
        if not self._is_me(event.voter):
            self._reply(ErrorCode.INVALID_VOTER_KEY)
            return
        up_to_date = self.log.is_reached_by(last_epoch=call.last_epoch, end_offset=call.end_offset)
        state = self.quorum.state
        granted = state.grants(candidate, up_to_date=up_to_date, pre_vote=call.pre_vote)
        if granted and not call.pre_vote:
            self._give_vote(candidate)
        self._reply(ErrorCode.NONE, vote_granted=granted)

    def _vote_refusal(self, event: VoteReceived) -> ErrorCode:
        call = event.call
        # A candidate has raised the epoch above that of its log; a prospective has not.
        most = call.leader_epoch if call.pre_vote else call.leader_epoch - 1
        is_possible = (
            call.end_offset >= 0
            and 0 <= call.last_epoch <= most
            and event.candidate.id != self.quorum.me.id
        )
        error = self._refusal(event.cluster_id, event.candidate.id, call.leader_epoch)
        if is_possible or error == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return error
        return ErrorCode.INVALID_REQUEST

    def _give_vote(self, candidate: ReplicaKey) -> None:
        """Keep the vote that is granted, unless it is kept already."""
        state = self.quorum.state
        assert isinstance(state, Unattached | Prospective), "no other state grants a vote"
        if state.voted is None:
            deadline_ms = self._election_ms if self.quorum.is_voter else None
            if isinstance(state, Unattached):
                self._enter(attrs.evolve(state, voted=candidate, deadline_ms=deadline_ms))
            else:
                self._enter(self._prospective(voted=candidate))

    def _begin(self, event: BeginReceived) -> None:
        error = self._refusal(event.cluster_id, event.leader_id, event.call.leader_epoch)
        if error == ErrorCode.NONE:
            error = self._hear(event.leader_id, event.call.leader_epoch, event.leader_endpoints)
        if error == ErrorCode.NONE and not self._is_me(event.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        self._reply(error)

    def _end(self, event: EndReceived) -> None:
        error = self._refusal(event.cluster_id, event.leader_id, event.call.leader_epoch)
        if error == ErrorCode.NONE:
            error = self._hear(event.leader_id, event.call.leader_epoch, event.leader_endpoints)
        state = self.quorum.state
        if error == ErrorCode.NONE and isinstance(state, Follower):
            deadline_ms = self.now_ms + self._backoff_ms(event.call.successors)
            # Its leader is gone: it grants pre-votes, as after a fetch timeout. Kafka's refuses.
            left = attrs.evolve(state, deadline_ms=deadline_ms, has_fetched=False)
            self.quorum = attrs.evolve(self.quorum, state=left)
        self._reply(error)

    def _backoff_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """Return how long this node lets the voters go first that the old leader prefers."""
        most_ms, count = self.quorum.settings.election_backoff_max_ms, len(successors)
        place = next((i for i, key in enumerate(successors) if key.matches(self.quorum.me)), count)
        if place == count:
            return most_ms if count else 0
        return min(most_ms, (most_ms >> (count - 1)) << (place - 1)) if place else 0

    def _fetch(self, event: FetchReceived) -> None:
        error = self._fetch_refusal(event)
        state = self.quorum.state
        if error != ErrorCode.NONE or not isinstance(state, Leading):
            self._reply(error)
            return
        position = None
        if event.fetch_offset is not None:
            position = position_of(
                self.log,
                fetch_offset=event.fetch_offset,
                last_fetched_epoch=event.last_fetched_epoch,
            )
        if event.replica.id >= 0:
            self._follow_up(state.progress, event.replica, event.fetch_offset, position)
        self._reply(ErrorCode.NONE, position=position)

    def _follow_up(
        self,
        progress: LeaderProgress,
        replica: ReplicaKey,
        fetch_offset: Offset | None,
        position: Position | None,
    ) -> None:
        """Count a fetch whose offset is valid, or the fetch of a snapshot, which has none."""
        if fetch_offset is None:
            self._take_progress(progress.is_alive(replica, now_ms=self.now_ms))
        elif isinstance(position, ReadOn):
            self._take_progress(progress.fetched(replica, fetch_offset, now_ms=self.now_ms))
        if replica.id in self.quorum.pending and self.quorum.voters.is_voter(replica):
            due_ms = self.now_ms + self._begin_interval_ms  # it knows who leads
            pending = {**self.quorum.pending, replica.id: due_ms}
            self.quorum = attrs.evolve(self.quorum, pending=pending)

    def _take_progress(self, progress: LeaderProgress) -> None:
        """Know this of the replicas, as the leader; what a majority has flushed is committed."""
        quorum, state = self.quorum, self.quorum.state
        assert isinstance(state, Leading), "only a leader knows how far the others are"
        self.quorum = attrs.evolve(quorum, state=attrs.evolve(state, progress=progress))
        self._raise_high_watermark(progress.high_watermark)
        self._settle_change()

    def _raise_high_watermark(self, offset: Offset | None) -> None:
        if offset is not None and offset > (self.quorum.high_watermark or 0):
            self.quorum = attrs.evolve(self.quorum, high_watermark=offset)
            self.effects.append(HighWatermark(offset))

    def _fetch_refusal(self, event: FetchReceived) -> ErrorCode:
        quorum = self.quorum
        if not self._is_our_cluster(event.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        is_possible = (
            0 <= event.last_fetched_epoch <= event.leader_epoch
            and (event.fetch_offset is None or event.fetch_offset >= 0)
            and event.replica.id != quorum.me.id
        )
        if not is_possible:
            return ErrorCode.INVALID_REQUEST
        return self._leader_refusal(event.leader_epoch)

    def _leader_refusal(self, leader_epoch: LeaderEpoch) -> ErrorCode:
        """Return why this node does not answer as the leader of that epoch, or NONE."""
        if leader_epoch != self.quorum.leader_epoch:
            is_old = leader_epoch < self.quorum.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.quorum.state, Leading):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _refusal(
        self, cluster_id: str | None, sender_id: int, leader_epoch: LeaderEpoch
    ) -> ErrorCode:
        """Return what is wrong with a voter's request at first sight, or NONE."""
        if not self._is_our_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if leader_epoch < self.quorum.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE

    def _is_our_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self.quorum.cluster_id

    def _is_me(self, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.matches(self.quorum.me)

    def _reply(
        self,
        error: ErrorCode,
        *,
        vote_granted: bool = False,
        position: Position | None = None,
        sentence: str | None = None,
    ) -> None:
        quorum = self.quorum
        self.effects.append(
            Reply(
                error=error,
                leader_epoch=quorum.leader_epoch,
                leader_id=quorum.leader_id,
                leader_endpoints=quorum.leader_endpoints,
                vote_granted=vote_granted,
                position=position,
                sentence=sentence,
                high_watermark=(
                    quorum.state.progress.high_watermark
                    if isinstance(quorum.state, Leading)
                    else None
                ),
            )
        )

    # --- changes of the voters ---------------------------------------------------------------

    def _change_voters(self, event: VoterChangeAsked) -> None:
        state = self.quorum.state
        error = self._change_refusal(event)
        if error != ErrorCode.NONE or not isinstance(state, Leading):
            self._reply(error)
            return
        ground, deadline_ms = self._ground(state), self._request_ms
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
                self._reply(error, sentence=sentence)
            case AskingVoter(voter=voter, endpoints=endpoints):
                self._lead_with(state, change=made)
                self.effects.append(AskLevels(voter=voter, endpoints=endpoints))
            case VoterSet():
                self._take_voters(state, event, made)

    def _take_voters(self, state: Leading, event: VoterChangeAsked, voters: VoterSet) -> None:
        """Write the voters that a request leads to, or remember them, and answer unless it waits."""
        change = UncommittedVoters(voters=voters, deadline_ms=self._request_ms)
        at_once = attrs.evolve(change, is_answered=True)
        match event:
            case RemoveVoterReceived():
                self._write_voters(state, change)
                return
            case UpdateVoterReceived(node=node):
                if self.quorum.kraft_version < RECONFIGURABLE:
                    self._lead_with(state, reported=voters)
                elif voters != self.quorum.voters:
                    self._write_voters(state, at_once)
                self._take_progress(state.progress.is_alive(node.key, now_ms=self.now_ms))
            case UpgradeAsked(kraft_version=level, validate_only=False):
                if level != self.quorum.kraft_version:
                    self._write_voters(state, at_once, level)
            case _:
                pass
        self._reply(ErrorCode.NONE)

    def _levels_answered(self, event: LevelsAnswered) -> None:
        """Add the voter that has named its levels, if it is still wanted."""
        state = self.quorum.state
        if not isinstance(state, Leading) or not isinstance(state.change, AskingVoter):
            return
        asking = state.change
        if asking.voter.id != event.voter_id:
            return
        if event.error != ErrorCode.NONE:
            sentence = f"node {event.voter_id} does not answer: {event.error.name}"
            self._end_change(state, ErrorCode.REQUEST_TIMED_OUT, sentence)
            return
        made = added(self._ground(state), asking, event.supported, now_ms=self.now_ms)
        if isinstance(made, ChangeRefused):
            self._end_change(state, made.error, made.sentence)
            return
        change = UncommittedVoters(
            voters=made,
            deadline_ms=asking.deadline_ms,
            ack_when_committed=asking.ack_when_committed,
        )
        self._write_voters(state, change)

    def _write_voters(
        self, state: Leading, change: UncommittedVoters, kraft_version: int | None = None
    ) -> None:
        self._lead_with(state, change=change)
        self.effects.append(AppendVoters(voters=change.voters, kraft_version=kraft_version))

    def _settle_change(self) -> None:
        """Answer the change of the voters once it is in the log, or committed, as it was asked."""
        state = self.quorum.state
        if not isinstance(state, Leading) or not isinstance(state.change, UncommittedVoters):
            return
        change, ground = state.change, self._ground(state)
        if change.voters != self.quorum.voters or self.quorum.voters_offset is None:
            return
        if ground.is_committed or not change.ack_when_committed:
            self._answer_change(change, ErrorCode.NONE)
            left = None if ground.is_committed else attrs.evolve(change, is_answered=True)
            self._lead_with(state, change=left)

    def _end_change(self, state: Leading, error: ErrorCode, sentence: str) -> None:
        self._answer_change(state.change, error, sentence)
        self._lead_with(state, change=None)

    def _answer_change(
        self, change: PendingChange | None, error: ErrorCode, sentence: str | None = None
    ) -> None:
        if change is not None and not change.is_answered:
            self.effects.append(AnswerChange(error=error, sentence=sentence))

    def _lead_with(self, state: Leading, **changes: Any) -> None:
        self.quorum = attrs.evolve(self.quorum, state=attrs.evolve(state, **changes))

    def _change_refusal(self, event: VoterChangeAsked) -> ErrorCode:
        epoch = self.quorum.leader_epoch
        if isinstance(event, UpdateVoterReceived | UpgradeAsked):
            epoch = event.leader_epoch
        if not isinstance(event, UpgradeAsked) and not self._is_our_cluster(event.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return self._leader_refusal(epoch)

    def _ground(self, state: Leading) -> Ground:
        addresses = self.quorum.endpoints.addresses
        return Ground(
            progress=state.progress,
            voters_offset=self.quorum.voters_offset,
            kraft_version=self.quorum.kraft_version,
            listener=addresses[0].listener if addresses else "",
            pending=state.change,
        )

    # --- answers -----------------------------------------------------------------------------

    def _take_answer(
        self, event: Answered | FetchAnswered | LevelsAnswered | ReportAnswered
    ) -> None:
        match event:
            case Answered(sent, reply):
                self._answered(sent, reply)
            case FetchAnswered(reply):
                self._fetch_answered(reply)
            case LevelsAnswered():
                self._levels_answered(event)
            case ReportAnswered(reply):
                self._report_answered(reply)

    def _answered(self, sent: Send, reply: Reply) -> None:
        was = self.quorum.state
        if reply.error == ErrorCode.UNSUPPORTED_VERSION:
            # The peer is too old for a pre-vote, so there is none.
            if isinstance(was, Prospective) and self._is_current(sent.call):
                self._enter_candidate(was.leader_epoch + 1)
            return
        is_heard = self._hear_answer(reply)
        if not is_heard or reply.error != ErrorCode.NONE:
            self._send_again(sent)
        elif isinstance(sent.call, VoteCall) and self._is_current(sent.call):
            self._count(sent.to.id, granted=reply.vote_granted)

    def _count(self, voter_id: int, *, granted: bool) -> None:
        state = self.quorum.state
        assert isinstance(state, Prospective | Candidate), "only they ask for votes"
        election = state.election.record(voter_id, granted=granted)
        self.quorum = attrs.evolve(self.quorum, state=attrs.evolve(state, election=election))
        self._settle_election()

    def _send_again(self, sent: Send) -> None:
        if self._is_current(sent.call) and not isinstance(sent.call, BeginCall):
            due_ms = self.now_ms + self.quorum.settings.retry_backoff_ms
            self.quorum = attrs.evolve(
                self.quorum, pending={**self.quorum.pending, sent.to.id: due_ms}
            )

    def _is_current(self, call: Call) -> bool:
        """Return whether the state that sent this still lasts."""
        now = _call_to(self.quorum, self.log)
        if isinstance(call, VoteCall) and isinstance(now, VoteCall):
            return (call.pre_vote, call.leader_epoch) == (now.pre_vote, now.leader_epoch)
        return type(call) is type(now) and call.leader_epoch == self.quorum.leader_epoch

    def _hear_answer(self, reply: Reply) -> bool:
        """Take the epoch and the leader from an answer. Return whether the rest of it counts."""
        epoch = self.quorum.leader_epoch
        if reply.leader_epoch < epoch or reply.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        self._hear(reply.leader_id, reply.leader_epoch, reply.leader_endpoints)
        return reply.leader_epoch == epoch

    def _fetch_answered(self, reply: Reply) -> None:
        is_heard = self._hear_answer(reply)
        state = self.quorum.state
        # The leader may have deleted the snapshot meanwhile: it is there, and is asked again.
        is_taken = reply.error in {ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND}
        if not (is_heard and is_taken and isinstance(state, Follower)):
            return
        committed, position = self.quorum.high_watermark or 0, reply.position
        if isinstance(position, Diverging) and position.end.offset < committed:
            self._disagree(
                f"the leader's log ends at {position.end.offset} of {committed} committed"
            )
            return
        deadline_ms = self.now_ms + self.quorum.settings.fetch_timeout_ms
        self.quorum = attrs.evolve(
            self.quorum, state=attrs.evolve(state, deadline_ms=deadline_ms, has_fetched=True)
        )
        self.effects.append(TakeFetched())

    def _report_answered(self, reply: Reply) -> None:
        is_heard = self._hear_answer(reply)
        is_taken = reply.error in {ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION}
        if not (is_heard and is_taken and isinstance(self.quorum.state, Follower)):
            return
        state = self.quorum.state
        if state.deadline_ms is not None:
            state = attrs.evolve(state, deadline_ms=max(state.deadline_ms, self._fetch_ms))
        self.quorum = attrs.evolve(self.quorum, state=state, reported_epoch=state.leader_epoch)

    # --- the node itself ---------------------------------------------------------------------

    def _log_changed(self, leaders: Offset | None) -> None:
        state = self.quorum.state
        if isinstance(state, Leading):
            self._take_progress(state.progress.flushed(self.log.flushed_end_offset))
        elif leaders is not None:
            self._raise_high_watermark(min(leaders, self.log.end_offset))

    def _voters_changed(self, voters: VoterSet) -> None:
        joined = voters.ids - self.quorum.voters.ids - {self.quorum.me.id}
        due = {
            voter_id: ms for voter_id, ms in self.quorum.pending.items() if voter_id in voters.ids
        }
        if _call_to(self.quorum, self.log) is not None:
            due |= dict.fromkeys(joined, self.now_ms)
        self.quorum = attrs.evolve(self.quorum, voters=voters, pending=due)
        state, is_voter = self.quorum.state, self.quorum.is_voter
        match state:
            case Unattached() if is_voter != (state.deadline_ms is not None):
                self._enter(
                    attrs.evolve(state, deadline_ms=self._election_ms if is_voter else None)
                )
            case Follower(deadline_ms=None) if is_voter:
                self.quorum = attrs.evolve(
                    self.quorum, state=attrs.evolve(state, deadline_ms=self._fetch_ms)
                )
            case Prospective() if not is_voter:
                self._step_back(state)
            case Candidate() if not is_voter:
                self._unattach(state.leader_epoch)
            case Prospective() | Candidate():
                election = state.election.among(voters.ids)
                self.quorum = attrs.evolve(
                    self.quorum, state=attrs.evolve(state, election=election)
                )
                self._settle_election()
            case Leading():
                self._take_progress(state.progress.among(voters))
            case _:
                pass

    def _resign(self) -> None:
        """Leave the leadership, if this node leads, to the voters with the longest logs."""
        state = self.quorum.state
        if isinstance(state, Leading):
            self._enter_resigned(state.progress.successors)

    # --- transitions -------------------------------------------------------------------------

    def _hear(
        self, leader_id: int | None, leader_epoch: LeaderEpoch, endpoints: Endpoints
    ) -> ErrorCode:
        """Take a leader and an epoch that a peer named, or return what is wrong with them.

        The epoch is not below ours.
        """
        quorum = self.quorum
        is_newer = leader_epoch > quorum.leader_epoch
        if leader_id is None:
            if is_newer:
                self._unattach(leader_epoch)
            return ErrorCode.NONE
        if leader_id == quorum.me.id:
            is_true = isinstance(quorum.state, Leading | Resigned) and not is_newer
        else:
            is_true = is_newer or quorum.leader_id in {None, leader_id}
        if not is_true:
            self._disagree(f"a peer says that {leader_id} leads in epoch {leader_epoch}")
            return ErrorCode.INVALID_REQUEST
        known = endpoints or quorum.voters.endpoints(leader_id)
        is_better = len(known.addresses) > len(quorum.leader_endpoints.addresses)
        if leader_id != quorum.me.id and (is_newer or quorum.leader_id is None or is_better):
            self._follow(leader_epoch, leader_id, known)
        return ErrorCode.NONE

    def _disagree(self, claim: str) -> None:
        state = self.quorum.state
        name, epoch, leader_id = type(state).__name__, state.leader_epoch, state.leader_id
        self.effects.append(
            Disagreement(
                f"{claim}, but this node is {name} in epoch {epoch} with leader {leader_id}"
            )
        )

    def _follow(self, leader_epoch: LeaderEpoch, leader_id: int, endpoints: Endpoints) -> None:
        """Follow this leader; without its endpoints remember it, and go on looking for it."""
        if not endpoints:
            self._unattach(leader_epoch, leader_id)
            return
        self._enter(
            Follower(
                leader_epoch=leader_epoch,
                leader_id=leader_id,
                leader_endpoints=endpoints,
                voted=self._vote_in(leader_epoch),
                deadline_ms=self._fetch_ms,
            )
        )

    def _unattach(self, leader_epoch: LeaderEpoch, leader_id: int | None = None) -> None:
        """Know no leader. A timer that ran for an election goes on."""
        state, deadline_ms = self.quorum.state, self._election_ms
        is_waiting = isinstance(state, Unattached | Candidate | Resigned) or (
            isinstance(state, Prospective) and not state.election.is_lost
        )
        if is_waiting and state.deadline_ms is not None:
            deadline_ms = state.deadline_ms
        self._enter(
            Unattached(
                leader_epoch=leader_epoch,
                leader_id=leader_id,
                voted=self._vote_in(leader_epoch),
                deadline_ms=deadline_ms if self.quorum.is_voter else None,
            )
        )

    def _lose_leader(self, state: Follower) -> None:
        if self.quorum.is_voter:
            self._stand()
        else:
            self.quorum = attrs.evolve(self.quorum, state=attrs.evolve(state, deadline_ms=None))

    def _stand(self) -> None:
        """Ask the voters whether they would vote for this node, which is a voter."""
        state = self.quorum.state
        self._enter(self._prospective(voted=self._vote_in(state.leader_epoch)))
        self._settle_election()

    def _prospective(self, *, voted: ReplicaKey | None) -> Prospective:
        return Prospective(
            leader_epoch=self.quorum.leader_epoch,
            leader_id=self.quorum.leader_id,
            leader_endpoints=self.quorum.leader_endpoints,
            voted=voted,
            deadline_ms=self._election_ms,
            election=self._election(),
        )

    def _enter_candidate(self, leader_epoch: LeaderEpoch) -> None:
        self._enter(
            Candidate(
                leader_epoch=leader_epoch,
                voted=self.quorum.me,
                deadline_ms=self._election_ms,
                election=self._election(),
            )
        )
        self._settle_election()

    def _election(self) -> EpochElection:
        return EpochElection(voters=self.quorum.voters.ids, granted=frozenset({self.quorum.me.id}))

    def _settle_election(self) -> None:
        """Go on where the votes are enough, and back where they cannot be any more."""
        state = self.quorum.state
        match state:
            case Prospective() if state.election.is_won:
                self._enter_candidate(state.leader_epoch + 1)
            case Prospective() if state.election.is_lost:
                self._step_back(state)
            case Candidate() if state.election.is_won:
                self._enter_leader(state)
            case _:
                pass

    def _step_back(self, state: Prospective) -> None:
        """Go back to the leader that this node had lost, if there was one."""
        if state.leader_id is not None:
            self._follow(state.leader_epoch, state.leader_id, state.leader_endpoints)
        else:
            self._unattach(state.leader_epoch)

    def _enter_leader(self, state: Candidate) -> None:
        quorum = self.quorum
        self._enter(
            Leading(
                leader_epoch=state.leader_epoch,
                leader_id=quorum.me.id,
                leader_endpoints=quorum.endpoints,
                progress=lead(
                    quorum.me,
                    epoch_start_offset=self.log.end_offset,
                    voters=quorum.voters,
                    check_quorum_timeout_ms=quorum.settings.fetch_timeout_ms * 3 // 2,
                    now_ms=self.now_ms,
                ),
                reported=quorum.voters.with_named(quorum.node) or quorum.voters,
            )
        )
        if quorum.is_shutting_down:
            self._resign()
            return
        self.effects.append(
            Lead(
                leader_epoch=state.leader_epoch,
                epoch_start_offset=self.log.end_offset,
                voters=quorum.voters,
                granting=state.election.granted,
                new_voters=voters_at_start(
                    quorum.node,
                    quorum.voters,
                    voters_offset=quorum.voters_offset,
                    kraft_version=quorum.kraft_version,
                ),
                kraft_version=quorum.kraft_version,
            )
        )

    def _enter_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        self._enter(
            Resigned(
                leader_epoch=self.quorum.leader_epoch,
                leader_id=self.quorum.me.id,
                leader_endpoints=self.quorum.endpoints,
                successors=successors,
                deadline_ms=self._election_ms,
            )
        )

    def _enter(self, state: State) -> None:
        """Be in `state`; what it sends is due now, to every other voter."""
        self.quorum = attrs.evolve(self.quorum, state=state, pending={})
        if _call_to(self.quorum, self.log) is not None:
            others = self.quorum.voters.ids - {self.quorum.me.id}
            self.quorum = attrs.evolve(
                self.quorum, pending=dict.fromkeys(sorted(others), self.now_ms)
            )

    def _vote_in(self, leader_epoch: LeaderEpoch) -> ReplicaKey | None:
        """Return the vote that this node has given in an epoch, which is not below its own."""
        election = self.quorum.state.election_state
        return election.voted if election.leader_epoch == leader_epoch else None

    @property
    def _election_ms(self) -> int:
        return self.now_ms + self.quorum.settings.election_timeout_ms + self.jitter_ms

    @property
    def _request_ms(self) -> int:
        return self.now_ms + self.quorum.settings.request_timeout_ms

    @property
    def _begin_interval_ms(self) -> int:
        return self.quorum.settings.fetch_timeout_ms // 2

    @property
    def _fetch_ms(self) -> int:
        return self.now_ms + self.quorum.settings.fetch_timeout_ms


def _fetch_source(quorum: Quorum) -> FetchFrom | StopFetching:
    match quorum.state:
        case Follower(deadline_ms=None) | Unattached() as state:
            return FetchFrom(
                leader_epoch=state.leader_epoch, leader_id=None, endpoints=NO_ENDPOINTS
            )
        case Follower() as state:
            return FetchFrom(
                leader_epoch=state.leader_epoch,
                leader_id=state.leader_id,
                endpoints=state.leader_endpoints,
            )
        case _:
            return StopFetching()


def _call_to(quorum: Quorum, log: LogView) -> Call | None:
    """Return what a voter is to hear from this node in its state, None for nothing."""
    match quorum.state:
        case Prospective() | Candidate() as state if not state.election.is_lost:
            return VoteCall(
                leader_epoch=state.leader_epoch,
                last_epoch=log.last_epoch,
                end_offset=log.end_offset,
                pre_vote=isinstance(state, Prospective),
            )
        case Leading() as state:
            return BeginCall(leader_epoch=state.leader_epoch)
        case Resigned() as state:
            return EndCall(leader_epoch=state.leader_epoch, successors=state.successors)
        case _:
            return None
