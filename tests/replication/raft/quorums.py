"""Nodes of a quorum for tests of its rules: each step is called by hand, at a time of its own."""

from collections.abc import Iterable

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.log_view import LogView
from replication.raft.rules.messages import Answered, Effect, Event, Persist, Reply, Send
from replication.raft.rules.quorum import Quorum, QuorumSettings, fresh, start, step
from replication.raft.rules.states import State
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
    return ReplicaKey(node_id, bytes([node_id]) * 16)


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
