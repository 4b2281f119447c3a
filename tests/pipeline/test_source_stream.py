"""Streams of records without Spark: positions, what they pass, and what they never take back."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipeline.source import stream as streams
from pipeline.source.directories import LogDirectories
from pipeline.source.errors import DataLossError, TopicReplacedError, UnknownTopicError
from pipeline.source.limited_stream import LimitedStream
from pipeline.source.options import parse_read_options
from storage.types import TopicPartition
from tests.pipeline.logs import segments, write_records


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LEAST_POLL_SECONDS", 0.0)


def stream(directory: Path, **changes: str) -> LimitedStream:
    """A reader as a driver has it that has just started."""
    options = {
        "path": str(directory),
        "startingOffsets": "earliest",
        "stopAtHighWatermark": "false",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "1",
        **changes,
    }
    return LimitedStream(parse_read_options(options, streaming=True), ["partition", "offset"])


def step(reader: LimitedStream, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """One micro-batch: its end, as a checkpoint keeps it, and the offsets of its rows."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return json.loads(json.dumps(end)), batch(reader, start, end)


def batch(reader: LimitedStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    tasks = reader.partitions(start, end)
    found = [row for task in tasks for rows in reader.read(task) for row in rows.to_pylist()]
    return [row["offset"] for row in sorted(found, key=lambda row: row["partition"])]


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fifty") / "d"
    write_records(directory, 50)
    return directory


def commit(directory: Path, high_watermark: int) -> None:
    """Let so many records be seen by who stops at the high watermark."""
    checkpoint = directory / "replication-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nt 0 {high_watermark}\n")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6), st.integers(1, 12))
def test_each_record_passes_once_whatever_is_restarted_between(
    fifty: Path, rounds: list[tuple[int, bool]], most: int
) -> None:
    limits = {"maxOffsetsPerTrigger": str(most), "stopAtHighWatermark": "true"}
    written = 3
    commit(fifty, written)
    reader = stream(fifty, **limits)
    position, passed = reader.initialOffset(), list[int]()
    while len(passed) < written or rounds:
        count, restarted = rounds.pop() if rounds else (0, False)
        written = min(50, written + count)
        commit(fifty, written)
        if restarted:
            reader = stream(fifty, **limits)
        following, rows = step(reader, position)
        # A driver that died before it had committed asks for the same batch again.
        assert batch(stream(fifty, **limits), position, following) == rows
        assert len(rows) <= most
        passed += rows
        position = following
    assert passed == list(range(written))
    assert step(reader, position) == (position, [])


def test_what_was_there_when_spark_asked_is_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 5.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def looked(logs: LogDirectories) -> None:
        looks.append(round(now, 3))
        refresh(logs)

    refresh = LogDirectories.refresh
    monkeypatch.setattr(LogDirectories, "refresh", looked)
    monkeypatch.setattr(streams, "LEAST_POLL_SECONDS", 0.1)
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    write_records(tmp_path / "d", 20)
    reader = stream(tmp_path / "d")
    start = reader.initialOffset()
    looks.clear()
    seen = reader.latestOffset(start, ReadAllAvailable())
    assert seen["t"] == {"0": 20}
    assert reader.reportLatestOffset() == seen
    now += 0.03
    write_records(tmp_path / "d", 5)
    assert reader.latestOffset(start, ReadAllAvailable())["t"] == {"0": 25}
    now += 0.5
    assert reader.latestOffset(start, ReadAllAvailable())["t"] == {"0": 25}
    # A tenth of a second apart, and never asked for a report.
    assert looks == [5.0, 5.1, 5.6]


def test_a_query_that_runs_once_ends_where_it_found_the_log(tmp_path: Path) -> None:
    write_records(tmp_path / "d", 20)
    reader = stream(tmp_path / "d")
    position = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    write_records(tmp_path / "d", 5)
    write_records(tmp_path / "d", 5, tp=TopicPartition("t", 1))
    end = reader.latestOffset(position, ReadMaxRows(15))
    assert end["t"] == {"0": 15}
    end = reader.latestOffset(end, ReadAllAvailable())
    assert end["t"] == {"0": 20}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_partition_that_is_new_is_read_from_its_beginning(tmp_path: Path) -> None:
    write_records(tmp_path / "d", 2)
    reader = stream(tmp_path / "d", startingOffsets="latest")
    position, rows = step(reader, reader.initialOffset())
    assert rows == []
    write_records(tmp_path / "d", 3, tp=TopicPartition("t", 1))
    position, rows = step(reader, position)
    assert rows == [0, 1, 2]
    assert position["t"] == {"0": 2, "1": 3}


def test_few_records_wait_for_more_or_for_time(tmp_path: Path) -> None:
    write_records(tmp_path / "d", 2)
    few = {"minOffsetsPerTrigger": "5"}
    reader = stream(tmp_path / "d", **few, maxTriggerDelay="1h")
    position = reader.initialOffset()
    assert step(reader, position) == (position, [])
    assert step(stream(tmp_path / "d", **few, maxTriggerDelay="0ms"), position)[1] == [0, 1]
    write_records(tmp_path / "d", 3)
    assert step(reader, position)[1] == [0, 1, 2, 3, 4]


