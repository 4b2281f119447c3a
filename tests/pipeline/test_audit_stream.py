"""The audit as a stream says what the batch audit says, as replicas grow and after restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from tests.pipeline.replicas import batch, write_replica

pytestmark = pytest.mark.spark

A, B, C = batch(0, b"a"), batch(1, b"b", b"c"), batch(3, b"d")
OTHER = batch(1, b"x", b"y")


def directories(tmp_path: Path) -> dict[str, str]:
    return {name: str(tmp_path / name) for name in "ab"}


def streamed(spark: Any, tmp_path: Path) -> tuple[dict[str, Any], list[list[str]]]:
    """Run once; return the audits by partition, and what each micro-batch judged anew."""
    from pipeline.audit.job import audit, of_directories
    from pipeline.audit.streaming import audit_stream

    heard: list[list[str]] = []
    found = audit_stream(
        spark,
        directories(tmp_path),
        tmp_path / "checkpoint",
        on_report=lambda _, anew: heard.append([str(each.topic_partition) for each in anew]),
    )
    assert found == audit(of_directories(spark, directories(tmp_path))), "as the batch audit"
    return {str(each.topic_partition): each for each in found}, heard


@pytest.mark.deep
def test_each_run_judges_what_is_new_and_says_what_the_batch_audit_says(
    spark: Any, tmp_path: Path
) -> None:
    for name in "ab":
        write_replica(tmp_path / name, "same-0", A)
        write_replica(tmp_path / name, "behind-0", A)
        write_replica(tmp_path / name, "bytes-0", A)
        write_replica(tmp_path / name, "idle-0", A, B)
    write_replica(tmp_path / "a", "alone-0", A)
    found, heard = streamed(spark, tmp_path)
    assert {each.result for each in found.values()} == {"same", "alone"}
    for name, own in (("a", B), ("b", OTHER)):
        write_replica(tmp_path / name, "same-0", A, B)
        write_replica(tmp_path / name, "bytes-0", A, own)
    write_replica(tmp_path / "a", "behind-0", A, B)
    found, heard = streamed(spark, tmp_path)
    assert sorted(heard[0]) == ["behind-0", "bytes-0", "same-0"], "and not what has not changed"
    assert (found["same-0"].batches, found["same-0"].end_offset) == (2, 3)
    assert (found["behind-0"].difference, found["bytes-0"].difference) == ("missing tail", "bytes")
    assert found["bytes-0"].offset == 1
    # A replica that comes later is alike again; one that was rewritten is not.
    write_replica(tmp_path / "a", "behind-0", A, B, C)
    write_replica(tmp_path / "b", "behind-0", A, B, C)
    found, heard = streamed(spark, tmp_path)
    assert heard == [["behind-0"]]
    assert (found["behind-0"].result, found["bytes-0"].result) == ("same", "different")
    assert streamed(spark, tmp_path)[1] == [], "a run without news judges nothing"


def test_the_command_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from replication.cli import group

    for name in "ab":
        write_replica(tmp_path / name, "t-0", A)
    arguments = ["pipeline", "audit", *directories(tmp_path).values(), "--output", "json"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    first = CliRunner().invoke(group, arguments)
    assert first.exit_code == 0, first.output
    write_replica(tmp_path / "a", "t-0", A, B)
    write_replica(tmp_path / "b", "t-0", A, OTHER)
    second = CliRunner().invoke(group, arguments)
    assert second.exit_code == 1, second.output
    (partition,) = json.loads(second.stdout)["partitions"]
    assert (partition["difference"], partition["offset"]) == ("bytes", 1)
    elsewhere = ["pipeline", "audit", str(tmp_path / "a"), *arguments[4:]]
    refused = CliRunner().invoke(group, elsewhere)
    assert refused.exit_code == 2
    assert "is the report of a, b" in refused.stderr.splitlines()[-1]


@pytest.mark.deep
def test_it_follows_replicas_that_grow(spark: Any, tmp_path: Path) -> None:
    """Continuous micro-batches, in a query that another thread stops."""
    import threading
    import time

    from pipeline.audit.streaming import audit_stream

    for name in "ab":
        write_replica(tmp_path / name, "t-0", A)
    heard: list[dict[str, str]] = []

    def run() -> None:
        audit_stream(
            spark,
            directories(tmp_path),
            tmp_path / "checkpoint",
            follow=True,
            settle_ms=1000,
            on_report=lambda _, anew: heard.append({each.topic: each.result for each in anew}),
        )

    def wait_for(result: str) -> None:
        deadline = time.monotonic() + 120
        while not (heard and heard[-1].get("t") == result):
            assert time.monotonic() < deadline, heard
            time.sleep(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for("same")
        write_replica(tmp_path / "a", "t-0", A, B)
        wait_for("different")  # once b has lacked it for a second
        write_replica(tmp_path / "b", "t-0", A, B, C)
        write_replica(tmp_path / "a", "t-0", A, B, C)
        wait_for("same")
    finally:
        for query in spark.streams.active:
            query.stop()
        thread.join()
