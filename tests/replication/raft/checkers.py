"""What must hold in every run of a quorum, looked at after every move.

The checkers know nothing of the rules: they see what nodes have on their disks, what they send,
and what they say of leaders and high watermarks. A broken rule ends the run.

    one leader          an epoch has at most one leader, and begins once
    one vote            a node votes for one candidate in an epoch, also over restarts
    epochs              what a node has sent with an epoch, it never sends with an earlier one
    high watermarks     the high watermark of a process never falls, nor passes its log's end
    committed           an entry below any high watermark is the same on every node, for ever
    complete leaders    a new leader has every committed entry
    majorities          what a leader commits is synced on a majority of its voters, and ends with an
                        entry of its own epoch (Raft, 5.4.2)
    no contradiction    no node hears of a leader that cannot be
    removed leaders     a leader whose removal is committed resigns (KIP-853)
    check quorum        a leader from which no majority fetches resigns in time
    voter sets          every majority of a voter set meets every majority of the one before it
"""

import itertools
from bisect import bisect_left
from collections.abc import Mapping

import attrs

from replication.raft.rules.quorum import QuorumSettings
from replication.raft.rules.types import ReplicaKey
from replication.raft.rules.voters import VoterSet, VoterSetHistory
from tests.replication.raft.disk import Entry, NaiveLog

CHECK_QUORUM_MS = QuorumSettings().fetch_timeout_ms * 3 // 2
"""The time after which a leader resigns from which no majority fetches."""


class RuleBrokenError(Exception):
    """A run broke a rule, which is the first part of the message."""


def require(held: bool, rule: str, *detail: object) -> None:
    if not held:
        raise RuleBrokenError(f"{rule}: {' '.join(map(str, detail))}")


