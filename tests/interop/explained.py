"""The report of a mixed run: its page explains every election and every truncation.

It is made of the journals of our brokers, and of a copy of the metadata log of either controller.
What has to be on the page is read from the same files without the report's rules:

    elections     the records of the metadata log that name a leader
    truncations   `log_truncated` in the journals
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.journals.changes import NOT_SAID
from replication.cli import group
from replication.events import LogTruncated
from replication.observe.journal import journal_files, read_journal
from replication.wire.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
)
from storage.batch.record_batch import walk
from storage.batch.records import decode_batch
from storage.filesystem import OsFileSystem
from tests.interop.kafka import Kafka

LED = re.compile(r"b(\d+) leads (\S+) in epoch \d+.*?, isr [b\d ]+: (\S[^<\n]+)")
CUT = re.compile(r"b(\d+): truncates (\S+) from (\d+) to (\d+) in leader epoch \d+: (\S[^<\n]+)")


def check_explained(kafka: Kafka, directory: Path) -> int:
    """Make the report of a cluster whose brokers have ended, and check it; return its truncations."""
    ours = [each for each in kafka.broker_ids if each in kafka.ours]
    metadata = kafka.log_dirs[ours[0]] / "__cluster_metadata-0"
    journals = [kafka.journals[each] for each in ours]
    file = directory / "failover.html"
    arguments = [*map(str, journals), str(metadata), "--internal", "--output", str(file)]
    done = CliRunner().invoke(group, ["pipeline", "failover", *arguments])
    assert done.exit_code == 0, done.output
    page = html.unescape(file.read_text())
    assert NOT_SAID not in page
    assert "are left out" not in page
    elections = Counter((name, int(leader)) for leader, name, _ in LED.findall(page))
    assert elections == Counter(elections_in(metadata))
    cut = Counter(
        (int(broker), name, int(first), int(last))
        for broker, name, first, last, _ in CUT.findall(page)
    )
    assert cut == Counter(truncations_in(journals))
    return cut.total()


def elections_in(metadata: Path) -> Iterator[tuple[str, int]]:
    """Yield the partition and the leader of each record that names one."""
    names: dict[bytes, str] = {}
    for record in records_in(metadata):
        match record:
            case TopicRecord():
                names[record.topic_id] = record.name
            case PartitionRecord() | PartitionChangeRecord() if record.leader >= 0:
                yield f"{names[record.topic_id]}-{record.partition_id}", record.leader
            case _:
                pass


def records_in(metadata: Path) -> Iterator[MetadataRecord]:
    for segment in sorted(metadata.glob("*.log")):
        view = memoryview(segment.read_bytes())
        for position, header in walk(view):
            if not header.is_control:
                for each in decode_batch(view[position : position + header.size]):
                    yield decode_record(each.value or b"")


def truncations_in(journals: list[Path]) -> Iterator[tuple[int, str, int, int]]:
    for journal in journals:
        for file in journal_files(OsFileSystem(), str(journal)):
            for entry in read_journal(Path(file).read_bytes()).entries:
                event = entry.event
                if isinstance(event, LogTruncated):
                    where = str(event.partition)
                    yield entry.broker, where, event.from_offset, event.to_offset
