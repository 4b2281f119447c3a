"""A leader's knowledge of its followers: how far each has flushed its log, and when it last fetched.

A fetch from an offset says that everything below it is flushed there. The leader counts for what it
has flushed itself, if it is a voter.

    voters     flushed        sorted           a majority has      high watermark
    1 leader   20             20 18 15         18                  18, if the epoch began below 18
    2          15
    3          18
    4 observer 20

Rule 1: the high watermark is what a majority of the newest voter set has flushed. It counts only
past the start of the leader's own epoch: a record of an earlier epoch on a majority can still be
lost to another leader until one of this epoch lies above it (Raft, 5.4.2).

Rule 2: the high watermark does not go back: a majority of another voter set may have less.

Rule 3: a leader from which no majority has fetched for one and a half fetch timeouts resigns:
another one may lead by now (check quorum). A change of the voter set does not bring this forward.

Rule 4: where the voter set names no directories, one process at a time fetches in the name of a
voter. Another one with the same node id, but another directory, would be counted for what the first
has flushed; it is refused until the first has been silent for as long as in rule 3. (Kafka's leader
counts both.)

Rule 5: a replica is a voter or an observer by the newest voter set, and keeps what is known of it
when that changes. An observer that has not fetched for five minutes is forgotten.
(Kafka: LeaderState.)
"""

from collections.abc import Mapping
from typing import Final

import attrs

from replication.raft.rules.types import NO_DIRECTORY_ID, ReplicaKey
from replication.raft.rules.voters import VoterSet
from storage.attributes import frozen
from storage.types import Offset

OBSERVER_SESSION_MS: Final = 300_000
NOTHING_FLUSHED: Final = -1


@frozen(kw_only=True)
class ReplicaProgress:
    """How far a replica has come; everything is None until it is known.

    `directory_id` is that of its last fetch, zeros if it named none.
    """

    directory_id: bytes = NO_DIRECTORY_ID
    end_offset: Offset | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_at_fetch: Offset | None = None

    def fetched(
        self,
        fetch_offset: Offset,
        *,
        leader_end: Offset | None,
        now_ms: int,
        directory_id: bytes = NO_DIRECTORY_ID,
    ) -> "ReplicaProgress":
        """Return the progress after a fetch from `fetch_offset`.

        A replica that has now read to where the leader ended at its fetch before had caught up
        at that time.
        """
        caught_up_ms = self.last_caught_up_ms
        if leader_end is not None and fetch_offset >= leader_end:
            caught_up_ms = now_ms
        elif self.leader_end_at_fetch is not None and fetch_offset >= self.leader_end_at_fetch > 0:
            caught_up_ms = self.last_fetch_ms
        return ReplicaProgress(
            directory_id=directory_id,
            end_offset=fetch_offset,
            last_fetch_ms=now_ms,
            last_caught_up_ms=caught_up_ms,
            leader_end_at_fetch=leader_end,
        )


UNKNOWN: Final = ReplicaProgress()


@frozen(kw_only=True)
class LeaderProgress:
    """A leader's knowledge of the replicas, itself included.

    `check_quorum_ms` is when it resigns, unless a majority fetches. `since_ms` is when its epoch
    began.
    """

    me: ReplicaKey
    epoch_start_offset: Offset
    voters: VoterSet
    since_ms: int
    check_quorum_timeout_ms: int
    check_quorum_ms: int
    replicas: Mapping[ReplicaKey, ReplicaProgress] = attrs.field(factory=dict)
    high_watermark: Offset | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When it resigns if nobody fetches; None where it is a majority by itself."""
        return self.check_quorum_ms if _followers_needed(self) else None

    @property
    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, those that have flushed the most first."""
        others = (node.key for node in self.voters.nodes if node.key.id != self.me.id)
        return tuple(sorted(others, key=lambda voter: (-_end_of(self, voter), voter)))

    def of(self, replica: ReplicaKey) -> ReplicaProgress:
        """Return what is known of a voter or an observer."""
        return self.replicas.get(self.name(replica), UNKNOWN)

    def observers(self, now_ms: int) -> dict[ReplicaKey, ReplicaProgress]:
        """Return the replicas that are no voters, and have fetched not long ago; and the leader,
        once it is no voter any more.
        """
        voters = self.voters.keys
        return {
            key: progress
            for key, progress in self.replicas.items()
            if key not in voters and (key == self.me or _is_recent(progress, now_ms))
        }

    def flushed(self, end_offset: Offset) -> "LeaderProgress":
        """Return what is known after the leader has flushed its log up to `end_offset`."""
        own = attrs.evolve(self.of(self.me), end_offset=end_offset)
        return _committed(attrs.evolve(self, replicas={**self.replicas, self.name(self.me): own}))

    def fetched(
        self, replica: ReplicaKey, fetch_offset: Offset, *, now_ms: int
    ) -> "LeaderProgress":
        """Return what is known after a replica has fetched from a valid offset."""
        leader_end = self.of(self.me).end_offset
        progress = self.of(replica).fetched(
            fetch_offset,
            leader_end=leader_end,
            now_ms=now_ms,
            directory_id=replica.directory_id,
        )
        replicas = {**_kept(self, replica, now_ms), self.name(replica): progress}
        known = attrs.evolve(self, replicas=replicas)
        return _committed(_followed(known)) if self.voters.is_voter(replica) else known

    def is_alive(self, voter: ReplicaKey, *, now_ms: int) -> "LeaderProgress":
        """Return what is known after a voter has fetched a snapshot, or reported its endpoints."""
        if not self.voters.is_voter(voter):
            return self
        progress = attrs.evolve(
            self.of(voter), last_fetch_ms=now_ms, directory_id=voter.directory_id
        )
        return _followed(attrs.evolve(self, replicas={**self.replicas, self.name(voter): progress}))

    def has_another(self, voter: ReplicaKey, *, now_ms: int) -> bool:
        """Return whether a process with another directory fetches in the name of this voter."""
        known = self.of(voter)
        return (
            self.voters.is_voter(voter)
            and NO_DIRECTORY_ID not in {known.directory_id, voter.directory_id}
            and known.directory_id != voter.directory_id
            and known.last_fetch_ms is not None
            and now_ms - known.last_fetch_ms < self.check_quorum_timeout_ms
        )

    def among(self, voters: VoterSet) -> "LeaderProgress":
        """Return the same with another set of voters, of which this node may be none."""
        left = dict(self.replicas)
        kept = {node.key: left.pop(self.name(node.key), UNKNOWN) for node in voters.nodes}
        return _committed(attrs.evolve(self, voters=voters, replicas={**left, **kept}))

    def name(self, replica: ReplicaKey) -> ReplicaKey:
        """Return the name under which a replica is known: that of the voter set, if it is there."""
        node = self.voters.node(replica.id)
        return node.key if node is not None and node.key.matches(replica) else replica


