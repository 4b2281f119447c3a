"""Failovers as a page: each outage with its phases, partition by partition, and its causes.

Planned shutdowns come after the outages, each folded. `pipeline.journals.outages` selects what is
shown of many.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import plotly.graph_objects as go

from pipeline.journals.changes import Change
from pipeline.journals.failover import FailoverReport, cause_of
from pipeline.journals.outages import (
    OutageReport,
    PartitionFailover,
    Section,
    partitions_of,
    sections,
    verdict_on,
)
from pipeline.journals.quorum import QuorumStanding
from pipeline.journals.timeline import Failover
from pipeline.reports.page import (
    MOST_BARS,
    details,
    folded,
    heading,
    page,
    paragraph,
    plot,
    seconds,
    table,
    tiles,
    utc,
)
from replication.events import LeaderElected, LogTruncated, PartitionOffline
from replication.observe.pages import counted, folded_note, is_internal

BAR_HEIGHT = 20
MOST_LINES = 100

# name -> (from, to, colour): a phase ends where the next one begins.
PHASES = {
    "not heard of": ("silent", "fenced_ms", "#8a6fb0"),
    "electing": ("began_ms", "elected_ms", "#a5304c"),
    "to the first write": ("elected_ms", "first_write_ms", "#d0603a"),
    "to the whole ISR": ("first_write_ms", "isr_whole_ms", "#d79a2b"),
}
CHANGES = {
    LeaderElected.name: "election",
    PartitionOffline.name: "no leader",
    LogTruncated.name: "truncation",
}
MOMENTS = ("elected_ms", "leading_ms", "first_write_ms", "isr_whole_ms")


def failover_page(found: FailoverReport, *, internal: bool = False) -> str:
    reports, span = found.outages, ""
    if reports:
        first, last = reports[0].outage.began_ms, reports[-1].outage.began_ms
        span = f"{utc(first):%Y-%m-%d %H:%M:%S} to {utc(last):%Y-%m-%d %H:%M:%S} UTC"
    parts = chain(
        _parts(reports, internal=internal),
        _quorum(found.quorum),
        _changes(found, internal=internal),
    )
    return page("Failovers", verdict_on(reports), span, parts)


def _parts(all_reports: Sequence[OutageReport], *, internal: bool) -> Iterator[str]:
    if not all_reports:
        return
    lost = sum(report.lost_committed for report in all_reports)
    truncated = sum(report.truncated for report in all_reports)
    reports = [each if internal else each.without_internal() for each in all_reports]
    outages = [report for report in reports if not report.outage.planned]
    writes = [at for each in outages for at in each.after("first_write_ms", traffic_only=True)]
    led = sum(len(each.partitions) for each in outages)
    yield tiles(
        [
            (f"{len(outages):,}", "outages", ""),
            (f"{len(reports) - len(outages):,}", "planned shutdowns", ""),
            (f"{lost:,}", "committed records lost", "bad" if lost else "good"),
            (f"{truncated:,}", "uncommitted records cut off", ""),
            (seconds(max(writes)) if writes else "none", "to the first write, at most", ""),
            (
                f"{sum(len(each.with_traffic) for each in outages):,} of {led:,}",
                "failed-over partitions had traffic",
                "",
            ),
        ]
    )
    plots = 0
    for section in sections(reports):
        yield heading(section.title)
        yield _outages(section)
        if section.folded:
            yield paragraph(section.folded)
        for number, report in enumerate(section.shown, start=1):
            planned = "planned shutdown" if report.outage.planned else "outage"
            yield from _outage(report, f"{planned} {number}", plots)
            plots += 1


def _quorum(quorum: QuorumStanding | None) -> Iterator[str]:
    if quorum is None:
        return
    yield heading("The quorum of controllers")
    newest = quorum.newest
    yield paragraph(
        f"Leader {newest.leader_id}, leader epoch {newest.leader_epoch}, voters"
        f" {' '.join(map(str, newest.voters)) or 'not known'}; by the copies of the metadata log."
    )
    rows = [
        (each.node_id, quorum.role_of(each), each.log_end_offset, quorum.lag_of(each))
        for each in quorum.copies
    ]
    yield table("Controllers and observers", ("node", "role", "log end offset", "lag"), rows)


def _changes(found: FailoverReport, *, internal: bool) -> Iterator[str]:
    """Yield elections and truncations with their causes, by partition, and how many had which."""
    shown = {
        partition: some
        for partition, some in found.changes.items()
        if internal or not is_internal(partition.topic)
    }
    if not found.changes:
        return
    yield heading("Elections and truncations")
    times = Counter((CHANGES[each.name], each.cause) for some in shown.values() for each in some)
    rows = [(what, cause, count) for (what, cause), count in times.most_common()]
    yield table("Causes", ("what", "cause", "times"), rows)
    if found.left_out:
        yield paragraph(f"{found.left_out:,} later ones are left out.", "bad")
    if len(shown) < len(found.changes):
        yield paragraph(folded_note(len(found.changes) - len(shown)))
    for partition, some in list(shown.items())[:MOST_BARS]:
        lines = [_line(each) for each in some[:MOST_LINES]]
        if len(some) > MOST_LINES:
            lines.append(f"Not shown: {len(some) - MOST_LINES:,} later ones.")
        yield details(f"{partition}: {len(some):,} elections and truncations", lines)
    if len(shown) > MOST_BARS:
        yield paragraph(f"Not shown: {counted(len(shown) - MOST_BARS, 'partition')} more by name.")


def _line(change: Change) -> str:
    return f"{utc(change.at_ms):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  b{change.node}: {change.text}"


def _outage(report: OutageReport, name: str, number: int) -> Iterator[str]:
    outage = report.outage
    began = f"{utc(outage.began_ms):%H:%M:%S.%f}"[:-3]
    parts = list(_effects(report, name, number))
    title = f"{name.capitalize()}: b{outage.broker} at {began}, {cause_of(outage)}"
    if outage.planned:
        yield folded(title, parts)
    else:
        yield heading(title, level=3)
        yield from parts


def _effects(report: OutageReport, name: str, number: int) -> Iterator[str]:
    if not report.partitions:
        yield paragraph("It led nothing.")
        return
    shown = partitions_of(report)
    if shown.folded:
        yield paragraph(shown.folded)
    if not shown.kept:
        return
    if not report.outage.planned:
        figure = _phases(report, shown.kept)
        if any(len(trace.y) for trace in figure.data):
            height = 130 + BAR_HEIGHT * max(len(shown.kept), 3)
            yield plot(figure, name=f"Phases of {name}", number=number, height=height)
    yield _table(report, shown.kept, f"Partitions of {name}")
    for each in shown.kept:
        yield details(f"{each.topic_partition}, {name}: what led to what", each.failover.chain)


def _outages(section: Section) -> str:
    rows = [
        (
            f"{utc(report.outage.began_ms):%H:%M:%S.%f}"[:-3],
            f"b{report.outage.broker}",
            report.outage.cause,
            len(report.partitions),
            len(report.with_traffic),
            _last(report, "elected_ms"),
            _last(report, "first_write_ms", traffic_only=True),
            _last(report, "isr_whole_ms"),
            report.lost_committed,
            report.truncated,
        )
        for report in section.shown
    ]
    columns = ("began", "broker", "cause", "led", "with traffic", "all elected", "all written to")
    return table(section.title, (*columns, "all ISR whole", "lost", "cut off"), rows)


def _last(report: OutageReport, moment: str, *, traffic_only: bool = False) -> str | None:
    """Return how long the last partition took, and how many came so far where not all did."""
    times = report.after(moment, traffic_only=traffic_only)
    there = len(report.with_traffic if traffic_only else report.partitions)
    if not there:
        return None
    if not times:
        return "none"
    return seconds(times[-1]) + ("" if len(times) == there else f", {len(times)} of {there}")


def _phases(report: OutageReport, shown: Sequence[PartitionFailover]) -> go.Figure:
    figure = go.Figure()
    began = report.outage.began_ms
    for name, (start, end, colour) in PHASES.items():
        bars = []
        for each in shown:
            first, last = _moment(each.failover, start), _moment(each.failover, end)
            if first is not None and last is not None and last > first:
                bars.append(
                    (str(each.topic_partition), (first - began) / 1000, (last - first) / 1000)
                )
        figure.add_bar(
            orientation="h",
            name=name,
            y=[bar[0] for bar in bars],
            base=[bar[1] for bar in bars],
            x=[bar[2] for bar in bars],
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y} " + name + ": %{x:.3f} s<extra></extra>",
        )
    names = [str(each.topic_partition) for each in reversed(shown)]
    figure.update_layout(barmode="overlay", bargap=0.3)
    figure.update_xaxes(title="seconds since it began", zeroline=True)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names)
    return figure


def _moment(failover: Failover, name: str) -> int | None:
    if name == "silent":
        if failover.silent_ms < 0 or failover.fenced_ms is None:
            return None
        return failover.fenced_ms - failover.silent_ms
    found: int | None = getattr(failover, name)
    return found


def _table(report: OutageReport, shown: Sequence[PartitionFailover], name: str) -> str:
    columns = ("partition", "new leader", "epoch", "election", "elected", "leads", "first write")
    began = report.outage.began_ms
    rows = []
    for each in shown:
        failover = each.failover
        moments = [getattr(failover, name) for name in MOMENTS]
        after = [seconds(None if at is None else at - began) for at in moments]
        leader = "none" if failover.leader is None else f"b{failover.leader}"
        rows.append(
            [
                str(each.topic_partition),
                leader,
                failover.leader_epoch,
                failover.election,
                *after,
                failover.lost_committed,
                failover.truncated,
            ]
        )
    return table(name, (*columns, "ISR whole", "lost", "cut off"), rows)
