"""One step while it is made: the transitions from state to state, and what a leader learns.

Each method changes `quorum`, or adds an effect. The functions that call them are in requests.py (what
a peer asks), answers.py (what a peer answers), voter_requests.py (changes of the voters) and step.py
(everything else). (Kafka: QuorumState, KafkaRaftClient.)
"""

from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.leader import LeaderProgress, lead
from replication.raft.rules.log_view import LogView, Position
from replication.raft.rules.membership import (
    Ground,
    PendingChange,
    UncommittedVoters,
    voters_at_start,
)
from replication.raft.rules.messages import (
    AnswerChange,
    Disagreement,
    Effect,
    HighWatermark,
    Lead,
    Reply,
)
from replication.raft.rules.quorum import Quorum, call_to
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
from replication.raft.rules.types import Endpoints, ReplicaKey
from storage.attributes import define
from storage.types import LeaderEpoch, Offset


@define
class QuorumTurn:
    """One step while it is made: `quorum` and `effects` grow, and `finish` adds what has changed."""

    quorum: Quorum
    log: LogView
    now_ms: int
    jitter_ms: int
    effects: list[Effect] = attrs.Factory(list)

    def take_progress(self, progress: LeaderProgress) -> None:
        """Know this of the replicas, as the leader; what a majority has flushed is committed."""
        quorum, state = self.quorum, self.quorum.state
        assert isinstance(state, Leading), "only a leader knows how far the others are"
        self.quorum = attrs.evolve(quorum, state=attrs.evolve(state, progress=progress))
        self.raise_high_watermark(progress.high_watermark)
        self.settle_change()

    def raise_high_watermark(self, offset: Offset | None) -> None:
        if offset is not None and offset > (self.quorum.high_watermark or 0):
            self.quorum = attrs.evolve(self.quorum, high_watermark=offset)
            self.effects.append(HighWatermark(offset))

    def leader_refusal(self, leader_epoch: LeaderEpoch) -> ErrorCode:
        """Return why this node does not answer as the leader of that epoch, or NONE."""
        if leader_epoch != self.quorum.leader_epoch:
            is_old = leader_epoch < self.quorum.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.quorum.state, Leading):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def is_our_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self.quorum.cluster_id

    def reply(
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

    def settle_change(self) -> None:
        """Answer the change of the voters once it is in the log, or committed, as it was asked."""
        state = self.quorum.state
        if not isinstance(state, Leading) or not isinstance(state.change, UncommittedVoters):
            return
        change, ground = state.change, self.ground(state)
        if change.voters != self.quorum.voters or self.quorum.voters_offset is None:
            return
        if ground.is_committed or not change.ack_when_committed:
            self.answer_change(change, ErrorCode.NONE)
            left = None if ground.is_committed else attrs.evolve(change, is_answered=True)
            self.lead_with(state, change=left)

    def end_change(self, state: Leading, error: ErrorCode, sentence: str) -> None:
        self.answer_change(state.change, error, sentence)
        self.lead_with(state, change=None)

    def answer_change(
        self, change: PendingChange | None, error: ErrorCode, sentence: str | None = None
    ) -> None:
        if change is not None and not change.is_answered:
            self.effects.append(AnswerChange(error=error, sentence=sentence))

    def lead_with(self, state: Leading, **changes: Any) -> None:
        self.quorum = attrs.evolve(self.quorum, state=attrs.evolve(state, **changes))

    def ground(self, state: Leading) -> Ground:
        addresses = self.quorum.endpoints.addresses
        return Ground(
            progress=state.progress,
            voters_offset=self.quorum.voters_offset,
            kraft_version=self.quorum.kraft_version,
            listener=addresses[0].listener if addresses else "",
            pending=state.change,
        )

    def resign(self) -> None:
        """Leave the leadership, if this node leads, to the voters with the longest logs."""
        state = self.quorum.state
        if isinstance(state, Leading):
            self.enter_resigned(state.progress.successors)

    def hear(
        self, leader_id: int | None, leader_epoch: LeaderEpoch, endpoints: Endpoints
    ) -> ErrorCode:
        """Take a leader and an epoch that a peer named, or return what is wrong with them.

        The epoch is not below ours.
        """
        quorum = self.quorum
        is_newer = leader_epoch > quorum.leader_epoch
        if leader_id is None:
            if is_newer:
                self.unattach(leader_epoch)
            return ErrorCode.NONE
        if leader_id == quorum.me.id:
            is_true = isinstance(quorum.state, Leading | Resigned) and not is_newer
        else:
            is_true = is_newer or quorum.leader_id in {None, leader_id}
        if not is_true:
            self.disagree(f"a peer says that {leader_id} leads in epoch {leader_epoch}")
            return ErrorCode.INVALID_REQUEST
        known = endpoints or quorum.voters.endpoints(leader_id)
        is_better = len(known.addresses) > len(quorum.leader_endpoints.addresses)
        if leader_id != quorum.me.id and (is_newer or quorum.leader_id is None or is_better):
            self.follow(leader_epoch, leader_id, known)
        return ErrorCode.NONE

    def disagree(self, claim: str) -> None:
        state = self.quorum.state
        name, epoch, leader_id = type(state).__name__, state.leader_epoch, state.leader_id
        self.effects.append(
            Disagreement(
                f"{claim}, but this node is {name} in epoch {epoch} with leader {leader_id}"
            )
        )

    def follow(self, leader_epoch: LeaderEpoch, leader_id: int, endpoints: Endpoints) -> None:
        """Follow this leader; without its endpoints remember it, and go on looking for it."""
        if not endpoints:
            self.unattach(leader_epoch, leader_id)
            return
        self.enter(
            Follower(
                leader_epoch=leader_epoch,
                leader_id=leader_id,
                leader_endpoints=endpoints,
                voted=self.vote_in(leader_epoch),
                deadline_ms=self.fetch_ms,
            )
        )

    def unattach(self, leader_epoch: LeaderEpoch, leader_id: int | None = None) -> None:
        """Know no leader. A timer that ran for an election goes on."""
        state, deadline_ms = self.quorum.state, self.election_ms
        is_waiting = isinstance(state, Unattached | Candidate | Resigned) or (
            isinstance(state, Prospective) and not state.election.is_lost
        )
        if is_waiting and state.deadline_ms is not None:
            deadline_ms = state.deadline_ms
        self.enter(
            Unattached(
                leader_epoch=leader_epoch,
                leader_id=leader_id,
                voted=self.vote_in(leader_epoch),
                deadline_ms=deadline_ms if self.quorum.is_voter else None,
            )
        )

    def stand(self) -> None:
        """Ask the voters whether they would vote for this node, which is a voter."""
        state = self.quorum.state
        self.enter(self.prospective(voted=self.vote_in(state.leader_epoch)))
        self.settle_election()

    def prospective(self, *, voted: ReplicaKey | None) -> Prospective:
        return Prospective(
            leader_epoch=self.quorum.leader_epoch,
            leader_id=self.quorum.leader_id,
            leader_endpoints=self.quorum.leader_endpoints,
            voted=voted,
            deadline_ms=self.election_ms,
            election=self.election(),
        )

    def enter_candidate(self, leader_epoch: LeaderEpoch) -> None:
        self.enter(
            Candidate(
                leader_epoch=leader_epoch,
                voted=self.quorum.me,
                deadline_ms=self.election_ms,
                election=self.election(),
            )
        )
        self.settle_election()

    def election(self) -> EpochElection:
        return EpochElection(voters=self.quorum.voters.ids, granted=frozenset({self.quorum.me.id}))

    def settle_election(self) -> None:
        """Go on where the votes are enough, and back where they cannot be any more."""
        state = self.quorum.state
        match state:
            case Prospective() if state.election.is_won:
                self.enter_candidate(state.leader_epoch + 1)
            case Prospective() if state.election.is_lost:
                self.step_back(state)
            case Candidate() if state.election.is_won:
                self.enter_leader(state)
            case _:
                pass

    def step_back(self, state: Prospective) -> None:
        """Go back to the leader that this node had lost, if there was one."""
        if state.leader_id is not None:
            self.follow(state.leader_epoch, state.leader_id, state.leader_endpoints)
        else:
            self.unattach(state.leader_epoch)

    def enter_leader(self, state: Candidate) -> None:
        quorum = self.quorum
        self.enter(
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
            self.resign()
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

    def enter_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        self.enter(
            Resigned(
                leader_epoch=self.quorum.leader_epoch,
                leader_id=self.quorum.me.id,
                leader_endpoints=self.quorum.endpoints,
                successors=successors,
                deadline_ms=self.election_ms,
            )
        )

    def enter(self, state: State) -> None:
        """Be in `state`; what it sends is due now, to every other voter."""
        self.quorum = attrs.evolve(self.quorum, state=state, pending={})
        if call_to(self.quorum, self.log) is not None:
            others = self.quorum.voters.ids - {self.quorum.me.id}
            self.quorum = attrs.evolve(
                self.quorum, pending=dict.fromkeys(sorted(others), self.now_ms)
            )

    def vote_in(self, leader_epoch: LeaderEpoch) -> ReplicaKey | None:
        """Return the vote that this node has given in an epoch, which is not below its own."""
        election = self.quorum.state.election_state
        return election.voted if election.leader_epoch == leader_epoch else None

    @property
    def election_ms(self) -> int:
        return self.now_ms + self.quorum.settings.election_timeout_ms + self.jitter_ms

    @property
    def request_ms(self) -> int:
        return self.now_ms + self.quorum.settings.request_timeout_ms

    @property
    def begin_interval_ms(self) -> int:
        return self.quorum.settings.fetch_timeout_ms // 2

    @property
    def fetch_ms(self) -> int:
        return self.now_ms + self.quorum.settings.fetch_timeout_ms
