"""The data source's readers, without Spark: what they plan and what they read."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.batches import (
    BatchesDataSource,
    BatchesReader,
    SegmentGroup,
    arrow_schema,
    directory_names,
    segment_rows,
)
from storage.filesystem import OsFileSystem
from tests.pipeline.replicas import batch, write_replica, write_segment


def rows(reader: BatchesReader) -> list[dict[str, object]]:
    found = []
    for group in reader.partitions():
        assert isinstance(group, SegmentGroup)
        for segment in group.segments:
            found += segment_rows(OsFileSystem(), segment).to_pylist()
    return found


def test_one_row_for_each_batch_and_one_for_each_replica(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x", b"y"), batch(2, b"z", leader_epoch=3))
    found = rows(BatchesReader({"a": str(tmp_path / "a")}))
    assert [(row["base_offset"], row["last_offset"], row["leader_epoch"]) for row in found] == [
        (None, None, None),
        (0, 1, 0),
        (2, 2, 3),
    ]


def test_a_torn_tail_is_not_a_batch(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x"), batch(1, b"y")[:-1])
    assert len(rows(BatchesReader({"a": str(tmp_path / "a")}))) == 2


def test_batches_larger_than_the_window_are_stepped_over(tmp_path: Path) -> None:
    big = b"v" * 3_000_000
    write_replica(tmp_path / "a", "t-0", batch(0, big), batch(1, big), batch(2, b"end"))
    found = rows(BatchesReader({"a": str(tmp_path / "a")}))
    assert [row["base_offset"] for row in found] == [None, 0, 1, 2]


def test_the_log_start_is_the_checkpoint_where_it_lies_above_the_first_segment(
    tmp_path: Path,
) -> None:
    write_segment(tmp_path / "a", "t-0", 5, batch(5, b"x"), batch(6, b"y"))
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    assert {row["log_start_offset"] for row in rows(BatchesReader({"a": str(tmp_path / "a")}))} == {
        6
    }


def test_what_is_no_replica_is_passed_over(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "__understudy_metadata-0", batch(0, b"x"))
    (tmp_path / "a" / "meta.properties").write_text("version=1\n")
    assert rows(BatchesReader({"a": str(tmp_path / "a")})) == []


def test_replicas_are_called_by_the_shortest_names_that_differ() -> None:
    assert directory_names(["/x/b1/log", "/x/b2/log"]) == ["b1/log", "b2/log"]
    assert directory_names(["/x/one", "/y/two"]) == ["one", "two"]


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="names no log directory"):
        BatchesDataSource({}).reader(None)
    with pytest.raises(ValueError, match="name each path once"):
        BatchesDataSource({"path": "a,b", "names": "x"}).reader(None)


def test_the_arrow_schema_is_the_declared_one() -> None:
    assert arrow_schema().names[:4] == ["replica", "topic", "partition", "log_start_offset"]