def test_only_what_is_committed_passes(tmp_path: Path) -> None:
    write_records(tmp_path / "d", 9)
    reader = stream(tmp_path / "d", stopAtHighWatermark="true")
    position, rows = step(reader, reader.initialOffset())
    assert rows == []
    commit(tmp_path / "d", 7)
    position, rows = step(reader, position)
    assert rows == list(range(7))
    (tmp_path / "d" / "replication-offset-checkpoint").write_text(
        ""
    )  # in the middle of being written
    assert step(reader, position) == (position, [])


# What is lost.


def passed_nine(tmp_path: Path, **changes: str) -> tuple[LimitedStream, dict[str, Any]]:
    write_records(tmp_path / "d", 9)
    reader = stream(tmp_path / "d", **changes)
    position, rows = step(reader, reader.initialOffset())
    assert len(rows) == 9
    return reader, position


def test_a_log_that_was_cut_below_what_was_passed_is_named(tmp_path: Path) -> None:
    reader, position = passed_nine(tmp_path)
    last = segments(tmp_path / "d")[-1]
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(DataLossError, match="t-0 ends at offset 8, before 9, which was passed"):
        step(reader, position)
    # Allowed, it is still not taken back.
    reader = stream(tmp_path / "d", failOnDataLoss="false")
    assert step(reader, position) == (position, [])


def test_a_batch_that_is_read_again_after_its_log_was_cut_is_named(tmp_path: Path) -> None:
    reader, position = passed_nine(tmp_path)
    last = segments(tmp_path / "d")[-1]
    last.write_bytes(last.read_bytes()[:-1])
    begin = {**position, "t": {"0": 4}}
    with pytest.raises(DataLossError, match="t-0: offsets 8 to 8 are not there"):
        batch(reader, begin, position)
    lenient = stream(tmp_path / "d", failOnDataLoss="false")
    assert batch(lenient, begin, position) == [4, 5, 6, 7]


def test_a_topic_that_vanishes_is_named(tmp_path: Path) -> None:
    reader, position = passed_nine(tmp_path, subscribe="t")
    shutil.rmtree(tmp_path / "d" / "t-0")
    with pytest.raises(DataLossError, match="t-0 cannot be read any more: deleted"):
        step(reader, position)
    lenient = stream(tmp_path / "d", failOnDataLoss="false", subscribe="t")
    assert step(lenient, position)[1] == []


def test_a_topic_that_is_named_has_to_be_there_only_when_a_query_begins(tmp_path: Path) -> None:
    _, position = passed_nine(tmp_path, subscribe="t")
    shutil.rmtree(tmp_path / "d" / "t-0")
    # A query that runs once asks for the end first.
    first = stream(tmp_path / "d", failOnDataLoss="false", subscribe="t")
    first.prepareForTriggerAvailableNow()
    with pytest.raises(UnknownTopicError, match="no log of topic t"):
        first.initialOffset()
    again = stream(tmp_path / "d", failOnDataLoss="false", subscribe="t")
    again.prepareForTriggerAvailableNow()
    assert step(again, position)[1] == []
    strict = stream(tmp_path / "d", subscribe="t")
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="t-0 cannot be read any more: deleted"):
        step(strict, position)


def test_a_topic_that_goes_while_it_is_looked_at_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, position = passed_nine(tmp_path, failOnDataLoss="false")
    latest, looks = LogDirectories.latest, list[int]()

    def going(logs: LogDirectories, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        looks.append(len(looks))
        if len(looks) == 1:
            shutil.rmtree(tmp_path / "d" / "t-0")
            raise UnknownTopicError("t-0 is not there (any more)")
        return latest(logs, wanted)

    monkeypatch.setattr(LogDirectories, "latest", going)
    assert step(reader, position)[1] == []
    assert len(looks) > 1


def make_again(directory: Path) -> None:
    """As far as its id tells."""
    metadata = directory / "t-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


def test_a_checkpoint_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    _, position = passed_nine(tmp_path)
    assert position["@topicIds"]["t"]
    make_again(tmp_path / "d")
    with pytest.raises(TopicReplacedError, match="topic t is another than that of the checkpoint"):
        step(stream(tmp_path / "d"), position)
    anew = stream(tmp_path / "d", failOnDataLoss="false")
    assert step(anew, position)[1] == list(range(9))


def test_what_was_planned_of_a_topic_that_was_made_again_is_not_read_of_the_new_one(
    tmp_path: Path,
) -> None:
    _, position = passed_nine(tmp_path)
    begin = {**position, "t": {"0": 4}}
    make_again(tmp_path / "d")
    with pytest.raises(TopicReplacedError, match="topic t is another than that of the checkpoint"):
        batch(stream(tmp_path / "d"), begin, position)
    anew = stream(tmp_path / "d", failOnDataLoss="false")
    assert batch(anew, begin, position) == []
    # The next micro-batch has all of it.
    assert step(anew, position)[1] == list(range(9))


def test_a_reader_travels_without_what_it_knows(tmp_path: Path) -> None:
    from pyspark.cloudpickle import dumps, loads

    write_records(tmp_path / "d", 2)
    reader = loads(dumps(stream(tmp_path / "d")))  # type: ignore[no-untyped-call] # pyspark's
    assert step(reader, reader.initialOffset())[1] == [0, 1]
