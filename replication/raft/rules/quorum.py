"""A node's knowledge of its quorum, and what follows from that alone: the node that it fetches from,
and the requests that it owes the voters.

A Quorum is a value; step.py makes the next one from it. (Kafka: QuorumState, QuorumConfig.)
"""

from collections.abc import Mapping

import attrs

from replication.raft.rules.log_view import LogView
from replication.raft.rules.messages import (
    AddVoterReceived,
    BeginCall,
    Call,
    EndCall,
    FetchFrom,
    RemoveVoterReceived,
    StopFetching,
    UpdateVoterReceived,
    VoteCall,
)
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from replication.raft.rules.types import NO_ENDPOINTS, Endpoints, ReplicaKey
from replication.raft.rules.voters import RECONFIGURABLE, SUPPORTED, VoterNode, VoterSet
from storage.attributes import frozen
from storage.types import LeaderEpoch, Offset


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class Quorum:
    """A node's knowledge of its quorum. `pending` holds the voters that a request of this state
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
        """The entry of this node in a voter set."""
        return VoterNode(self.me, self.endpoints, SUPPORTED)

    @property
    def wish(self) -> AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived | None:
        """The change that this node asks its leader for, None for nothing.

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


def fetch_source(quorum: Quorum) -> FetchFrom | StopFetching:
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


def call_to(quorum: Quorum, log: LogView) -> Call | None:
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
