"""The lag job: each partition's ISR over time, and the lag of its replicas.

    lag        the records that the replica furthest behind lacked at a report of its leader. For
               the ISR it is the leader's log end offset less the high watermark; for other
               replicas, and while the high watermark stands, `followers_behind` has it, and so do
               proposals to change the ISR
    lag in ms  the time from when that replica began to lack records, as far as its leader knew,
               until the high watermark passed that log end offset; for a replica out of the ISR,
               until it was in the ISR again

A broker that shut down on request, and is still away where the journals end, is no trouble: what only
it left behind is the state "shut down", as after the end of a whole cluster.

A broker with news reports once per tick, so both are samples: quantiles describe most of the time,
and a lag that begins and ends between two ticks is not seen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, Window, functions as f

from pipeline.journals.gathered import KEY, LEADER_EPOCH, find_outages, fold, gather, shown_order
from pipeline.journals.rows import DAMAGED, SKIPPED
from pipeline.journals.timeline import Interval, Outage, intervals
from replication.observe.pages import Level, PageVerdict, counted, folded_note, is_internal
from replication.wire.metadata import NO_LEADER
from storage.types import TopicPartition

QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)

INTERVAL_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("from_ms", pa.int64()),
        ("to_ms", pa.int64()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("isr", pa.list_(pa.int32())),
        ("replication_factor", pa.int32()),
    ]
)


@attrs.frozen(kw_only=True)
class MinIsr:
    """`min.insync.replicas`, which no journal has: a default, and the values of some topics."""

    default: int = 1
    topics: Mapping[str, int] = attrs.field(factory=dict)

    def of(self, topic: str) -> int:
        """Return the value of one topic."""
        return self.topics.get(topic, self.default)


@attrs.frozen(kw_only=True)
class LagState:
    """The state of a partition during an interval."""

    topic_partition: TopicPartition
    interval: Interval
    replication_factor: int
    min_isr: int
    is_shut_down: bool = False
    """Whether all that was missing had shut down on request, and is still away in the end."""

    @property
    def ms(self) -> int:
        """The length of the interval in milliseconds."""
        return self.interval.to_ms - self.interval.from_ms

    @property
    def is_offline(self) -> bool:
        """Whether the partition had no leader."""
        return not self.is_shut_down and self.interval.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        """Whether the ISR had fewer members than the partition has replicas."""
        return not self.is_shut_down and len(self.interval.isr) < self.replication_factor

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR had fewer members than `min.insync.replicas`."""
        return not self.is_shut_down and len(self.interval.isr) < self.min_isr

    @property
    def name(self) -> str:
        """The name of the state; the worst one that applies."""
        if self.is_shut_down:
            return "shut down"
        if self.is_offline:
            return "offline"
        if self.is_under_min_isr:
            return "under min ISR"
        return "under-replicated" if self.is_under_replicated else "whole"


@attrs.frozen(kw_only=True)
class PartitionLag:
    """One partition over the whole time of the journals."""

    topic: str
    partition: int
    replication_factor: int | None
    known_ms: int = 0
    under_replicated_ms: int = 0
    under_min_isr_ms: int = 0
    offline_ms: int = 0
    isr_changes: int = 0
    samples: int = 0
    lag: tuple[int, ...] = ()  # in records, at `QUANTILES`
    lag_ms: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class LagPoint:
    """The worst lag of a partition within a stretch of time."""

    topic_partition: TopicPartition
    at_ms: int
    lag: int
    lag_ms: int


@attrs.frozen
class LagReport:
    """The job's result; `unreadable` has the number of events or files not read, by cause."""

    partitions: tuple[PartitionLag, ...]
    states: tuple[LagState, ...]
    points: tuple[LagPoint, ...]
    unreadable: Mapping[str, int]
    shut_down: tuple[int, ...] = ()
    """The brokers that shut down on request, and are still away where the journals end."""


