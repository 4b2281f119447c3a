"""Nodes of a quorum for tests of its rules: each step is called by hand, at a time of its own."""

from collections.abc import Iterable

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.log_view import LogView
from replication.raft.rules.messages import (
    Answered,
    BeginCall,
    BeginReceived,
    Effect,
    EndCall,
    EndReceived,
    Event,
    FetchAnswered,
    Persist,
    Reply,
    ResignAsked,
    Send,
    TimerExpired,
    VoteCall,
    VoteReceived,
)
from replication.raft.rules.quorum import Quorum, QuorumSettings, fresh
from replication.raft.rules.states import State
from replication.raft.rules.step import start, step
from replication.raft.rules.types import ElectionState, Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import VoterNode, VoterSet
from storage.checkpoint import EpochEntry

CLUSTER = "cluster-1"
SETTINGS = QuorumSettings(
    election_timeout_ms=10_000, election_backoff_max_ms=100, fetch_timeout_ms=50_000
)
JITTER_MS = 5_000
ELECTION_MS = SETTINGS.election_timeout_ms + JITTER_MS


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id + 1]) * 16)


def endpoints(node_id: int) -> Endpoints:
    return Endpoints((ListenerAddress("CONTROLLER", "localhost", 9990 + node_id),))


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(VoterNode(key(each), endpoints(each)) for each in ids))


def log_to(end_offset: int, *, epoch: int) -> LogView:
    """Return a log whose records all have one leader epoch."""
    return LogView(
        end_offset=end_offset, flushed_end_offset=end_offset, epochs=(EpochEntry(epoch, 0),)
    )


@attrs.define
class Node:
    """A node whose clock stands still until a test moves it."""

    quorum: Quorum
    log: LogView
    now_ms: int = 0
    effects: tuple[Effect, ...] = ()
    stored: ElectionState | None = None

    @property
    def state(self) -> State:
        return self.quorum.state

    def is_now(self, kind: type[State]) -> bool:
        return isinstance(self.quorum.state, kind)

    def step(self, event: Event, *, after_ms: int = 0) -> Reply | None:
        """Return the answer to `event`, if it is a request."""
        self.now_ms += after_ms
        made = step(self.quorum, event, self.log, now_ms=self.now_ms, jitter_ms=JITTER_MS)
        self._take(made.quorum, made.effects)
        return next((each for each in self.effects if isinstance(each, Reply)), None)

    def restart(self, election: ElectionState | None) -> None:
        self.stored = election
        first = start(self.quorum, election, self.log, now_ms=self.now_ms, jitter_ms=JITTER_MS)
        self._take(first.quorum, first.effects)

    def _take(self, quorum: Quorum, effects: tuple[Effect, ...]) -> None:
        self.quorum, self.effects = quorum, effects
        for each in effects:
            if isinstance(each, Persist):
                self.stored = each.election

    @property
    def sent(self) -> list[Send]:
        return [each for each in self.effects if isinstance(each, Send)]

    def answer(self, sent: Send, *, epoch: int, granted: bool = True) -> None:
        """Let the voter that was asked answer, without an error."""
        reply = Reply(error=ErrorCode.NONE, leader_epoch=epoch, vote_granted=granted)
        self.step(Answered(sent, reply))


def node(
    node_id: int = 0,
    *,
    voters: Iterable[int] = (0, 1, 2),
    election: ElectionState | None = None,
    log: LogView | None = None,
) -> Node:
    """Return a node that has just started."""
    quorum = fresh(
        key(node_id),
        endpoints=endpoints(node_id),
        cluster_id=CLUSTER,
        voters=voter_set(*voters),
        settings=SETTINGS,
    )
    made = Node(quorum, log or LogView())
    made.restart(election)
    return made


EPOCH = 5


def unattached(node_id: int = 0, *, voters: Iterable[int] = (0, 1, 2)) -> Node:
    """Return a node that knows of no leader in epoch 5."""
    return node(node_id, voters=voters, election=ElectionState(leader_epoch=EPOCH))


def voted_for(candidate: ReplicaKey) -> Node:
    """Return a node that has voted in epoch 5."""
    return node(election=ElectionState(leader_epoch=EPOCH, voted=candidate))


def follower(node_id: int = 0, *, voters: Iterable[int] = (0, 1, 2)) -> Node:
    """Return a node that follows node 1 in epoch 5."""
    return node(node_id, voters=voters, election=ElectionState(leader_epoch=EPOCH, leader_id=1))


def prospective() -> Node:
    """Return a node that asks the others whether they would vote for it, in epoch 5."""
    one = unattached()
    one.step(TimerExpired(), after_ms=ELECTION_MS)
    return one


def candidate(*, voters: Iterable[int] = (0, 1, 2)) -> Node:
    """Return a node that stands for election in epoch 5."""
    return node(voters=voters, election=ElectionState(leader_epoch=EPOCH, voted=key(0)))


def leading(*, log: LogView | None = None) -> Node:
    """Return the leader of epoch 5, for which node 1 has voted."""
    one = node(log=log, election=ElectionState(leader_epoch=EPOCH, voted=key(0)))
    one.answer(one.sent[0], epoch=EPOCH)
    return one


def resigned() -> Node:
    """Return a node that led in epoch 5 and has resigned."""
    one = leading()
    one.step(ResignAsked(EPOCH))
    return one


def vote(
    candidate_id: int = 2,
    *,
    epoch: int = EPOCH,
    pre_vote: bool = False,
    end_offset: int = 0,
    last_epoch: int = 0,
) -> VoteReceived:
    """Return a request for a vote, from a candidate whose log ends there."""
    call = VoteCall(
        leader_epoch=epoch, last_epoch=last_epoch, end_offset=end_offset, pre_vote=pre_vote
    )
    return VoteReceived(candidate=key(candidate_id), call=call)


def begin(leader_id: int = 1, *, epoch: int = EPOCH) -> BeginReceived:
    """Return what a leader says of itself; its endpoints are those of the voter set."""
    return BeginReceived(leader_id=leader_id, call=BeginCall(leader_epoch=epoch))


def end(leader_id: int = 1, *, epoch: int = EPOCH, successors: Iterable[int] = ()) -> EndReceived:
    """Return what a leader says that has resigned."""
    call = EndCall(leader_epoch=epoch, successors=tuple(key(each) for each in successors))
    return EndReceived(leader_id=leader_id, call=call)


def fetched() -> FetchAnswered:
    """Return the answer of node 1, which leads in epoch 5, to a fetch."""
    return FetchAnswered(
        Reply(
            error=ErrorCode.NONE,
            leader_epoch=EPOCH,
            leader_id=1,
        )
    )
