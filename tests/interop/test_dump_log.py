"""kafka-dump-log over files that we wrote, and ours over the same: the same lines."""

import re
from pathlib import Path

import attrs
import pytest

from storage.filesystem import OsFileSystem
from storage.tools.dump import DumpOptions, dump, is_damage
from storage.tools.dump.text import Findings, TextOptions, line
from tests.interop import tools
from tests.interop.written import Written, topics_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DUMPED = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")


def files_of(log_dir: Path, topic: str) -> list[Path]:
    found = [
        path
        for directory in sorted(log_dir.glob(f"{topic}-*"))
        for path in sorted(directory.iterdir())
        if path.suffix in DUMPED
    ]
    assert found, topic
    return found


def our_dump(files: list[Path]) -> tuple[list[str], list[str]]:
    """The lines of standard output, and of standard error."""
    lines, findings = [], Findings()
    for entry in dump(OsFileSystem(), map(str, files), DumpOptions(deep_iteration=True)):
        assert not is_damage(entry), str(entry)
        findings.note(entry)
        if (text := line(entry, TextOptions(print_data_log=True))) is not None:
            lines += text.splitlines()
    return lines, list(findings.lines())


def kafkas_dump(files: list[Path], *flags: str) -> tools.ToolResult:
    done = tools.try_tool(tools.DUMP_LOG, "--files", ",".join(map(str, files)), *flags)
    assert done.exit_code == 0, done.errors
    return attrs.evolve(done, errors=without_first_offsets(done.errors))


def without_first_offsets(errors: str) -> str:
    """Leave out that a segment begins after offset 0, which Kafka reports since 4.2."""
    return re.sub(r"Non-consecutive offsets in .*\n(?:  -1 is followed by .*\n)+(?!  )", "", errors)


@pytest.mark.parametrize("name", list(topics_of("ours")))
def test_records_and_indexes_are_dumped_alike(ours: Written, name: str) -> None:
    files = files_of(ours.clean, topics_of("ours")[name].topic)
    done = kafkas_dump(files, "--print-data-log")
    lines, findings = our_dump(files)
    assert done.output.splitlines() == lines
    assert done.errors.splitlines() == findings == []


def test_kafka_finds_every_index_sane(ours: Written) -> None:
    files = [
        path
        for tp in topics_of("ours").values()
        for path in files_of(ours.clean, tp.topic)
        if path.suffix in (".index", ".timeindex")
    ]
    done = kafkas_dump(files, "--index-sanity-check")
    assert done.errors == ""
    passed = done.output.count("passed sanity check") + done.output.count("is empty")
    assert passed == len(files)
    assert kafkas_dump(files, "--verify-index-only").errors == ""


def test_the_internal_topics_are_in_kafkas_format(ours: Written) -> None:
    offsets = [path for path in files_of(ours.clean, "__consumer_offsets") if path.stat().st_size]
    logs = [path for path in offsets if path.suffix == ".log"]
    done = kafkas_dump(logs, "--offsets-decoder", "--print-data-log")
    assert done.errors == ""
    assert '"group":"ours","topic":"ours-codecs","partition":0' in done.output
    states = [
        path
        for path in files_of(ours.clean, "__transaction_state")
        if path.suffix == ".log" and path.stat().st_size
    ]
    done = kafkas_dump(states, "--transaction-log-decoder", "--print-data-log")
    assert done.errors == ""
    assert '"transactionalId":"ours-transactions-1"' in done.output
