"""Log directories that our storage has written, and the slow reading of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.source.columns import formats_for, names_for
from pipeline.source.options import parse_read_options
from pipeline.source.reader import RecordsReader
from storage.batch.compression import Codec
from storage.batch.record_batch import read_header, walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.config import LogConfig
from storage.log.log import Log
from storage.tools.standalone import open_log_directory
from storage.types import TopicId, TopicPartition

TP = TopicPartition("t", 0)
FIRST_MS = 1_700_000_000_000
WALL_MS = FIRST_MS + 10_000_000
TOPIC_ID: TopicId = bytes(range(16))
# Every kind of batch in several segments, each with entries in its index.
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=4096)
CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.NONE, Codec.SNAPPY, Codec.ZSTD)


def records_at(number: int, count: int = 3) -> list[Record]:
    """No two the same; nulls and headers among them, a second apart."""
    return [
        Record(
            timestamp=FIRST_MS + 1000 * (number + each),
            key=None if (number + each) % 3 == 0 else b"k%d" % (number + each),
            value=None if (number + each) % 7 == 0 else b"v" * ((number + each) % 40),
            headers=(("h", b"%d" % number), ("", None)) if (number + each) % 5 == 0 else (),
        )
        for each in range(count)
    ]


def append(log: Log, encoded: bytes, *, epoch: int = 1) -> int:
    """As its leader; the offset after it."""
    log.append_as_leader(
        memoryview(bytearray(encoded)), leader_epoch=epoch, wall_ms=WALL_MS, from_client=False
    )
    return log.log_end_offset


def in_transaction(producer: int, number: int) -> bytes:
    return encode_batch(
        records_at(number, 2),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def ended(producer: int, kind: ControlRecordType) -> bytes:
    marker = EndTransactionMarker(kind, coordinator_epoch=0)
    return encode_control_batch(marker, timestamp=0, producer_id=producer, producer_epoch=0)


def write_log(
    directory: Path, batches: int = 40, *, tp: TopicPartition = TP, config: LogConfig = SMALL
) -> Path:
    """A log directory whose log of `tp` is of many small segments."""
    directory.mkdir(parents=True, exist_ok=True)
    with open_log_directory(directory, config=config, node_id=1) as logs:
        log = logs.get_or_create(tp, topic_id=TOPIC_ID)
        for number in range(batches):
            codec = CODECS[number % len(CODECS)]
            append(log, encode_batch(records_at(3 * number), codec=codec), epoch=number // 10)
        log.update_high_watermark(log.log_end_offset)
    return directory


def write_records(
    directory: Path, count: int, *, tp: TopicPartition = TP, topic_id: TopicId = TOPIC_ID
) -> None:
    """Append `count` records to the log of `tp`, a batch each."""
    directory.mkdir(exist_ok=True)
    with open_log_directory(directory, config=SMALL, node_id=1) as logs:
        log = logs.get_or_create(tp, topic_id=topic_id)
        for _ in range(count):
            append(log, encode_batch(records_at(log.log_end_offset, 1)))


def segments(directory: Path, tp: TopicPartition = TP) -> list[Path]:
    return sorted((directory / str(tp)).glob("*.log"))


def every_record(directory: Path, tp: TopicPartition = TP) -> Iterator[tuple[Any, Record]]:
    """The slow way, a record at a time, with its batch's header; control records left out."""
    for path in segments(directory, tp):
        data = path.read_bytes()
        for position, header in walk(data):
            if not header.is_control:
                batch = data[position : position + header.size]
                yield from ((read_header(batch), record) for record in decode_batch(batch))


def read(options: Mapping[str, str], columns: str | None = None) -> list[dict[str, Any]]:
    """The rows that the source gives, without Spark: planned, then read task by task."""
    return [row for task in read_tasks(options, columns) for row in task]


def read_tasks(
    options: Mapping[str, str], columns: str | None = None
) -> list[list[dict[str, Any]]]:
    parsed = parse_read_options(options, streaming=False)
    formats = formats_for(parsed)
    names = columns.split() if columns else names_for(parsed, formats)
    return rows_of(RecordsReader(parsed, names, formats))


def rows_of(reader: RecordsReader) -> list[list[dict[str, Any]]]:
    return [
        [row for batch in reader.read(task) for row in batch.to_pylist()]
        for task in reader.partitions()
    ]