def lag_report(
    events: DataFrame,
    *,
    min_isr: MinIsr,
    points: int = 400,
    on_step: Callable[[str], None] = lambda _: None,
) -> LagReport:
    """Run the job; each partition has at most `points` points of lag for a drawing."""
    events = events.persist()
    try:
        on_step("reading journals")
        first_ms, last_ms = events.agg(f.min("at_ms"), f.max("at_ms")).collect()[0]
        if first_ms is None:
            return LagReport((), (), (), {})
        on_step("following every ISR")
        rows = isr_intervals(events, last_ms).orderBy(*KEY, "from_ms").collect()
        stopped = {
            each.broker: each
            for each in find_outages(events)
            if each.planned and each.over_ms is None
        }
        states = tuple(with_shutdowns((_state(row.asDict(), min_isr) for row in rows), stopped))
        on_step("measuring lag")
        measured = lag_samples(events, last_ms).persist()
        summed = {(row.topic, row.partition): row for row in lag_quantiles(measured).collect()}
        step_ms = max(1, (last_ms - first_ms) // points)
        drawn = tuple(_point(row.asDict()) for row in lag_points(measured, step_ms).collect())
        measured.unpersist()
        unread = events.where(f.col("name").isin(DAMAGED, SKIPPED)).groupBy("cause").count()
        return LagReport(
            tuple(_partitions(states, summed)),
            states,
            drawn,
            {row["cause"]: row["count"] for row in unread.collect()},
            tuple(sorted(stopped)),
        )
    finally:
        events.unpersist()


def isr_intervals(events: DataFrame, end_ms: int) -> DataFrame:
    """Return one row for each interval in which a partition did not change."""
    rule = partial(_intervals, end_ms=end_ms)
    return fold(gather(events), rule, INTERVAL_SCHEMA)


def lag_samples(events: DataFrame, end_ms: int) -> DataFrame:
    """Return a row for each report of a leader: lag in records, and in milliseconds if it ended."""
    advanced = events.where("name = 'high_watermark_advanced'")
    lagging = events.where("name in ('followers_behind', 'isr_change_proposed') and lag >= 0")
    samples = advanced.unionByName(lagging)
    wanted = samples.withColumn("offset", f.col("log_end_offset")).withColumn(
        "done_ms", f.lit(None)
    )
    passed = advanced.withColumn("offset", f.col("high_watermark")).withColumn(
        "done_ms", f.col("at_ms")
    )
    # By offset, the next high watermark that is not below a log end offset passed it first.
    following = (
        Window.partitionBy(*LEADER_EPOCH)
        .orderBy("offset")
        .rangeBetween(0, Window.unboundedFollowing)
    )
    both = wanted.withColumn("is_sample", f.lit(True)).unionByName(
        passed.withColumn("is_sample", f.lit(False))
    )
    ended = both.withColumn("ended_ms", f.min("done_ms").over(following)).where("is_sample")
    is_out = f.expr("name = 'followers_behind' and not array_contains(isr, broker)")
    found = ended.where(~is_out).unionByName(_until_in_sync(events, ended.where(is_out), end_ms))
    behind_ms, left_ms = f.col("lag_ms"), f.col("ended_ms") - f.col("at_ms")
    return found.select(
        *KEY,
        "node",
        "at_ms",
        f.greatest("lag", f.col("log_end_offset") - f.col("high_watermark")).alias("lag"),
        (f.greatest(f.lit(0), behind_ms) + f.greatest(f.lit(0), left_ms)).alias("lag_ms"),
    )


def _until_in_sync(events: DataFrame, samples: DataFrame, end_ms: int) -> DataFrame:
    """End each sample of a follower out of the ISR when that is in it again, or at `end_ms`."""
    changes = events.where("name = 'isr_changed'")
    joined = changes.select(*KEY, "at_ms", f.explode("isr").alias("broker"))
    joined = joined.withColumn("joined_ms", f.col("at_ms"))
    both = samples.withColumn("is_sample", f.lit(True)).unionByName(
        joined, allowMissingColumns=True
    )
    following = (
        Window.partitionBy(*KEY, "broker")
        .orderBy("at_ms")
        .rangeBetween(0, Window.unboundedFollowing)
    )
    joins_ms = f.coalesce(f.min("joined_ms").over(following), f.lit(end_ms))
    return both.withColumn("ended_ms", joins_ms).where("is_sample").drop("joined_ms")


def lag_quantiles(samples: DataFrame) -> DataFrame:
    """Return one row per partition: `lag` and `lag_ms` at `QUANTILES`."""
    wanted = f.array(*(f.lit(quantile) for quantile in QUANTILES))
    return samples.groupBy(*KEY).agg(
        f.count("*").alias("samples"),
        f.percentile("lag", wanted).alias("lag"),
        f.percentile("lag_ms", wanted).alias("lag_ms"),
    )


def lag_points(samples: DataFrame, step_ms: int) -> DataFrame:
    """Return the worst lag of each partition in each `step_ms`, in order of time."""
    step = (f.floor(f.col("at_ms") / step_ms) * step_ms).alias("at_ms")
    worst = samples.groupBy(*KEY, step).agg(
        f.max("lag").alias("lag"), f.max("lag_ms").alias("lag_ms")
    )
    return worst.orderBy(*KEY, "at_ms")


def _intervals(row: dict[str, Any], *, end_ms: int) -> list[Any]:
    found = intervals(row["facts"], end_ms)
    return [
        _WithFactor(**attrs.asdict(each), replication_factor=row["replication_factor"])
        for each in found
    ]


@attrs.frozen(kw_only=True)
class _WithFactor(Interval):
    replication_factor: int


def _state(row: dict[str, Any], min_isr: MinIsr) -> LagState:
    where = TopicPartition(row.pop("topic"), row.pop("partition"))
    factor = row.pop("replication_factor")
    row["isr"] = tuple(row["isr"])
    return LagState(
        topic_partition=where,
        interval=Interval(**row),
        replication_factor=factor,
        min_isr=min_isr.of(where.topic),
    )


def with_shutdowns(states: Iterable[LagState], stopped: Mapping[int, Outage]) -> Iterator[LagState]:
    """Yield the states, in order of time for each partition, with the shutdowns noted in them.

    `stopped` has the last outage of each broker that shut down on request and is still away.
    """
    replicas: dict[TopicPartition, frozenset[int]] = {}
    for state in states:
        # Without a leader nobody is there, not even the last one that was in sync.
        there = frozenset() if state.is_offline else frozenset(state.interval.isr)
        if not (state.is_offline or state.is_under_replicated):
            replicas[state.topic_partition] = there
        missing = replicas.get(state.topic_partition, there) - there
        began = [stopped[each].began_ms for each in missing if each in stopped]
        is_planned = len(began) == len(missing) > 0 and state.interval.from_ms >= min(began)
        yield attrs.evolve(state, is_shut_down=is_planned)


def _point(row: dict[str, Any]) -> LagPoint:
    where = TopicPartition(row["topic"], row["partition"])
    return LagPoint(
        topic_partition=where, at_ms=row["at_ms"], lag=row["lag"], lag_ms=row["lag_ms"] or 0
    )


def _partitions(
    states: tuple[LagState, ...], summed: Mapping[tuple[str, int], Any]
) -> list[PartitionLag]:
    by_partition: dict[tuple[str, int], list[LagState]] = {key: [] for key in summed}
    for state in states:
        by_partition.setdefault(state.topic_partition, []).append(state)
    return [
        _partition(key, by_partition[key], summed.get(key))
        for key in sorted(by_partition, key=_shown)
    ]


def _shown(key: tuple[str, int]) -> tuple[bool, TopicPartition]:
    return shown_order(TopicPartition(*key))


def _partition(key: tuple[str, int], states: list[LagState], summed: Any) -> PartitionLag:
    quantiles: dict[str, Any] = {}
    if summed is not None:
        quantiles["samples"] = summed["samples"]
        quantiles["lag"] = tuple(round(value) for value in summed["lag"])
        quantiles["lag_ms"] = tuple(round(value) for value in summed["lag_ms"] or ())
    return PartitionLag(
        topic=key[0],
        partition=key[1],
        replication_factor=states[0].replication_factor if states else None,
        known_ms=sum(state.ms for state in states),
        under_replicated_ms=sum(state.ms for state in states if state.is_under_replicated),
        under_min_isr_ms=sum(state.ms for state in states if state.is_under_min_isr),
        offline_ms=sum(state.ms for state in states if state.is_offline),
        isr_changes=max(0, len(states) - 1),
        **quantiles,
    )


def to_json(report: LagReport) -> dict[str, Any]:
    """Return the partitions with their states; times are milliseconds since 1970."""
    states: dict[TopicPartition, list[dict[str, Any]]] = {}
    for state in report.states:
        row = attrs.asdict(state.interval) | {"state": state.name}
        states.setdefault(state.topic_partition, []).append(row)
    partitions = [
        attrs.asdict(each) | {"states": states.get(TopicPartition(each.topic, each.partition), [])}
        for each in report.partitions
    ]
    return {"quantiles": QUANTILES, "partitions": partitions, "unreadable": dict(report.unreadable)}


def verdict(report: LagReport) -> PageVerdict:
    """Return what happened to the ISRs, and what is wrong with them where the journals end.

    Whether records were lost is a question for the failover report: a lag loses none.
    """
    if not report.states:
        return PageVerdict(Level.WARNING, "the journals have no partition.")
    shown = [each for each in report.partitions if not is_internal(each.topic)]
    shown = shown or list(report.partitions)
    below = [each for each in shown if each.under_replicated_ms or each.offline_ms]
    offline = sum(bool(each.offline_ms) for each in below)
    happened = f"every ISR of {counted(len(shown), 'partition')} was whole all the time"
    if below:
        longest = max(each.under_replicated_ms for each in below) / 1000
        happened = (
            f"{len(below):,} of {counted(len(shown), 'partition')} had an ISR that was not whole,"
            f" for at most {longest:,.1f} s"
        )
        happened += f"; {offline:,} had no leader for a time" if offline else ""
    last = {each.topic_partition: each for each in report.states}
    ends_ms = max(each.interval.to_ms for each in report.states)
    now = [each for each in last.values() if each.interval.to_ms == ends_ms]
    leaderless, under = (
        sum(each.is_offline for each in now),
        sum(each.name not in ("whole", "shut down") for each in now),
    )
    stopped = ", ".join(f"b{each}" for each in report.shut_down)
    wrong = f"nothing is wrong ({stopped} shut down)" if stopped else "every ISR is whole"
    level = Level.GOOD
    if under:
        wrong = f"{counted(under, 'ISR')} not whole, and {leaderless:,} without a leader"
        level = Level.BAD if leaderless else Level.WARNING
    lost = "The failover report shows whether records were lost"
    return PageVerdict(level, f"{happened}. Where the journals end, {wrong}. {lost}.")


def lines(report: LagReport, *, internal: bool = False) -> Iterator[str]:
    """Yield the verdict, and a line for each partition, for people to read.

    Partitions of internal topics are left out unless `internal`.
    """
    yield str(verdict(report))
    names = [f"p{100 * quantile:g}" for quantile in QUANTILES[:-1]] + ["most"]
    shown = [each for each in report.partitions if internal or not is_internal(each.topic)]
    if len(shown) < len(report.partitions):
        hidden = len(report.partitions) - len(shown)
        yield folded_note(hidden)
    for each in shown:
        yield (
            f"{each.topic}-{each.partition}: under-replicated {each.under_replicated_ms:,} ms,"
            f" under min ISR {each.under_min_isr_ms:,} ms, offline {each.offline_ms:,} ms"
            f" of {each.known_ms:,} ms; {each.isr_changes} changes"
        )
        if each.lag:
            figures = ", ".join(f"{n} {v:,}" for n, v in zip(names, each.lag, strict=True))
            yield f"    lag in records: {figures} ({each.samples:,} samples)"
        if any(each.lag_ms):
            figures = ", ".join(f"{n} {v:,}" for n, v in zip(names, each.lag_ms, strict=True))
            yield f"    lag in ms: {figures}"
    for cause, count in report.unreadable.items():
        yield f"not read: {cause}, {count:,} times"


def write_parquet(report: LagReport, path: str) -> None:
    """Write a Parquet file with a row for each state of each partition."""
    rows = [
        attrs.asdict(state.interval)
        | {"topic": state.topic_partition.topic, "partition": state.topic_partition.partition}
        | {"replication_factor": state.replication_factor}
        for state in report.states
    ]
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=INTERVAL_SCHEMA), path)
