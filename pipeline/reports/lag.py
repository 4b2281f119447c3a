"""Lag as a page: every partition's ISR over time, lag as it went, and the sums."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from pipeline.journals.gathered import shown_order
from pipeline.journals.lag import QUANTILES, LagPoint, LagReport, LagState, PartitionLag, verdict
from pipeline.reports.page import (
    MOST_BARS,
    MOST_ROWS,
    heading,
    page,
    paragraph,
    plot,
    seconds,
    table,
    tiles,
    utc,
)
from replication.observe.pages import folded_note, is_internal
from storage.types import TopicPartition

# The worst ones: more bars or lines than this nobody tells apart.
MOST_LINES = 8
BAR_HEIGHT = 18

COLOURS = {
    "whole": "#3f8f63",
    "under-replicated": "#d79a2b",
    "under min ISR": "#d0603a",
    "offline": "#a5304c",
    "shut down": "#8a8f98",
}


def lag_page(report: LagReport, *, internal: bool = False) -> str:
    return page(
        "Replication lag", verdict(report), _span(report.states), _parts(report, internal=internal)
    )


def _span(states: Sequence[LagState]) -> str:
    if not states:
        return "The journals have no partition."
    first = min(state.interval.from_ms for state in states)
    last = max(state.interval.to_ms for state in states)
    return f"{utc(first):%Y-%m-%d %H:%M:%S} to {utc(last):%H:%M:%S} UTC, {seconds(last - first)}"


def _parts(report: LagReport, *, internal: bool) -> Iterator[str]:
    partitions = report.partitions
    if not internal:
        partitions = tuple(each for each in partitions if not is_internal(each.topic))
    worst = max((lag.lag[-1] for lag in partitions if lag.lag), default=0)
    longest = max((lag.lag_ms[-1] for lag in partitions if lag.lag_ms), default=0)
    under = max((lag.under_replicated_ms for lag in partitions), default=0)
    under_min = max((lag.under_min_isr_ms for lag in partitions), default=0)
    offline = max((lag.offline_ms for lag in partitions), default=0)
    yield tiles(
        [
            (f"{len(partitions):,}", "partitions", ""),
            (seconds(under), "under-replicated, at most", "bad" if under else "good"),
            (seconds(under_min), "under min ISR, at most", "bad" if under_min else "good"),
            (seconds(offline), "offline, at most", "bad" if offline else "good"),
            (f"{worst:,}", "records behind, at most", ""),
            (seconds(longest), "behind, at most", ""),
        ]
    )
    for cause, count in report.unreadable.items():
        yield paragraph(f"not read: {cause}, {count:,} times", "bad")
    hidden = len(report.partitions) - len(partitions)
    if hidden:
        yield paragraph(folded_note(hidden))
    if shown := _worst(partitions):
        yield heading("In-sync replicas over time")
        if len(shown) < len(partitions):
            yield paragraph(f"The {len(shown)} of {len(partitions):,} that were longest not whole.")
        drawn = _isr(report.states, shown)
        yield plot(drawn, name="ISR over time", number=0, height=_height(len(shown)))
    points = [
        each for each in report.points if internal or not is_internal(each.topic_partition.topic)
    ]
    if any(point.lag for point in points):
        yield heading("Lag of the replica furthest behind, in records")
        yield plot(_lag(points), name="Lag over time", number=1, height=340)
    yield heading("Partitions")
    if len(partitions) > MOST_ROWS:
        yield paragraph(f"The first {MOST_ROWS:,} of {len(partitions):,}; JSON has them all.")
    yield _table(partitions[:MOST_ROWS])


def _worst(partitions: Sequence[PartitionLag]) -> list[TopicPartition]:
    by_time = sorted(
        partitions, key=lambda each: (-each.under_replicated_ms, -each.offline_ms, each.topic)
    )
    shown = [TopicPartition(each.topic, each.partition) for each in by_time if each.known_ms]
    return sorted(shown[:MOST_BARS], key=shown_order)


def _height(bars: int) -> int:
    return 110 + BAR_HEIGHT * max(bars, 4)


def _isr(states: Sequence[LagState], shown: Sequence[TopicPartition]) -> go.Figure:
    figure = go.Figure()
    wanted = set(shown)
    for name, colour in COLOURS.items():
        bars = [each for each in states if each.name == name and each.topic_partition in wanted]
        figure.add_bar(
            orientation="h",
            name=name,
            y=[str(each.topic_partition) for each in bars],
            base=[utc(each.interval.from_ms) for each in bars],
            x=[each.ms for each in bars],
            marker={"color": colour, "line": {"width": 0}},
            hovertext=[_hover(each) for each in bars],
            hoverinfo="text",
        )
    names = [str(each) for each in reversed(shown)]
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_xaxes(type="date")
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names)
    return figure


def _hover(state: LagState) -> str:
    interval = state.interval
    isr = ", ".join(f"b{each}" for each in interval.isr) or "none"
    leader = "no leader" if state.is_offline else f"leader b{interval.leader}"
    return (
        f"{state.topic_partition}: {state.name} for {seconds(state.ms)}<br>"
        f"{leader}, epoch {interval.leader_epoch}<br>in sync: {isr}"
    )


def _lag(points: Sequence[LagPoint]) -> go.Figure:
    by_partition: dict[TopicPartition, list[LagPoint]] = {}
    for point in points:
        by_partition.setdefault(point.topic_partition, []).append(point)
    worst = sorted(by_partition, key=lambda each: -max(point.lag for point in by_partition[each]))
    figure = go.Figure()
    for partition in worst[:MOST_LINES]:
        mine = by_partition[partition]
        figure.add_scatter(
            name=str(partition),
            x=[utc(point.at_ms) for point in mine],
            y=[point.lag for point in mine],
            mode="lines+markers",
            marker={"size": 4},
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def _table(partitions: Sequence[PartitionLag]) -> str:
    columns = ["partition", "replicas", "under-replicated", "under min ISR", "offline", "changes"]
    quantiles = [f"p{100 * quantile:g}" for quantile in QUANTILES[:-1]] + ["most"]
    columns += [f"lag {name}" for name in quantiles] + [f"ms {name}" for name in quantiles]
    nothing = (None,) * len(QUANTILES)
    rows = (
        (
            f"{each.topic}-{each.partition}",
            each.replication_factor,
            *tuple(
                map(seconds, (each.under_replicated_ms, each.under_min_isr_ms, each.offline_ms))
            ),
            each.isr_changes,
            *(each.lag or nothing),
            *(each.lag_ms or nothing),
        )
        for each in partitions
    )
    return table("Lag of partitions", columns, rows)
