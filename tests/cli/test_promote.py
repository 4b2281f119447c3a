"""`understudy promote`: the offsets that were not copied, and its progress on a terminal."""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from replication.cli import group, progress, promote as command
from replication.cli.progress import Bar
from replication.mirror.options import NODE_ID
from replication.mirror.state import (
    LOG_DIRECTORY,
    CopiedPartition,
    CopiedTopic,
    CopyState,
    read_state,
    write_state,
)
from storage.batch.records import Record
from storage.filesystem import OsFileSystem
from storage.tools.standalone import append_records, open_log_directory
from storage.types import TopicPartition
from tests.cli.test_output import Terminal

PARTITIONS = 3
TOPIC_ID = b"1" * 16


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy whose source does not answer any more."""
    logs = tmp_path / LOG_DIRECTORY
    logs.mkdir(parents=True)
    with open_log_directory(logs, node_id=NODE_ID) as opened:
        for number in range(PARTITIONS):
            log = opened.get_or_create(TopicPartition("t", number), TOPIC_ID)
            append_records(log, [Record(value=b"v", timestamp=1)])
    known = CopiedPartition(leader_epoch=7, log_end_offset=1, source_end=5)
    topic = CopiedTopic(
        topic_id=TOPIC_ID, configs={}, partitions=dict.fromkeys(range(PARTITIONS), known)
    )
    state = CopyState(
        cluster_id="c", bootstrap_servers="127.0.0.1:1", heard_ms=0, topics={"t": topic}
    )
    write_state(OsFileSystem(), str(tmp_path), state)
    return tmp_path


def test_offsets_not_copied_are_shown_and_nothing_is_changed_without_execute(copy: Path) -> None:
    before = read_state(OsFileSystem(), str(copy))
    shown = CliRunner().invoke(group, ["promote", str(copy), "--offline"])
    assert shown.exit_code == 0
    *table, said = shown.stdout.splitlines()
    rows = [line.split() for line in table]
    assert rows == [
        ["PARTITION", "COPIED-TO", "SOURCE-END", "NOT-COPIED", "EPOCH", "NEW-EPOCH", "OPEN-TXNS"],
        *([f"t-{number}", "1", "5", "4", "7", "107", "0"] for number in range(PARTITIONS)),
    ]
    assert said.startswith("12 offsets of the source were not copied (source asked: as of 1970-")
    assert shown.stderr == "Nothing was changed; add --execute to do it.\n"
    assert read_state(OsFileSystem(), str(copy)) == before


def promote(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SOURCE_TIMEOUT_MS", 300)
    group.main(["promote", str(copy), "--execute"], standalone_mode=False)
    state = read_state(OsFileSystem(), str(copy))
    assert state is not None
    assert state.promoted


def test_a_long_promotion_has_a_bar_on_a_terminal_and_none_in_a_pipe(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    # Whatever it does lasts as long as is shown.
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
    before = read_state(OsFileSystem(), str(copy))
    assert before is not None
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        write_state(OsFileSystem(), str(copy), before)
        monkeypatch.setattr(sys, "stderr", stream)
        promote(copy, monkeypatch)
        assert ("asking the source" in stream.getvalue()) == shown


def test_every_step_of_a_promotion_is_shown(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    class Telling(Bar):
        def say(self, what: str) -> None:
            if what not in found:  # it is asked for as long as it does not answer
                found.append(what)

        def update(self, done: int, total: int | None = None) -> None:
            found.append((done, total))

    @contextmanager
    def telling(what: str) -> Iterator[Bar]:
        yield Telling(what, is_seen=True, now=time.monotonic)

    monkeypatch.setattr(command, "progress", telling)
    promote(copy, monkeypatch)
    partitions = [(done, PARTITIONS) for done in range(PARTITIONS)]
    assert found == [
        "asking the source",
        "opening logs",
        *partitions,
        "aborting open transactions",
        *partitions,
        "writing the metadata",
        "closing logs",
    ]
