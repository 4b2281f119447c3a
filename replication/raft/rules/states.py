"""The states of a node in the quorum: who leads for all it knows, and whom it would vote for.

    Unattached ──┐
                 ├──> Prospective ──> Candidate ──> Leading ──> Resigned ──> Unattached
    Follower ────┘

    in            when                                                it becomes
    Unattached    no leader was heard of for an election timeout      Prospective
    Follower      nothing was fetched for a fetch timeout             Prospective
    Prospective   a majority would vote for it                        Candidate, epoch + 1
                  no majority would, or time is up: leader known      Follower
                  the same, and no leader is known                    Unattached
    Candidate     a majority has voted for it                         Leading
                  time is up                                          Prospective
    Leading       it is asked to, or no majority fetches from it      Resigned
    Resigned      an election timeout is over                         Unattached, epoch + 1
    Unattached, Prospective, Candidate: a peer names the leader       Follower
    any           a peer names a higher epoch and its leader          Follower
                  a peer names a higher epoch                         Unattached

Nothing leads to a lower epoch. A leader without known endpoints is remembered by Unattached.

Rule 1: a node votes once in an epoch: for itself (Candidate), or for the one that `voted` names.
Kafka had a state Voted; it is Unattached with a vote, as in Kafka 4 (KIP-996), because a vote
changes nothing else.

Rule 2: a node that knows the leader of its epoch grants no vote in it, and no pre-vote once it has
fetched from that leader: one node that lost its connection does not disturb a quorum that works.

Rule 3: nobody is granted anything whose log ends before ours.

Rule 4: a leader that restarts is Resigned: it does not know what it had promised as a leader, so it
does not lead in that epoch again.
(Kafka: QuorumState, UnattachedState, ProspectiveState, CandidateState, FollowerState, LeaderState,
ResignedState, EpochElection.)
"""

import attrs

from replication.raft.rules.leader import LeaderProgress
from replication.raft.rules.membership import PendingChange
from replication.raft.rules.types import ElectionState, Endpoints, ReplicaKey
from replication.raft.rules.voters import NO_VOTERS, VoterSet
from storage.attributes import frozen
from storage.types import LeaderEpoch


@frozen(kw_only=True)
class EpochElection:
    """The votes of one election: who may vote, who has granted one, and who has refused."""

    voters: frozenset[int]
    granted: frozenset[int]
    rejected: frozenset[int] = frozenset()

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def is_lost(self) -> bool:
        """Whether too many have refused for a majority to be left."""
        return len(self.voters) - len(self.rejected) < self.majority

    @property
    def unrecorded(self) -> frozenset[int]:
        """The voters that have said nothing yet."""
        return self.voters - self.granted - self.rejected

    def record(self, voter_id: int, *, granted: bool) -> "EpochElection":
        """Return the election with the first vote of this voter; a second one changes nothing."""
        if voter_id not in self.unrecorded:
            return self
        if granted:
            return attrs.evolve(self, granted=self.granted | {voter_id})
        return attrs.evolve(self, rejected=self.rejected | {voter_id})

    def among(self, voters: frozenset[int]) -> "EpochElection":
        """Return the election among other voters, with the votes of voters that are in both."""
        return EpochElection(
            voters=voters, granted=self.granted & voters, rejected=self.rejected & voters
        )


@frozen(kw_only=True)
class Unattached:
    """In its epoch it knows no leader, or not where the leader is. It may have voted."""

    leader_epoch: LeaderEpoch
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    # When it stands for election; an observer never does.
    deadline_ms: int | None

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(
            leader_epoch=self.leader_epoch, leader_id=self.leader_id, voted=self.voted
        )

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants(self, candidate, up_to_date=up_to_date, pre_vote=pre_vote)


@frozen(kw_only=True)
class Prospective:
    """It asks the voters whether they would vote for it, before it raises the epoch (KIP-996).

    It keeps what it knew: a leader that it lost, and a vote that it gave.
    """

    leader_epoch: LeaderEpoch
    leader_id: int | None
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    deadline_ms: int
    election: EpochElection

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(
            leader_epoch=self.leader_epoch, leader_id=self.leader_id, voted=self.voted
        )

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants(self, candidate, up_to_date=up_to_date, pre_vote=pre_vote)


@frozen(kw_only=True)
class Candidate:
    """It has voted for itself in a new epoch, and asks the others for their votes."""

    leader_epoch: LeaderEpoch
    voted: ReplicaKey
    deadline_ms: int
    election: EpochElection

    @property
    def leader_id(self) -> None:
        return None

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(leader_epoch=self.leader_epoch, voted=self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        del candidate
        return pre_vote and up_to_date


@frozen(kw_only=True)
class Follower:
    """It fetches from the leader of its epoch."""

    leader_epoch: LeaderEpoch
    leader_id: int
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    # When it gives the leader up; None: it is an observer that has, and looks for another one.
    deadline_ms: int | None
    has_fetched: bool = False

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(
            leader_epoch=self.leader_epoch, leader_id=self.leader_id, voted=self.voted
        )

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        del candidate
        return pre_vote and up_to_date and not self.has_fetched


@frozen(kw_only=True)
class Leading:
    """It leads in its epoch, until it resigns or hears of a higher one."""

    leader_epoch: LeaderEpoch
    leader_id: int
    leader_endpoints: Endpoints
    progress: LeaderProgress
    change: PendingChange | None = None
    # What the voters said of themselves, as long as that stands in no log.
    reported: VoterSet = NO_VOTERS

    @property
    def deadline_ms(self) -> int | None:
        """When it resigns if no majority fetches from it, or gives a change of the voters up."""
        change_ms = None if self.change is None else self.change.deadline_ms
        due = (each for each in (self.progress.deadline_ms, change_ms) if each is not None)
        return min(due, default=None)

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(leader_epoch=self.leader_epoch, leader_id=self.leader_id)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        del candidate, up_to_date, pre_vote
        return False


@frozen(kw_only=True)
class Resigned:
    """It was the leader of its epoch, and tells the voters that it no longer is.

    After an election timeout it goes on to the next epoch: in this one its
    answers name it as the leader.
    """

    leader_epoch: LeaderEpoch
    leader_id: int
    leader_endpoints: Endpoints
    successors: tuple[ReplicaKey, ...]
    deadline_ms: int

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(leader_epoch=self.leader_epoch, leader_id=self.leader_id)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        del candidate
        return pre_vote and up_to_date


State = Unattached | Prospective | Candidate | Follower | Leading | Resigned


def _grants(
    state: Unattached | Prospective, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    """Return whether a node without a leader to follow would vote for `candidate`."""
    if pre_vote:
        return up_to_date
    if state.voted is not None:
        return state.voted.matches(candidate)  # it may not have heard the answer
    return state.leader_id is None and up_to_date
