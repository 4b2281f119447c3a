"""Lag and failover on Spark, over journals that real brokers wrote while one was killed."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from replication.cli.demo_run import CONFIG
from replication.events import FollowersBehind, IsrChanged
from replication.observe.journal import JournalEntry, read_journal
from storage.types import TopicPartition
from tests.pipeline.failover_run import BROKERS, PARTITIONS, RECORDS, TOPIC, FailoverRun

pytestmark = [pytest.mark.spark, pytest.mark.client]


@pytest.fixture(scope="module")
def written(
    spark: Any, failed_over: FailoverRun, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Runs `understudy pipeline JOB`, once; what is given is a folder with its report in every form."""
    from click.testing import CliRunner

    from replication.cli import group

    to = tmp_path_factory.mktemp("reports")

    @cache
    def run(job: str) -> Path:
        arguments = ["pipeline", job, str(failed_over.data_dir)]
        for ending in ("json", "html", "parquet"):
            arguments += ["--output", str(to / f"{job}.{ending}")]
        arguments += ["--min-isr", f"{TOPIC}=3"] if job == "lag" else []
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 0, done.output
        return to

    return run


def test_every_outage_is_reported_with_its_effects(
    written: Callable[[str], Path], failed_over: FailoverRun
) -> None:
    outages = json.loads((written("failover") / "failover.json").read_text())
    killed = outages[0]
    assert (killed["broker"], killed["cause"]) == (failed_over.victim, "session expired")
    assert killed["lost_committed"] == 0
    # Every node has this machine's clock. What was sent before the kill may be heard after it.
    assert killed["silent_ms"] >= int(CONFIG["broker.session.timeout.ms"])
    assert failed_over.killed_ms < killed["fenced_ms"] < killed["over_ms"]
    assert failed_over.restarted_ms < killed["over_ms"]
    mine = [each for each in killed["partitions"] if each["topic"] == TOPIC]
    assert {each["partition"] for each in mine} == failed_over.led
    for each in mine:
        assert each["election"] == "clean"
        assert each["leader"] != failed_over.victim
        moments = ("fenced_ms", "elected_ms", "leading_ms", "first_write_ms", "isr_whole_ms")
        times = [each[moment] for moment in moments]
        assert None not in times, each
        assert times == sorted(times)
        assert any("was elected (clean)" in link for link in each["chain"])
    assert [each["cause"] for each in outages[1:]] == ["controlled shutdown"] * BROKERS
    assert [each["planned"] for each in outages] == [False, *[True] * BROKERS]


@pytest.mark.deep
def test_the_isr_is_followed_from_creation_to_shutdown(
    written: Callable[[str], Path], failed_over: FailoverRun
) -> None:
    report = json.loads((written("lag") / "lag.json").read_text())
    assert report["unreadable"] == {}
    mine = [each for each in report["partitions"] if each["topic"] == TOPIC]
    assert [each["partition"] for each in mine] == list(range(PARTITIONS))
    for each in mine:
        assert each["replication_factor"] == BROKERS
        first, second, third = each["states"][:3]
        assert (sorted(first["isr"]), first["state"]) == ([1, 2, 3], "whole")
        assert failed_over.victim not in second["isr"]
        assert second["state"] == "under min ISR"
        assert sorted(third["isr"]) == [1, 2, 3]
        assert second["to_ms"] - second["from_ms"] <= each["under_min_isr_ms"]
        assert each["under_min_isr_ms"] == each["under_replicated_ms"] >= each["offline_ms"]
        assert each["states"][-1]["state"] == "shut down"
        assert len(each["lag"]) == len(report["quantiles"])
        assert each["lag"] == sorted(each["lag"])
        # A half of the records was sent while the victim was dead, and half of that here.
        assert each["lag"][-1] >= RECORDS // 2 // PARTITIONS // 2
        out, lasted = lag_of_outsiders(failed_over, each["partition"])
        assert 0 < out <= each["lag_ms"][-1] <= lasted


