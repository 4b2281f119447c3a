"""The offsets of one group: committed, being written, and pending in transactions.

    commit ── begin ──> being written ── written at L ──> committed, unless a newer one is
                              └── failed ──> as before
    transaction ── begin_pending ──> being written ── written at L ──> pending
                                           └── failed ──> as before       │
                  committed, or as before <── end_transaction ────────────┘

Rule 1: commits count in the order of their records in the log. Of two commits that are answered in
the wrong order, the one that is later in the log stays, as for the next coordinator.

Rule 2: a request for stable offsets (KIP-447) gets none for a partition with a pending offset, or one
that is being written: the transaction may be aborted.

Rule 3: a commit that fails takes nothing away that the same transaction wrote before. A producer
that got no answer sends it again, and the transaction may have ended when that arrives.

(Kafka: OffsetMetadataManager, GroupMetadata.onOffsetCommitAppend.)
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import attrs

from replication.coordinator.rules import write_error
from replication.errors import ErrorCode
from replication.groups.rules.records import OffsetCommitValue
from storage.attributes import define, frozen
from storage.batch.record_batch import NO_TIMESTAMP
from storage.types import NO_LEADER_EPOCH, Offset, TopicPartition


@frozen(kw_only=True)
class CommittedOffset:
    """The offset from which a group continues in one partition."""

    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP

    @classmethod
    def of(cls, value: OffsetCommitValue) -> "CommittedOffset":
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
            expire_timestamp=value.expire_timestamp,
        )

    def value(self) -> OffsetCommitValue:
        return OffsetCommitValue(**attrs.asdict(self, recurse=False))


Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]


class Placed(NamedTuple):
    """A committed offset, and the base offset of the batch with its record."""

    log_offset: Offset
    committed: CommittedOffset


@define(eq=False)
class GroupOffsets:
    """The offsets of one group."""

    _committed: dict[TopicPartition, Placed] = attrs.field(factory=dict, init=False)
    _being_written: Counter[TopicPartition] = attrs.field(factory=Counter, init=False)
    _pending: dict[int, dict[TopicPartition, Placed]] = attrs.field(factory=dict, init=False)
    """The offsets that the open transaction of each producer id has in the log."""
    _pending_soon: dict[int, list[Offsets]] = attrs.field(factory=dict, init=False)
    """The offsets that are being written for each producer id. The same may be there twice: a producer
    that got no answer sends them again.
    """

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def is_empty(self) -> bool:
        """Whether no offset is committed, being written or pending."""
        return not (self._committed or self._being_written or self._pending or self._pending_soon)

    @property
    def pending_commits(self) -> int:
        """The number of commits in transactions that `is_unstable` looks through."""
        return len(self._pending) + sum(map(len, self._pending_soon.values()))

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        at = self._committed.get(partition)
        return None if at is None else at.committed

    def partitions(self) -> list[TopicPartition]:
        return sorted(self._committed)

    def is_unstable(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._all_pending())

    def _all_pending(self) -> Iterator[Collection[TopicPartition]]:
        yield from self._pending.values()
        for several in self._pending_soon.values():
            yield from several

    # Commits.

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:  # of a mapping, a Counter would take the values for counts
            self._being_written[partition] += 1

    def written(self, offsets: Offsets, *, log_offset: Offset) -> None:
        for partition, committed in offsets.items():
            self.put(partition, committed, log_offset=log_offset)
        self.failed(offsets)

    def failed(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._being_written[partition] -= 1
            if self._being_written[partition] <= 0:
                del self._being_written[partition]

    def put(
        self, partition: TopicPartition, committed: CommittedOffset, *, log_offset: Offset
    ) -> None:
        """Commit an offset, unless the present one is later in the log."""
        known = self._committed.get(partition)
        if known is None or known.log_offset <= log_offset:
            self._committed[partition] = Placed(log_offset, committed)

    # Transactions.

    def begin_pending(self, producer_id: int, offsets: Offsets) -> None:
        self._pending_soon.setdefault(producer_id, []).append(offsets)

    def pending_written(self, producer_id: int, offsets: Offsets, *, log_offset: Offset) -> None:
        """Note the place of pending offsets in the log, unless their transaction has ended."""
        if self._take(producer_id, offsets):
            for partition, committed in offsets.items():
                self.add_pending(producer_id, partition, committed, log_offset=log_offset)

    def pending_failed(self, producer_id: int, offsets: Offsets) -> None:
        """Forget offsets that could not be written; what the transaction wrote before stays."""
        self._take(producer_id, offsets)

    def _take(self, producer_id: int, offsets: Offsets) -> bool:
        """Remove offsets that are no longer being written; return whether they were there."""
        several = self._pending_soon.get(producer_id, [])
        others = [each for each in several if each is not offsets]
        if others:
            self._pending_soon[producer_id] = others
        else:
            self._pending_soon.pop(producer_id, None)
        return len(others) < len(several)

    def add_pending(
        self,
        producer_id: int,
        partition: TopicPartition,
        committed: CommittedOffset,
        *,
        log_offset: Offset,
    ) -> None:
        """Add an offset that an open transaction has in the log, later than its others."""
        self._pending.setdefault(producer_id, {})[partition] = Placed(log_offset, committed)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a producer's transaction, which has ended."""
        self._pending_soon.pop(producer_id, None)
        for partition, at in self._pending.pop(producer_id, {}).items():
            if commit:
                self.put(partition, at.committed, log_offset=at.log_offset)

    # Removal.

    def among(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that have a committed or pending offset here, sorted."""
        known = self._committed.keys() | {
            each for offsets in self._all_pending() for each in offsets
        }
        return sorted(known.intersection(partitions))

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Placed]:
        """Remove the offsets of these partitions, and return those that were committed."""
        removed = {}
        for partition in partitions:
            for producer_id, offsets in list(self._pending.items()):
                offsets.pop(partition, None)
                if not offsets:
                    del self._pending[producer_id]
            if (placed := self._committed.pop(partition, None)) is not None:
                removed[partition] = placed
        return removed

    def expired(
        self,
        *,
        wall_ms: int,
        retention_ms: int,
        idle_since_ms: int | None,
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired (KIP-211).

        `retention_ms` counts from `idle_since_ms`, when the group became idle, or from the commit
        where that is None.
        """
        return [
            partition
            for partition, (_, committed) in sorted(self._committed.items())
            if partition.topic not in kept_topics
            and partition not in self._being_written
            and not self.is_unstable(partition)
            and _is_expired(committed, wall_ms, retention_ms, idle_since_ms)
        ]


def _is_expired(
    committed: CommittedOffset, wall_ms: int, retention_ms: int, idle_since_ms: int | None
) -> bool:
    if committed.expire_timestamp != NO_TIMESTAMP:
        return wall_ms >= committed.expire_timestamp
    since = committed.commit_timestamp if idle_since_ms is None else idle_since_ms
    return wall_ms - since >= retention_ms


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a commit whose records could not be written; a client tries again after
    REQUEST_TIMED_OUT.
    """
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error if error is ErrorCode.REQUEST_TIMED_OUT else write_error(error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a commit whose transaction could not be verified.

    The client must not look for another coordinator of the group because the coordinator of the
    transaction did not answer.
    """
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return commit_error(error)