@attrs.define
class Checkers:
    """The history of a run, in so far as later moves are judged by it."""

    committed: list[Entry] = attrs.field(factory=list)
    committed_in: list[int] = attrs.field(factory=list)
    """The epoch in which each of them was first known to be committed."""
    leaders: dict[int, int] = attrs.field(factory=dict)
    """The leader of each epoch."""
    votes: dict[tuple[ReplicaKey, int], ReplicaKey] = attrs.field(factory=dict)
    """The candidate that a node, the first of the key, voted for in an epoch."""
    epochs: dict[ReplicaKey, int] = attrs.field(factory=dict)
    """The highest epoch that each node has sent."""
    heard: dict[tuple[int, int, int], int] = attrs.field(factory=dict)
    """When a leader was last fetched from, by leader, epoch and follower; by itself: its election."""
    followed: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """When a majority had last fetched from a leader, by leader and epoch."""
    elections: int = 0
    truncations: int = 0
    snapshots: int = 0
    voter_changes: int = 0

    def sent(self, node: ReplicaKey, epoch: int) -> None:
        known = self.epochs.get(node, 0)
        require(epoch >= known, "epochs never go back", node, "sent", epoch, "after", known)
        self.epochs[node] = epoch

    def voted(self, node: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self.votes.setdefault((node, epoch), candidate)
        require(
            known == candidate, "one vote in an epoch", node, "in", epoch, "for", known, candidate
        )

    def leads(self, node: int, epoch: int, log: NaiveLog, now_ms: int) -> None:
        self.elections += 1
        self.heard[node, epoch, node] = now_ms
        known = self.leaders.get(epoch)
        require(known is None, "an epoch begins once, with one leader", epoch, known, node)
        self.leaders[epoch] = node
        # A candidate that was paused may lead in an epoch that is over already.
        wanted = self.committed[: bisect_left(self.committed_in, epoch)]
        require(
            list(log.entries[: len(wanted)]) == wanted,
            "a leader has what is committed",
            *(node, "in", epoch, "ends at", log.end, "committed", len(wanted)),
        )

    def high_watermark(self, node: int, log: NaiveLog, epoch: int, before: int, now: int) -> None:
        require(now >= before, "high watermarks never go back", node, before, "to", now)
        require(now <= log.end, "a high watermark is in the log", node, now, "of", log.end)
        shared = min(now, len(self.committed))
        # What was below the node's high watermark before has been compared then, and stays.
        same = list(log.entries[before:shared]) == self.committed[before:shared]
        require(same, "committed entries stay", node, before, "to", now)
        self.committed += log.entries[len(self.committed) : now]
        self.committed_in += [epoch] * (len(self.committed) - len(self.committed_in))

    def commits(
        self,
        leader: int,
        epoch: int,
        offset: int,
        voters: VoterSet,
        disks: Mapping[ReplicaKey, list[NaiveLog]],
    ) -> None:
        """Look for what the leader commits in every version that a kill may leave of a log."""
        last = self.committed[offset - 1].epoch
        require(
            last == epoch,
            "a leader commits by an entry of its epoch",
            *(leader, "in", epoch, "commits", offset, "by one of", last),
        )
        wanted = tuple(self.committed[:offset])
        having = [
            node.key.id
            for node in voters.nodes
            if all(version.entries[:offset] == wanted for version in disks[node.key])
        ]
        require(
            len(having) >= voters.majority,
            "what is committed is on a majority of disks",
            *(leader, "commits", offset, "which", having, "of", sorted(voters.ids), "have synced"),
        )

    def hears(self, leader: int, epoch: int, follower: int, now_ms: int) -> None:
        self.heard[leader, epoch, follower] = now_ms

    def leads_on(
        self,
        leader: ReplicaKey,
        epoch: int,
        history: VoterSetHistory,
        *,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        """Check that a node may lead at this moment, at which it has nothing left to do."""
        voters, offset = history.voters, history.voters_offset
        is_committed = offset is not None and offset < high_watermark
        require(
            not is_committed or voters.is_voter(leader),
            "a leader whose removal is committed resigns",
            *(leader, "leads on, and these vote:", sorted(voters.ids)),
        )
        needed = voters.majority - voters.is_voter(leader)
        began_ms = self.heard[leader.id, epoch, leader.id]
        others = (each for each in voters.ids if each != leader.id)
        heard = sorted(self.heard.get((leader.id, epoch, each), began_ms) for each in others)
        last_ms = heard[-needed] if 0 < needed <= len(heard) else now_ms
        self.followed[leader.id, epoch] = max(
            last_ms, self.followed.get((leader.id, epoch), began_ms)
        )
        alone_ms = now_ms - self.followed[leader.id, epoch]
        require(
            alone_ms <= CHECK_QUORUM_MS,
            "a leader that no majority fetches from resigns",
            *(leader.id, "leads in", epoch, "alone for", alone_ms, "ms"),
        )

    def truncates(self, node: int, log: NaiveLog, end: int, high_watermark: int) -> None:
        self.truncations += 1
        require(
            end >= high_watermark,
            "no truncation below the high watermark",
            *(node, "to", end, "below", high_watermark),
        )
        lost = log.entries[end : len(self.committed)]
        same = [offset for offset, entry in enumerate(lost, end) if self.committed[offset] == entry]
        require(not same, "no truncation of what is committed", node, "to", end, "loses", same[:3])

    def loads(self, node: int, snapshot: NaiveLog, high_watermark: int) -> None:
        self.snapshots += 1
        require(
            snapshot.start >= high_watermark,
            "no snapshot that ends below the high watermark",
            *(node, "loads", snapshot.start, "below", high_watermark),
        )
        same = list(snapshot.entries) == self.committed[: snapshot.start]
        require(same, "a snapshot is what was committed", node, "loads", snapshot.start)

    def changes_voters(self, before: VoterSet, after: VoterSet) -> None:
        self.voter_changes += 1
        old, new = before.keys, after.keys
        require(
            not any(one.isdisjoint(other) for one in majorities(old) for other in majorities(new)),
            "majorities of two voter sets meet",
            *(sorted(before.ids), sorted(after.ids)),
        )


def majorities(voters: frozenset[ReplicaKey]) -> list[frozenset[ReplicaKey]]:
    """Return the smallest majorities of a voter set."""
    return [
        frozenset(each) for each in itertools.combinations(sorted(voters), len(voters) // 2 + 1)
    ]
