"""Which consumer groups had committed past an offset that was truncated later.

    group g      committed 100, whose last record was of leader epoch 1
    the log      [e0: 0-89][e2: 90-...]          epoch 1 ends at 90 here: 90 to 99 are other records
    g's loss     90, truncated for leader epoch 2

Rule 1: a commit with a leader epoch is judged by the surviving log, as a consumer judges its own
position (KIP-320): if the epoch ends there before the committed offset, what the group had read
beyond that end was truncated. The surviving log is that of the replica whose last leader epoch is the
highest, and of these the longest.

Rule 2: a commit without an epoch, or one below the start of the surviving log, is judged by the event
journals: a replica truncated offsets below the commit, after it, and had held them. Times are those of
each node's own clock.

Rule 3: every commit that is left in `__consumer_offsets` counts, and not only the last one: a group
that has gone back and committed again had committed past the truncation all the same.

This module knows no Spark and no files; `groups.py` reads what it judges.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from storage.types import NO_LEADER_EPOCH, Offset, TopicPartition

BY_EPOCHS: Final = "leader epochs"
BY_JOURNAL: Final = "journal"


@attrs.frozen(kw_only=True)
class GroupCommit:
    """An offset that a group had committed, with the leader epoch of its last record."""

    group: str
    topic_partition: TopicPartition
    offset: Offset
    epoch: int
    at_ms: int


@attrs.frozen(kw_only=True)
class Truncation:
    """Offsets [to_offset, from_offset) that a replica has cut off its log."""

    topic_partition: TopicPartition
    broker: int
    at_ms: int
    from_offset: Offset
    to_offset: Offset
    leader_epoch: int


@attrs.frozen
class EpochChain:
    """The leader epochs of a log: where each begins, in order, and where the log ends."""

    starts: tuple[tuple[int, Offset], ...]
    end: Offset

    @property
    def start(self) -> Offset:
        return self.starts[0][1] if self.starts else self.end

    def end_of(self, epoch: int) -> tuple[Offset, int | None]:
        """Return where an epoch ends, and the next epoch; None for it at the end of the log."""
        for following, start in self.starts:
            if following > epoch:
                return start, following
        return self.end, None


@attrs.frozen(kw_only=True)
class GroupLoss:
    """A group's commit beyond an offset that was truncated later."""

    group: str
    topic: str
    partition: int
    committed_offset: Offset
    committed_epoch: int | None
    committed_ms: int
    truncated_at: Offset
    leader_epoch: int | None
    """The leader epoch for which the log was truncated; None if it just ends there."""
    truncated_ms: int | None = None
    broker: int | None = None
    evidence: str

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        epoch = "" if self.leader_epoch is None else f" for leader epoch {self.leader_epoch}"
        return (
            f"group {self.group} had committed {self.committed_offset} in {self.topic_partition},"
            f" truncated at {self.truncated_at}{epoch}"
        )


def find_losses(
    commits: Sequence[GroupCommit],
    chains: Mapping[TopicPartition, EpochChain],
    truncations: Iterable[Truncation] = (),
) -> list[GroupLoss]:
    """Return every loss, in order of partition and group."""
    cuts: dict[TopicPartition, list[Truncation]] = {}
    for cut in sorted(truncations, key=lambda each: each.at_ms):
        cuts.setdefault(cut.topic_partition, []).append(cut)
    found: list[GroupLoss] = []
    for commit in commits:
        chain = chains.get(commit.topic_partition)
        matching = [cut for cut in cuts.get(commit.topic_partition, ()) if _removes(cut, commit)]
        if chain is not None and commit.epoch != NO_LEADER_EPOCH and commit.offset > chain.start:
            found += _by_epochs(commit, chain, matching)
        else:
            found += [_by_journal(commit, cut) for cut in matching[:1]]
    return sorted(found, key=lambda each: (each.topic_partition, each.group, each.committed_offset))


def _removes(cut: Truncation, commit: GroupCommit) -> bool:
    return cut.to_offset < commit.offset <= cut.from_offset and commit.at_ms <= cut.at_ms


def _by_epochs(
    commit: GroupCommit, chain: EpochChain, matching: Sequence[Truncation]
) -> Iterator[GroupLoss]:
    end, following = chain.end_of(commit.epoch)
    if commit.offset <= end:
        return
    cut = matching[0] if matching else None
    yield _loss(
        commit,
        truncated_at=end,
        leader_epoch=following,
        truncated_ms=cut.at_ms if cut else None,
        broker=cut.broker if cut else None,
        evidence=BY_EPOCHS,
    )


def _by_journal(commit: GroupCommit, cut: Truncation) -> GroupLoss:
    return _loss(
        commit,
        truncated_at=cut.to_offset,
        leader_epoch=None if cut.leader_epoch == NO_LEADER_EPOCH else cut.leader_epoch,
        truncated_ms=cut.at_ms,
        broker=cut.broker,
        evidence=BY_JOURNAL,
    )


def _loss(commit: GroupCommit, **more: Any) -> GroupLoss:
    return GroupLoss(
        group=commit.group,
        topic=commit.topic_partition.topic,
        partition=commit.topic_partition.partition,
        committed_offset=commit.offset,
        committed_epoch=None if commit.epoch == NO_LEADER_EPOCH else commit.epoch,
        committed_ms=commit.at_ms,
        **more,
    )
