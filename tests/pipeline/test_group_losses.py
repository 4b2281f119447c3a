"""The audit's report of groups that had committed past a truncation, in Spark."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from replication.events import LogTruncated
from replication.groups.rules.records import OffsetCommitValue, offset_record, offset_tombstone
from replication.observe.journal import JournalWriter
from storage.batch.records import Record, encode_batch
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.pipeline.replicas import batch, write_replica

pytestmark = pytest.mark.spark

TP = TopicPartition("t", 0)


def commits(*given: tuple[str, int, int, int]) -> bytes:
    """A batch of commits: group, offset, epoch, milliseconds; with a tombstone and garbage."""
    records = []
    for group, offset, epoch, at_ms in given:
        value = OffsetCommitValue(
            offset=offset, leader_epoch=epoch, metadata="", commit_timestamp=at_ms
        )
        made = offset_record(group, TP, value)
        records.append(Record(timestamp=at_ms, key=made.key, value=made.value))
    gone = offset_tombstone("gone", TP)
    records += [Record(timestamp=1, key=gone.key, value=None), Record(timestamp=1, key=b"\0\7x")]
    return encode_batch(records, base_offset=0, leader_epoch=0)


def run(*arguments: str) -> dict[str, Any]:
    from click.testing import CliRunner

    from replication.cli import group

    done = CliRunner().invoke(group, ["pipeline", "audit", *arguments])
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.deep
def test_groups_are_reported_by_epochs_and_by_journals(spark: Any, tmp_path: Path) -> None:
    old = [batch(0, b"a", b"b"), batch(2, b"c", b"d", leader_epoch=1)]
    new = [old[0], batch(2, b"C", leader_epoch=2)]
    write_replica(tmp_path / "a", "t-0", *old)
    write_replica(tmp_path / "b", "t-0", *new)
    given = commits(
        ("ahead", 4, 1, 100), ("ahead", 2, 0, 900), ("fine", 2, 0, 100), ("old", 4, -1, 100)
    )
    for name in "ab":
        write_replica(tmp_path / name, "__consumer_offsets-7", given)
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    found = run(*paths, "--output", "json")["groups"]
    assert found == [
        {
            "group": "ahead", "topic": "t", "partition": 0, "committed_offset": 4,
            "committed_epoch": 1, "committed_ms": 100, "truncated_at": 2, "leader_epoch": 2,
            "truncated_ms": None, "broker": None, "evidence": "leader epochs",
        }
    ]  # fmt: skip
    event = LogTruncated(
        partition=TP,
        from_offset=4,
        to_offset=2,
        high_watermark=4,
        cause="diverging epoch",
        leader_epoch=2,
    )
    writer = JournalWriter.open(OsFileSystem(), str(tmp_path / "events.journal"))
    writer.write(event, at_ms=500, broker=1)
    writer.close()
    page = tmp_path / "audit.html"
    more = run(*paths, "--journal", str(tmp_path), "--output", "json", "--output", str(page))[
        "groups"
    ]
    assert [(each["group"], each["evidence"], each["broker"]) for each in more] == [
        ("ahead", "leader epochs", 1),
        ("old", "journal", 1),
    ]
    assert [each["truncated_ms"] for each in more] == [500, 500]
    assert "Consumer groups that had committed past a truncation" in page.read_text()


def test_without_commits_it_says_that_it_has_not_looked(spark: Any, tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x"))
    assert run(str(tmp_path / "a"), "--output", "json")["groups"] is None


@pytest.mark.deep
@pytest.mark.client
def test_an_unclean_election_costs_a_group_what_it_had_committed(
    spark: Any, tmp_path: Path
) -> None:
    pytest.importorskip("confluent_kafka", reason="produces and commits")
    from tests.pipeline.unclean_run import run as unclean

    left = unclean(tmp_path)
    found = run(*left.log_dirs, "--journal", str(tmp_path), "--output", "json")
    (loss,) = found["groups"]
    assert (loss["group"], loss["topic"], loss["committed_offset"]) == ("readers", "orders", 10)
    assert (loss["truncated_at"], loss["broker"]) == (5, left.victim)
    assert loss["leader_epoch"] > loss["committed_epoch"]
    assert loss["committed_ms"] <= loss["truncated_ms"] <= time.time() * 1000
