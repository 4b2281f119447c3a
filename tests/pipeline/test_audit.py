"""The audit says where replicas part, from headers alone."""

from pathlib import Path
from typing import Any

import pytest

from replication.verify import verify_directories
from storage.filesystem import OsFileSystem
from tests.pipeline.replicas import batch, write_replica, write_segment

pytestmark = pytest.mark.spark


def audit(spark: Any, tmp_path: Path) -> dict[str, Any]:
    """The audit of `a`, `b` and, where it is there, `c`, by partition."""
    from pipeline.audit import audit_directories

    names = [name for name in "abc" if (tmp_path / name).exists()]
    found = audit_directories(spark, [str(tmp_path / name) for name in names], names)
    return {f"{row.topic}-{row.partition}": row for row in found}


def test_equal_logs_are_the_same_wherever_their_segments_end(spark: Any, tmp_path: Path) -> None:
    batches = [batch(0, b"x", b"y"), batch(2, b"z")]
    write_replica(tmp_path / "a", "t-0", *batches)
    write_segment(tmp_path / "b", "t-0", 0, batches[0])
    write_segment(tmp_path / "b", "t-0", 2, batches[1])
    row = audit(spark, tmp_path)["t-0"]
    assert (row.same, row.log_start_offset, row.log_end_offset, row.batches) == (True, 0, 3, 2)


def test_every_way_to_part_is_found_at_its_first_offset(spark: Any, tmp_path: Path) -> None:
    common = batch(0, b"x")
    divergent = {
        "epoch-0": ([common, batch(1, b"y", leader_epoch=1)], [common, batch(1, b"y")]),
        "bytes-0": ([common, batch(1, b"y")], [common, batch(1, b"z")]),
        "tail-0": ([common, batch(1, b"y")], [common]),
        "gap-0": ([common, batch(1, b"y"), batch(2, b"z")], [common, batch(2, b"z")]),
        "shape-0": ([common, batch(1, b"y", b"z")], [common, batch(1, b"y"), batch(2, b"z")]),
    }
    for partition, (ours, theirs) in divergent.items():
        write_replica(tmp_path / "a", partition, *ours)
        write_replica(tmp_path / "b", partition, *theirs)
    found = audit(spark, tmp_path)
    assert {name: row.first_divergent_offset for name, row in found.items()} == dict.fromkeys(
        divergent, 1
    )
    comparison = verify_directories(OsFileSystem(), [str(tmp_path / "a"), str(tmp_path / "b")])
    assert {str(one.partition): one.offset for one in comparison.differences} == dict.fromkeys(
        divergent, 1
    )
    assert found["epoch-0"].leader_epochs == {"a": 1, "b": 0}
    assert found["tail-0"].leader_epochs == {"a": 0}


def test_what_retention_has_deleted_on_one_is_not_compared(spark: Any, tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"old"), batch(1, b"x"))
    write_segment(tmp_path / "b", "t-0", 1, batch(1, b"x"))
    row = audit(spark, tmp_path)["t-0"]
    assert (row.same, row.log_start_offset) == (True, 1)


def test_an_empty_replica_lacks_everything(spark: Any, tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x"))
    write_replica(tmp_path / "b", "t-0", batch(0, b"x"))
    write_replica(tmp_path / "c", "t-0")
    row = audit(spark, tmp_path)["t-0"]
    assert (row.same, row.first_divergent_offset, row.replicas) == (False, 0, ["a", "b", "c"])


def test_replicas_that_are_all_empty_are_the_same(spark: Any, tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0")
    write_replica(tmp_path / "b", "t-0")
    row = audit(spark, tmp_path)["t-0"]
    assert (row.same, row.batches, row.log_end_offset) == (True, 0, 0)


def test_the_command_prints_it_and_its_exit_code_tells(spark: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from replication.cli import group

    write_replica(tmp_path / "a", "t-0", batch(0, b"x"))
    write_replica(tmp_path / "b", "t-0", batch(0, b"y"))
    arguments = ["pipeline", "audit", str(tmp_path / "a"), str(tmp_path / "b")]
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 1
    assert result.output == "t-0 differs at offset 0 of [0, 1): a e0, b e0\n"
