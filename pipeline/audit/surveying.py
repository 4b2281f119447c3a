"""The survey: which partitions are alike by the folds of their replicas, and which need judging.

    replicas   t-0 b1 b2 b3     t-1 b1 b2     t-2 b1
    folds      t-0  5  5  5     t-1  5  4     not read: there is nothing to compare it with
               t-0 the same     t-1 to be judged   t-2 alone

Rule: this module knows no Spark and no files: replicas and folds go in, audits come out.
"""

from collections.abc import Iterable, Sequence

import attrs

from pipeline.audit.folding import Fold, Who
from pipeline.audit.replicas import ReplicaDirectory
from pipeline.audit.results import PartitionAudit
from storage.types import Offset, TopicPartition


@attrs.frozen
class SurveyedPartition:
    """A partition and its replicas, in the order of their names."""

    topic_partition: TopicPartition
    replicas: tuple[ReplicaDirectory, ...]

    @property
    def start_offset(self) -> Offset:
        """The highest log start offset; some replica has deleted the offsets below it."""
        return max(replica.start_offset for replica in self.replicas)

    def is_for_judging(self, expected_copies: int | None) -> bool:
        """Return whether the list of replicas alone shows that they are not alike."""
        topic_ids = {replica.topic_id for replica in self.replicas} - {None}
        few = expected_copies is not None and len(self.replicas) < expected_copies
        return few or len(topic_ids) > 1

    @property
    def is_alone(self) -> bool:
        return len(self.replicas) == 1

    def surveyed(self, folds: Sequence[Fold]) -> PartitionAudit | None:
        """Return the audit of replicas whose batches add up to `folds`, or None if it needs judging."""
        audit = PartitionAudit(
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            replicas=tuple(replica.replica for replica in self.replicas),
            result="alone" if self.is_alone else "same",
        )
        if self.is_alone:
            return audit
        found = folds[0]
        if found.is_damaged or any(each != found for each in folds):
            return None
        if not found.batches and self.start_offset:
            return None  # copies that hold nothing from there on may still end before it
        return attrs.evolve(
            audit,
            start_offset=self.start_offset,
            end_offset=self.start_offset if found.end_offset is None else found.end_offset,
            batches=found.batches,
            records=found.records,
            size=found.size,
            last_epoch=found.last_epoch,
        )


@attrs.frozen
class Survey:
    """All partitions of an audit, and how many copies each should have."""

    partitions: Sequence[SurveyedPartition]
    expected_copies: int | None

    @classmethod
    def of(cls, replicas: Iterable[ReplicaDirectory], expected_copies: int | None) -> "Survey":
        found: dict[TopicPartition, list[ReplicaDirectory]] = {}
        for replica in sorted(replicas, key=lambda each: each.replica):
            found.setdefault(replica.topic_partition, []).append(replica)
        partitions = [SurveyedPartition(where, tuple(found[where])) for where in sorted(found)]
        return cls(partitions, expected_copies)

    def starts(self) -> dict[TopicPartition, Offset]:
        """Return the partitions to be folded, each with the offset from which on."""
        return {
            each.topic_partition: each.start_offset
            for each in self.partitions
            if not each.is_alone and not each.is_for_judging(self.expected_copies)
        }

    def ends(
        self, folds: Iterable[tuple[Who, Fold]]
    ) -> tuple[list[PartitionAudit], list[SurveyedPartition]]:
        """Return the audits of partitions that are alike or alone, and the partitions to be judged."""
        held: dict[Who, Fold] = {}
        for who, fold in folds:
            held[who] = held[who] + fold if who in held else fold
        audits, suspicious = [], []
        for each in self.partitions:
            sums = [
                held.get((replica.replica, each.topic_partition), Fold())
                for replica in each.replicas
            ]
            judged = each.is_for_judging(self.expected_copies)
            audit = None if judged else each.surveyed(sums)
            if audit is None:
                suspicious.append(each)
            else:
                audits.append(audit)
        return audits, suspicious