def lag_of_outsiders(run: FailoverRun, partition: int) -> tuple[int, int]:
    """Return the longest lag of a follower out of the ISR, and the longest that any lag can be.

    The first is what the journals say of it one by one: how long it had been behind at a report of
    its leader, and how long after that it was in the ISR again.
    """
    entries: list[JournalEntry] = []
    for path in sorted(run.data_dir.rglob("events.journal*")):
        entries += read_journal(path.read_bytes()).entries
    where = TopicPartition(TOPIC, partition)
    first_ms, last_ms = min(each.at_ms for each in entries), max(each.at_ms for each in entries)
    mine = [each for each in entries if getattr(each.event, "partition", None) == where]
    out = []
    for entry in mine:
        behind = entry.event
        if isinstance(behind, FollowersBehind) and behind.broker not in behind.isr:
            back = (
                each.at_ms
                for each in mine
                if isinstance(each.event, IsrChanged)
                and behind.broker in each.event.isr
                and each.at_ms >= entry.at_ms
            )
            back_ms = min(back, default=last_ms)
            out.append(max(0, behind.lag_ms) + back_ms - entry.at_ms)
    longest = max(getattr(each.event, "lag_ms", 0) for each in mine)
    return max(out), longest + last_ms - first_ms


@pytest.mark.deep
def test_parquet_has_a_row_for_each_state_and_each_failover(
    written: Callable[[str], Path],
) -> None:
    import pyarrow.parquet

    report = json.loads((written("lag") / "lag.json").read_text())
    states = pyarrow.parquet.read_table(written("lag") / "lag.parquet")
    assert states.num_rows == sum(len(each["states"]) for each in report["partitions"])
    outages = json.loads((written("failover") / "failover.json").read_text())
    failovers = pyarrow.parquet.read_table(written("failover") / "failover.parquet")
    assert failovers.num_rows == sum(len(each["partitions"]) for each in outages)


def test_lag_lasts_until_the_replica_has_the_records_or_is_in_sync_again(spark: Any) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    from pipeline.journals.lag import lag_samples
    from pipeline.journals.rows import SCHEMA

    def event(name: str, at_ms: int, **fields: Any) -> tuple[Any, ...]:
        where = {"node": 2, "number": 0, "topic": "t", "partition": 0, "leader_epoch": 1}
        row = where | {"name": name, "at_ms": at_ms} | fields
        return tuple(row.get(column) for column in SCHEMA.names)

    def behind(at_ms: int, end: int, *isr: int, lag: int, lag_ms: int) -> tuple[Any, ...]:
        return event(
            "followers_behind",
            at_ms,
            log_end_offset=end,
            isr=list(isr),
            broker=3,
            lag=lag,
            lag_ms=lag_ms,
        )

    events = [
        event("high_watermark_advanced", 0, high_watermark=10, log_end_offset=10),
        behind(100, 168, 1, 2, 3, lag=158, lag_ms=100),
        event("high_watermark_advanced", 16_000, high_watermark=168, log_end_offset=168),
        event("isr_changed", 20_000, isr=[1, 2]),
        behind(21_000, 200, 1, 2, lag=32, lag_ms=500),
        behind(22_000, 201, 1, 2, lag=33, lag_ms=-1),
        event("isr_changed", 23_000, isr=[1, 2, 3]),
        behind(25_000, 300, 1, 2, lag=9, lag_ms=1),
    ]
    rows = spark.createDataFrame(events, from_arrow_schema(SCHEMA))
    samples = lag_samples(rows, 30_000).orderBy("at_ms")
    assert [(row.at_ms, row.lag, row.lag_ms) for row in samples.collect()] == [
        (0, 0, 0),
        (100, 158, 16_000),  # in sync: until the high watermark has passed
        (16_000, 0, 0),
        (21_000, 32, 2_500),  # out of the ISR: until it is in it again
        (22_000, 33, 1_000),
        (25_000, 9, 5_001),  # until the journal ends
    ]
