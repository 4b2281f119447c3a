"""Headers of logs that grow, without Spark: which offsets a micro-batch has."""

from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.audit import growing
from pipeline.audit.batches import WhatToRead
from pipeline.audit.growing import GrowingBatches
from tests.pipeline.replicas import batch, write_replica, write_segment

A, B, C = batch(0, b"a"), batch(1, b"b", b"c"), batch(3, b"d")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "_LEAST_POLL_SECONDS", 0.0)


def reader(tmp_path: Path, settle_ms: int = 1_000_000) -> GrowingBatches:
    directories = {name: str(tmp_path / name) for name in "ab"}
    return GrowingBatches(WhatToRead(directories, None, check_crcs=False), settle_ms)


def step(
    stream: GrowingBatches, passed: dict[str, Any]
) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Return the next offset of the stream, and the replicas and offsets of its batches."""
    offset = stream.latestOffset(passed, ReadAllAvailable())
    rows = [
        row
        for task in stream.partitions(passed, offset)
        for read in stream.read(task)
        for row in read.to_pylist()
    ]
    found = [(row["replica"], row["base_offset"], row["last_offset"]) for row in rows]
    return offset, sorted(found)


def test_a_micro_batch_has_what_every_replica_holds_and_each_offset_once(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", A, B)
    write_replica(tmp_path / "b", "t-0", A)
    write_replica(tmp_path / "a", "alone-0", A)
    stream = reader(tmp_path)
    first, rows = step(stream, {})
    assert (first, rows) == ({"t": {"0": [0, 1]}}, [("a", 0, 0), ("b", 0, 0)])
    assert step(stream, first) == (first, []), "nothing is new"
    write_replica(tmp_path / "a", "t-0", A, B, C[:-3])  # which is still being written
    write_replica(tmp_path / "b", "t-0", A, B)
    write_segment(tmp_path / "b", "t-0", 3, C)
    second, rows = step(stream, first)
    assert (second, rows) == ({"t": {"0": [1, 3]}}, [("a", 1, 2), ("b", 1, 2)])
    write_replica(tmp_path / "a", "t-0", A, B, C)
    again = reader(tmp_path)  # after a restart
    assert step(again, second) == ({"t": {"0": [3, 4]}}, [("a", 3, 3), ("b", 3, 3)])
    planned = [row for task in again.partitions({}, second) for row in again.read(task)]
    assert sum(rows.num_rows for rows in planned) == 2, "planned offsets are read as planned"


def test_a_replica_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", A, B)
    write_replica(tmp_path / "b", "t-0", A)
    stream = reader(tmp_path, settle_ms=0)
    offset, rows = step(stream, {})
    assert (offset, rows) == (
        {"t": {"0": [0, 3]}},
        [("a", 0, 0), ("a", 1, 2), ("b", 0, 0)],
    )
    once = reader(tmp_path)
    once.prepareForTriggerAvailableNow()
    write_replica(tmp_path / "a", "t-0", A, B, C)
    assert step(once, {})[0] == {"t": {"0": [0, 3]}}, "what was there when it started"


def test_after_a_truncation_it_is_read_again_from_there(tmp_path: Path) -> None:
    for name in "ab":
        write_replica(tmp_path / name, "t-0", A, B, C)
    stream = reader(tmp_path)
    passed, _ = step(stream, {})
    other = batch(1, b"x", leader_epoch=2)
    write_replica(tmp_path / "b", "t-0", A)
    passed, rows = step(stream, passed)
    assert (passed, rows) == ({"t": {"0": [1, 1]}}, [])
    for name in "ab":
        write_replica(tmp_path / name, "t-0", A, other)
    passed, rows = step(stream, passed)
    assert (passed, rows) == ({"t": {"0": [1, 2]}}, [("a", 1, 1), ("b", 1, 1)])


def test_damage_is_a_row_of_its_own(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", A, B, C)
    write_replica(tmp_path / "b", "t-0", A, b"\7" * len(B), C)
    stream = attrs.evolve(reader(tmp_path))
    offset = stream.latestOffset({}, ReadAllAvailable())
    rows = [
        (row["replica"], row["damage"] is not None)
        for task in stream.partitions({}, offset)
        for read in stream.read(task)
        for row in read.to_pylist()
    ]
    assert offset == {"t": {"0": [0, 4]}}
    assert sorted(rows) == [("a", False)] * 3 + [("b", False), ("b", True)]
