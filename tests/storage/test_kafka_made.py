"""Apache Kafka's own files: opened, read, kept as they are, and made again byte for byte."""

import shutil
from pathlib import Path

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import read_header
from storage.batch.records import Record, decode_batch
from storage.config import LogConfig
from storage.filesystem import OsFileSystem
from storage.log.file_region import FileRegion
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition
from tests.storage.logs import headers, started

KAFKA_MADE = Path(__file__).parent / "kafka_made"
CODECS, TRANSACTIONS = TopicPartition("codecs", 0), TopicPartition("transactions", 0)
BROKER_EPOCH = 2461
PARTITION_FILES = [
    path.relative_to(KAFKA_MADE) for path in sorted(KAFKA_MADE.glob("*-0/*")) if path.is_file()
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    copy = tmp_path / "log"
    shutil.copytree(KAFKA_MADE, copy)
    return copy


def opened(directory: Path) -> LogManager:
    config = LogConfig(index_interval_bytes=200)
    return started(OsFileSystem(), str(directory), config=config)


def log_of(logs: LogManager, partition: TopicPartition) -> Log:
    log = logs.get(partition)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    return log


def region(log: Log, offset: int = 0) -> FileRegion:
    data = log.read(offset, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True).records
    assert data is not None
    return data


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    while (offset := found[-1].offset + 1 if found else 0) < log.log_end_offset:
        data = memoryview(region(log, offset).read())
        while data:
            size = read_header(data).size
            found += decode_batch(data[:size])
            data = data[size:]
    return found


def test_a_directory_that_kafka_shut_down_needs_no_recovery(directory: Path) -> None:
    logs = LogManager(OsFileSystem(), [str(directory)], node_id=1)
    reports = logs.startup()
    assert (logs.clean, logs.previous_broker_epoch) == (True, BROKER_EPOCH)
    assert [
        (report.topic_partition, report.segments_recovered, report.log_end_offset)
        for report in sorted(reports, key=lambda each: each.topic_partition)
    ] == [(CODECS, 0, 50), (TRANSACTIONS, 0, 146)]
    logs.close_uncleanly()


def test_every_codec_is_read_as_it_was_sent(directory: Path) -> None:
    logs = opened(directory)
    log = log_of(logs, CODECS)
    assert {header.codec for header in headers(log)} == set(Codec)
    assert [(each.key, each.value, each.timestamp, each.headers) for each in records(log)] == [
        (
            None if index % 4 == 0 else f"k{index}".encode(),
            f"value {index} ".encode() * 10,
            1_700_000_000_000 + 1000 * index,
            (("h", b"1"),) if index % 5 == 0 else (),
        )
        for _ in Codec
        for index in range(10)
    ]
    logs.close_uncleanly()


@pytest.mark.parametrize("partition", [CODECS, TRANSACTIONS])
def test_every_index_entry_leads_to_its_batch(directory: Path, partition: TopicPartition) -> None:
    logs = opened(directory)
    log = log_of(logs, partition)
    for segment in log.segments:
        at = dict(segment.headers())
        entries = list(segment.offset_index.entries())
        assert entries
        for entry in entries:
            assert at[entry.position].last_offset == entry.offset
    logs.close_uncleanly()


def test_transactions_are_where_kafka_left_them(directory: Path) -> None:
    logs = opened(directory)
    log = log_of(logs, TRANSACTIONS)
    assert (log.last_stable_offset, log.log_end_offset) == (126, 146)
    (producer,) = log.producers.producers.values()
    assert producer.transaction_first_offset == 126
    assert [each.last_offset for each in producer.batches] == [145]  # snapshots keep no more
    markers = [header.base_offset for header in headers(log) if header.is_control]
    assert markers == [20, 41, 62, 83, 104, 125]
    logs.close_uncleanly()


def test_opening_and_closing_changes_no_byte(directory: Path) -> None:
    logs = opened(directory)
    logs.shutdown(BROKER_EPOCH)
    for path in PARTITION_FILES:
        assert (directory / path).read_bytes() == (KAFKA_MADE / path).read_bytes(), path
    assert sorted(directory.glob("*-0/*")) == [directory / path for path in PARTITION_FILES]


def test_recovery_makes_the_indexes_that_kafka_made(directory: Path) -> None:
    """As if the node had been killed, and its indexes were not worth a look."""
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    for path in PARTITION_FILES:
        if path.suffix in {".index", ".timeindex", ".txnindex"}:
            (directory / path).unlink()
    logs = opened(directory)
    assert not logs.clean
    logs.shutdown(BROKER_EPOCH)
    for path in PARTITION_FILES:
        assert (directory / path).read_bytes() == (KAFKA_MADE / path).read_bytes(), path
