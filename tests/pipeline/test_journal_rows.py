"""Journal files as rows, without Spark."""

import os
from pathlib import Path
from typing import Any

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.journals.rows import DAMAGED, SKIPPED, NoJournalError, find_journals, rows_of
from replication.events import EVENTS, BrokerFenced, Event, IsrChanged, TopicDeleted
from replication.observe.journal import FILE_HEADER, MOST_BYTES, JournalWriter, frame
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.replication.observe.golden import sample

DISK = OsFileSystem()
CHANGED = IsrChanged(
    partition=TopicPartition("t", 3), leader_epoch=1, partition_epoch=7, isr=(1, 2)
)
FENCED = BrokerFenced(broker=2, broker_epoch=17, cause="session expired", since_heartbeat_ms=9)


def write(directory: Path, *events: Event, file_bytes: int = 1 << 20) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    writer = JournalWriter.open(DISK, str(directory / "events.journal"), file_bytes=file_bytes)
    for at_ms, event in enumerate(events):
        writer.write(event, at_ms=at_ms, broker=4)
    writer.close()


def rows(*paths: Path) -> list[dict[str, Any]]:
    found = rows_of(DISK, find_journals(DISK, [str(path) for path in paths]))
    return [row for batch in found for row in batch.to_pylist()]


def test_an_event_is_a_row_with_its_fields_as_columns(tmp_path: Path) -> None:
    write(tmp_path, CHANGED, FENCED, TopicDeleted(topic="gone", topic_id=b"1" * 16))
    changed, fenced, deleted = rows(tmp_path)
    assert (changed["name"], changed["topic"], changed["partition"]) == ("isr_changed", "t", 3)
    assert (changed["node"], changed["at_ms"], changed["isr"]) == (4, 0, [1, 2])
    assert changed["broker"] is None
    assert (fenced["broker"], fenced["cause"], fenced["since_heartbeat_ms"]) == (
        (2, "session expired", 9)
    )
    assert (deleted["topic"], deleted["partition"]) == ("gone", None)


def test_every_journal_below_a_directory_is_found_with_all_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "broker-1", *[CHANGED] * 20, file_bytes=500)
    write(tmp_path / "controller", FENCED)
    (tmp_path / "other").mkdir()
    assert len(rows(tmp_path)) == 21
    assert len(rows(tmp_path / "broker-1")) == 20
    assert len(rows(tmp_path / "broker-1" / "events.journal")) == 20
    assert len(rows(tmp_path, tmp_path / "controller")) == 21
    with pytest.raises(NoJournalError, match=r"no events\.journal in"):
        rows(tmp_path / "other")
    with pytest.raises(NoJournalError, match="is not there"):
        rows(tmp_path / "nowhere")


def test_spark_is_not_asked_for_journals_that_are_not_there(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
    from pipeline.journals.source import read_events

    no_session: Any = None
    with pytest.raises(NoJournalError, match="is not there"):
        read_events(no_session, [str(tmp_path / "nowhere")])


def test_unreadable_events_become_rows_of_their_own(tmp_path: Path) -> None:
    newer = msgpack.packb(["isr_changed", 99, 5, 4, {"isr": "?"}])
    older = msgpack.packb(["isr_changed", 1, 6, 4, {"partition": ["t", 0], "isr": [1]}])
    content = FILE_HEADER + frame(newer) + frame(older)
    (tmp_path / "events.journal.00000001").write_bytes(content + b"garbage")
    (tmp_path / "events.journal").write_bytes(content + b"torn")
    found = [(row["name"], row["cause"]) for row in rows(tmp_path)]
    assert found == [
        (SKIPPED, "isr_changed v99"),
        ("isr_changed", None),
        (DAMAGED, f"7 bytes of {tmp_path}/events.journal.00000001 cannot be read"),
        (SKIPPED, "isr_changed v99"),
        ("isr_changed", None),
    ]


def test_a_file_that_is_no_journal_is_damage_with_its_cause(tmp_path: Path) -> None:
    write(tmp_path / "a", FENCED)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "events.journal").symlink_to(tmp_path / "a" / "events.journal")
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "events.journal")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "events.journal").touch()
    os.truncate(tmp_path / "d" / "events.journal", 8 << 30)
    found = rows(tmp_path)
    assert [row["name"] for row in found] == ["broker_fenced", DAMAGED, DAMAGED, DAMAGED]
    assert [row["cause"].split(": ", 1)[1] for row in found[1:]] == [
        "a symbolic link, not a file",
        "not a regular file",
        f"{8 << 30} bytes; a journal has at most {MOST_BYTES}",
    ]
    with pytest.raises(OSError, match="a journal has at most"):
        write(tmp_path / "d", FENCED)


def test_every_event_is_a_row_whatever_its_fields_are_called(tmp_path: Path) -> None:
    """The leader of a group is a member, not a broker."""
    write(tmp_path, *map(sample, EVENTS))
    found = rows(tmp_path)
    assert [row["name"] for row in found] == [event.name for event in EVENTS]
    by_name = {row["name"]: row for row in found}
    assert by_name["group_stabilized"]["leader"] is None
    assert by_name["leader_elected"]["leader"] is not None
