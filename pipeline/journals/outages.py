"""Outages with their effects, the verdict on them, and what a report shows of many.

    10,000 failovers ──> 20 outages and 10 planned shutdowns, the worst of each kind
                         40 partitions of each; what is left out is counted

Rule 1: a report has a bounded length, however many outages and partitions there were. JSON and
Parquet have them all.

Rule 2: what is worst is kept: losses first, then partitions that nobody leads, then those that had
traffic and no write again, then the longest wait for a first write. What is kept is shown in order
of time, or of name.

Rule 3: of an outage, the partitions that had traffic are shown, and those where something is wrong.

Rule 4: a broker that was shut down on request, and what nobody leads since, is no trouble.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from pipeline.journals.gathered import shown_order
from pipeline.journals.timeline import Failover, Outage
from replication.observe.pages import Level, PageVerdict, counted, folded_note, is_internal
from storage.types import TopicPartition

MOST_OUTAGES: Final = 20
MOST_PLANNED: Final = 10
MOST_PARTITIONS: Final = 40
MOST_IN_TEXT: Final = 10


@attrs.frozen
class PartitionFailover:
    """The effect of an outage on one partition."""

    topic_partition: TopicPartition
    failover: Failover

    @property
    def is_leaderless(self) -> bool:
        """Whether no leader was elected until the journals end."""
        return self.failover.elected_ms is None and not self.failover.was_deleted

    @property
    def has_no_write(self) -> bool:
        """Whether it had traffic, and no write was committed again until the journals end."""
        failover = self.failover
        return failover.had_traffic and failover.first_write_ms is None and not failover.was_deleted

    @property
    def badness(self) -> tuple[int, bool, bool, int]:
        """The sort key of rule 2; the worst is the largest."""
        failover = self.failover
        waited = (failover.first_write_ms or failover.began_ms) - failover.began_ms
        return failover.lost_committed, self.is_leaderless, self.has_no_write, waited


@attrs.frozen
class OutageReport:
    """An outage, and its effect on each partition that its broker led."""

    outage: Outage
    partitions: tuple[PartitionFailover, ...]
    hidden: int = 0
    """The number of partitions of internal topics that were left out."""

    def without_internal(self) -> "OutageReport":
        """Return this report without the partitions of internal topics."""
        kept = tuple(
            each for each in self.partitions if not is_internal(each.topic_partition.topic)
        )
        return OutageReport(self.outage, kept, len(self.partitions) - len(kept))

    def after(self, moment: str, *, traffic_only: bool = False) -> tuple[int, ...]:
        """Return the milliseconds from the beginning to `moment` by partition, the shortest first.

        Partitions that did not reach that moment are left out, such as those without a first write.
        """
        some = self.with_traffic if traffic_only else self.partitions
        times = [getattr(each.failover, moment) for each in some]
        return tuple(sorted(at - self.outage.began_ms for at in times if at is not None))

    @property
    def with_traffic(self) -> tuple[PartitionFailover, ...]:
        """The partitions that had traffic."""
        return tuple(each for each in self.partitions if each.failover.had_traffic)

    @property
    def lost_committed(self) -> int:
        """The number of truncated records below a high watermark, over all partitions."""
        return sum(each.failover.lost_committed for each in self.partitions)

    @property
    def truncated(self) -> int:
        """The number of truncated records, committed or not, over all partitions."""
        return sum(each.failover.truncated for each in self.partitions)

    @property
    def badness(self) -> tuple[int, int, int, int]:
        """The sort key of rule 2; the worst is the largest."""
        leaderless = sum(each.is_leaderless for each in self.partitions)
        silent = sum(each.has_no_write for each in self.partitions)
        writes = self.after("first_write_ms", traffic_only=True)
        return self.lost_committed, leaderless, silent, max(writes, default=0)


@attrs.frozen
class Section:
    """The outages of one kind: those that are shown, and a sentence about the others."""

    title: str
    reports: tuple[OutageReport, ...]
    shown: tuple[OutageReport, ...]
    folded: str


def sections(reports: Sequence[OutageReport]) -> list[Section]:
    """Return the outages and the planned shutdowns, each if there are any."""
    kinds = (
        ("Outages", [each for each in reports if not each.outage.planned], MOST_OUTAGES),
        ("Planned shutdowns", [each for each in reports if each.outage.planned], MOST_PLANNED),
    )
    return [_section(title, some, most) for title, some, most in kinds if some]


def _section(title: str, reports: Sequence[OutageReport], most: int) -> Section:
    worst = sorted(reports, key=lambda each: each.badness, reverse=True)
    shown, others = worst[:most], worst[most:]
    folded = ""
    if others:
        lost = sum(each.lost_committed for each in others)
        writes = [at for each in others for at in each.after("first_write_ms", traffic_only=True)]
        longest = f"{max(writes):,} ms" if writes else "none"
        folded = (
            f"Not shown: {len(others):,} others, which had less effect;"
            f" {counted(lost, 'committed record')} lost in them, to the first write at most {longest}."
        )
    in_time = sorted(shown, key=lambda each: each.outage.began_ms)
    return Section(title, tuple(reports), tuple(in_time), folded)


@attrs.frozen
class ShownPartitions:
    """The partitions of an outage that are shown, and a sentence about the others."""

    kept: tuple[PartitionFailover, ...]
    folded: str


def partitions_of(report: OutageReport, *, most: int = MOST_PARTITIONS) -> ShownPartitions:
    """Return what is shown of an outage (rules 2 and 3)."""
    wanted = [
        each
        for each in report.partitions
        if each.failover.had_traffic or each.failover.lost_committed or each.is_leaderless
    ]
    worst = sorted(wanted, key=lambda each: each.badness, reverse=True)[:most]
    notes = (
        (len(wanted) - len(worst), "with traffic, which had less effect"),
        (len(report.partitions) - len(wanted), "without traffic"),
    )
    left_out = ", ".join(
        f"{counted(number, 'partition')} {what}" for number, what in notes if number
    )
    sentences = [f"Not shown: {left_out}."] if left_out else []
    if report.hidden:
        sentences.append(folded_note(report.hidden))
    return ShownPartitions(
        tuple(sorted(worst, key=lambda each: shown_order(each.topic_partition))),
        " ".join(sentences),
    )


def verdict_on(reports: Sequence[OutageReport]) -> PageVerdict:
    """Return what happened, whether anything is lost, and what is wrong where the journals end."""
    if not reports:
        return PageVerdict(Level.GOOD, "the journals have no broker that was fenced or shut down.")
    outages = [each for each in reports if not each.outage.planned]
    planned = counted(len(reports) - len(outages), "planned shutdown")
    happened = f"{counted(len(outages), 'outage')}, {planned}"
    lost = sum(each.lost_committed for each in reports)
    cut = sum(each.truncated for each in reports)
    inside = lost - sum(each.without_internal().lost_committed for each in reports)
    losses = f"no committed record is lost ({cut:,} uncommitted cut off)"
    if lost:
        losses = f"{counted(lost, 'committed record')} lost" + (
            f", {inside:,} of them in internal topics" if inside else ""
        )
    wrong, level = _wrong_now(reports, outages)
    if lost:
        level = Level.BAD
    return PageVerdict(level, f"{happened}; {losses}. Where the journals end, {wrong}.")


def _wrong_now(
    reports: Sequence[OutageReport], outages: Sequence[OutageReport]
) -> tuple[str, Level]:
    leaderless = {
        part.topic_partition for each in outages for part in each.partitions if part.is_leaderless
    }
    last = {
        each.outage.broker: each.outage
        for each in sorted(reports, key=lambda each: each.outage.began_ms)
    }
    away = [each for each in sorted(last) if last[each].over_ms is None]
    fenced = ", ".join(f"b{each}" for each in away if not last[each].planned)
    stopped = ", ".join(f"b{each}" for each in away if last[each].planned)
    wrong = []
    if leaderless:
        wrong.append(f"{counted(len(leaderless), 'partition')} without a leader")
    if fenced:
        wrong.append(f"{fenced} still fenced")
    shut = f" ({stopped} shut down)" if stopped else ""
    if not wrong:
        return f"nothing is wrong{shut}", Level.GOOD
    return f"{' and '.join(wrong)}{shut}", Level.BAD if leaderless else Level.WARNING
