"""Failovers as a page: each outage with its phases, partition by partition, and its causes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import plotly.graph_objects as go

from pipeline.journals.changes import Change
from pipeline.journals.failover import (
    FailoverReport,
    OutageReport,
    PartitionFailover,
    cause_of,
)
from pipeline.journals.timeline import Failover
from pipeline.reports.page import (
    MOST_BARS,
    details,
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

BAR_HEIGHT = 20

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


def failover_page(found: FailoverReport) -> str:
    reports = found.outages
    if not reports:
        none = "The journals have no broker that was fenced or shut down."
        return page("Failovers", none, _changes(found))
    first, last = reports[0].outage.began_ms, reports[-1].outage.began_ms
    span = f"{_counted(reports)}, {utc(first):%Y-%m-%d %H:%M:%S} to {utc(last):%H:%M:%S} UTC"
    return page("Failovers", span, chain(_parts(reports), _changes(found)))


def _counted(reports: Sequence[OutageReport]) -> str:
    planned = sum(report.outage.planned for report in reports)
    outages = len(reports) - planned
    return (
        f"{outages:,} {'outage' if outages == 1 else 'outages'},"
        f" {planned:,} planned {'shutdown' if planned == 1 else 'shutdowns'}"
    )


def _parts(reports: Sequence[OutageReport]) -> Iterator[str]:
    lost = sum(report.lost_committed for report in reports)
    truncated = sum(report.truncated for report in reports)
    outages = [report for report in reports if not report.outage.planned]
    planned = [report for report in reports if report.outage.planned]
    writes = [each for report in outages for each in report.after("first_write_ms")]
    yield tiles(
        [
            (f"{len(outages):,}", "outages", ""),
            (f"{len(planned):,}", "planned shutdowns", ""),
            (f"{lost:,}", "committed records lost", "bad" if lost else "good"),
            (f"{truncated:,}", "uncommitted records cut off", ""),
            (seconds(max(writes)) if writes else "none", "to the first write, at most", ""),
        ]
    )
    for title, some in (("All outages", outages), ("Planned shutdowns", planned)):
        if some:
            yield heading(title)
            yield _outages(some)
    plots = 0
    for report in reports:
        outage = report.outage
        yield heading(f"{utc(outage.began_ms):%H:%M:%S}  b{outage.broker}: {cause_of(outage)}")
        if not report.partitions:
            yield paragraph("It led nothing.")
            continue
        shown = report.partitions[:MOST_BARS]
        if len(shown) < len(report.partitions):
            yield paragraph(f"The first {len(shown)} of {len(report.partitions)} partitions.")
        figure = _phases(report, shown)
        if any(len(trace.y) for trace in figure.data):
            height = 130 + BAR_HEIGHT * max(len(shown), 3)
            yield plot(figure, number=plots, height=height)
            plots += 1
        yield _table(report)
        for each in shown:
            yield details(f"{each.topic_partition}: what led to what", each.failover.chain)


def _changes(found: FailoverReport) -> Iterator[str]:
    """Yield every election and truncation with its cause, by partition, and how many had which."""
    if not found.changes:
        return
    yield heading("Elections and truncations")
    counted = Counter(
        (CHANGES[each.name], each.cause) for some in found.changes.values() for each in some
    )
    rows = [(what, cause, count) for (what, cause), count in counted.most_common()]
    yield table(("what", "cause", "times"), rows)
    if found.left_out:
        yield paragraph(f"{found.left_out:,} later ones are left out.", "bad")
    for partition, some in found.changes.items():
        yield details(f"{partition}: {len(some):,} elections and truncations", map(_line, some))


def _line(change: Change) -> str:
    return f"{utc(change.at_ms):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  b{change.node}: {change.text}"


def _outages(reports: Sequence[OutageReport]) -> str:
    columns = ("began", "broker", "cause", "led", "all elected", "all written to", "all ISR whole")
    rows = [
        (
            f"{utc(report.outage.began_ms):%H:%M:%S.%f}"[:-3],
            f"b{report.outage.broker}",
            report.outage.cause,
            len(report.partitions),
            *tuple(
                _last(report, name) for name in ("elected_ms", "first_write_ms", "isr_whole_ms")
            ),
            report.lost_committed,
            report.truncated,
        )
        for report in reports
    ]
    return table((*columns, "lost", "cut off"), rows)


def _last(report: OutageReport, moment: str) -> str | None:
    """Return how long the last partition took, and how many came so far where not all did."""
    times, there = report.after(moment), len(report.partitions)
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


def _table(report: OutageReport) -> str:
    columns = ("partition", "new leader", "epoch", "election", "elected", "leads", "first write")
    began = report.outage.began_ms
    rows = []
    for each in report.partitions:
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
    return table((*columns, "ISR whole", "lost", "cut off"), rows)
