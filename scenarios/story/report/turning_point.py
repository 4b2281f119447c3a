"""The result of a run in one line, and its turning point.

The turning point is the first of these that there is:

    1  the violation that ended the run                    a broken rule
    2  the last truncation, or the last leader that        records were removed, or were missing
       lacked committed records
    3  the last election that replaced a leader            somebody took over
    4  the last fault                                      something was broken
    5  the end

Rule: of two moments of one kind, a user's partition comes before one of an internal topic. An
election of a preferred leader, or for a new leader epoch alone, is no takeover.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from replication.events import BecameLeader, Event, LeaderElected, LogTruncated
from replication.observe.losses import LossCount
from replication.observe.pages import Level, PageVerdict, counted, is_internal
from replication.observe.sentences import FAULT, kind, sentence
from scenarios.story.report.recording import Recording, ReplicaStatus
from scenarios.world.trace import SIMULATED_FAULTS, TraceEntry
from storage.types import TopicPartition

NO_TAKEOVER = ("preferred", "leader epoch raised", "replicas changed")


@attrs.frozen(kw_only=True)
class TurningPoint:
    """The moment that a run is about, in virtual seconds, and why it is that one."""

    at: float
    why: str
    partition: str | None = None


def turning_point(entries: Sequence[TraceEntry], *, wrong: str = "") -> TurningPoint:
    """Return the moment that a run is about; `wrong` is the rule that it broke, or empty."""
    end = entries[-1].at if entries else 0.0
    if wrong:
        return TurningPoint(at=end, why=f"a rule is broken: {wrong}")
    lossy = set(_lossy(entries))

    def removes(entry: TraceEntry) -> bool:
        event = entry.event
        cut = isinstance(event, LogTruncated) and event.from_offset > event.to_offset
        return cut or id(entry) in lossy

    for is_one in (removes, _is_takeover, _is_fault):
        if (found := _last(entries, is_one)) is not None:
            partition = _partition(found.event)
            name = None if partition is None else str(partition)
            return TurningPoint(at=found.at, why=sentence(found.event), partition=name)
    return TurningPoint(at=end, why="the end")


def _lossy(entries: Iterable[TraceEntry]) -> Iterator[int]:
    losses, before = LossCount(), 0
    for entry in entries:
        losses.sink(entry.event)
        if isinstance(entry.event, BecameLeader) and losses.lost > before:
            yield id(entry)
        before = losses.lost


def _is_takeover(entry: TraceEntry) -> bool:
    event = entry.event
    return (
        isinstance(event, LeaderElected)
        and event.previous_leader not in (-1, event.leader)
        and event.reason not in NO_TAKEOVER
    )


def _is_fault(entry: TraceEntry) -> bool:
    return type(entry.event) in SIMULATED_FAULTS or kind(entry.event) == FAULT


def _last(entries: Sequence[TraceEntry], is_one: Callable[[TraceEntry], bool]) -> TraceEntry | None:
    found = [entry for entry in entries if is_one(entry)]
    users = [entry for entry in found if not _is_internal(entry.event)]
    return next(reversed(users or found), None)


def _is_internal(event: Event) -> bool:
    partition = _partition(event)
    return partition is not None and is_internal(partition.topic)


def _partition(event: Event) -> TopicPartition | None:
    found = getattr(event, "partition", None)
    return found if isinstance(found, TopicPartition) else None


def verdict(recording: Recording, *, wrong: str = "") -> PageVerdict:
    """Return what happened in a run, whether anything was lost, and what is wrong at its end."""
    losses, cut = LossCount(), 0
    for entry in recording.entries:
        losses.sink(entry.event)
        if isinstance(entry.event, LogTruncated):
            cut += entry.event.from_offset - entry.event.to_offset
    lost = "no committed record was lost"
    if losses.lost:
        lost = f"{counted(losses.lost, 'committed record')} lost"
    if cut:
        lost += f", {counted(cut, 'record')} truncated from logs"
    missing = list(_missing(recording.standings))
    level = Level.WARNING if missing else Level.GOOD
    if wrong or losses.lost:
        level = Level.BAD
    broken = f"a rule is broken: {wrong}. " if wrong else ""
    now = "; ".join(missing) or "every partition has its leader and its whole ISR"
    changes = counted(losses.leader_changes, "leader change")
    return PageVerdict(level, f"{broken}{changes}; {lost}. At the end {now}.")


def _missing(standings: Iterable[ReplicaStatus]) -> Iterator[str]:
    """Yield what each user's partition lacks at the end: a leader, or members of its ISR."""
    last = {(each.partition, each.node): each for each in standings}
    for partition in sorted({each for each, _ in last if not is_internal(each.topic)}):
        mine = [each for (where, _), each in last.items() if where == partition]
        leading = [each for each in mine if each.role == "leads"]
        if not leading:
            yield f"{partition} has no leader"
            continue
        _, *isr = max(leading, key=lambda each: each.leader_epoch).members.split()
        if len(isr) < len(mine):
            yield f"{len(isr)} of {len(mine)} replicas of {partition} are in sync"