def lead(
    me: ReplicaKey,
    *,
    epoch_start_offset: Offset,
    voters: VoterSet,
    check_quorum_timeout_ms: int,
    now_ms: int,
) -> LeaderProgress:
    """Return what a leader knows when its epoch begins: nothing of anybody."""
    return LeaderProgress(
        me=me,
        epoch_start_offset=epoch_start_offset,
        voters=voters,
        since_ms=now_ms,
        check_quorum_timeout_ms=check_quorum_timeout_ms,
        check_quorum_ms=now_ms + check_quorum_timeout_ms,
    )


def _committed(progress: LeaderProgress) -> LeaderProgress:
    """Return the same with the high watermark that a majority has flushed by now (rules 1, 2)."""
    voters = progress.voters
    flushed = sorted((_end_of(progress, node.key) for node in voters.nodes), reverse=True)
    offset = flushed[voters.majority - 1] if flushed else NOTHING_FLUSHED
    known = progress.high_watermark
    least = progress.epoch_start_offset if known is None else known
    return attrs.evolve(progress, high_watermark=offset) if offset > least else progress


def _followed(progress: LeaderProgress) -> LeaderProgress:
    """Return the same with the time at which the leader resigns, if nobody fetches again (rule 3).

    A majority that includes the leader has fetched since the oldest of the newest fetches that it
    takes.
    """
    needed = _followers_needed(progress)
    others = [node.key for node in progress.voters.nodes if node.key.id != progress.me.id]
    fetches = sorted((_last_fetch_ms(progress, each) for each in others), reverse=True)
    if not 0 < needed <= len(fetches):
        return progress
    due_ms = fetches[needed - 1] + progress.check_quorum_timeout_ms
    return attrs.evolve(progress, check_quorum_ms=max(progress.check_quorum_ms, due_ms))


def _followers_needed(progress: LeaderProgress) -> int:
    """Return without how many followers there is no majority."""
    voters = progress.voters
    return voters.majority - (1 if voters.is_voter(progress.me) else 0)


def _end_of(progress: LeaderProgress, voter: ReplicaKey) -> Offset:
    end_offset = progress.of(voter).end_offset
    return NOTHING_FLUSHED if end_offset is None else end_offset


def _last_fetch_ms(progress: LeaderProgress, voter: ReplicaKey) -> int:
    last_ms = progress.of(voter).last_fetch_ms
    return progress.since_ms if last_ms is None else last_ms


def _kept(
    progress: LeaderProgress, replica: ReplicaKey, now_ms: int
) -> Mapping[ReplicaKey, ReplicaProgress]:
    """Return what is known of the replicas; when `replica` is new, without those that are gone."""
    if progress.name(replica) in progress.replicas:
        return progress.replicas
    kept = {*progress.voters.keys, *progress.observers(now_ms)}
    return {key: each for key, each in progress.replicas.items() if key in kept}


def _is_recent(progress: ReplicaProgress, now_ms: int) -> bool:
    last_ms = progress.last_fetch_ms
    return last_ms is not None and now_ms - last_ms < OBSERVER_SESSION_MS
