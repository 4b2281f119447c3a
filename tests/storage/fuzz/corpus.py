"""Real files to mutate: those that Apache Kafka left behind, and those that our own log writes."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import attrs

from storage.batch.compression import Codec
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.types import TopicPartition
from tests.storage.logs import WALL_MS, new_disk, started

KAFKA_MADE = Path(__file__).parent.parent / "kafka_made"
OURS = TopicPartition("ours", 0)


@attrs.frozen
class RealFile:
    """`directory/name` of a log directory, and what it held."""

    origin: str
    directory: str
    name: str
    data: bytes = attrs.field(repr=False)

    @property
    def kind(self) -> str:
        """What it is a file of: its suffix, or its name."""
        return os.path.splitext(self.name)[1] or self.name


def put(file_system: FileSystem, path: str, data: bytes) -> None:
    """A file with just `data` in it, and its directory."""
    file_system.make_directory(os.path.dirname(path))
    file = file_system.open(path, create=True)
    file.truncate(0)
    file.write(0, data)
    file.close()


@cache
def log_directory(origin: str) -> Mapping[str, bytes]:
    """Every file of one log directory by its path inside."""
    return dict(_kafka_made() if origin == "kafka" else _our_own())


@cache
def real_files(*kinds: str) -> list[RealFile]:
    """Return the files of `kinds` in both log directories; all where none is named."""
    found = [
        RealFile(origin, *os.path.split(path), data)
        for origin in ("kafka", "ours")
        for path, data in log_directory(origin).items()
    ]
    return [each for each in found if not kinds or each.kind in kinds]


def _kafka_made() -> Iterator[tuple[str, bytes]]:
    for path in sorted(KAFKA_MADE.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            yield str(path.relative_to(KAFKA_MADE)), path.read_bytes()
    # Kafka's was taken before its shutdown had ended; this is what it writes there.
    yield ".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":2461}'


def _our_own() -> Iterator[tuple[str, bytes]]:
    disk = new_disk()
    logs = started(disk, cluster_id="c")
    log = logs.get_or_create(OURS, bytes(range(16)))
    for index in range(60):
        _append(log, index)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(3)
    logs.checkpoint_high_watermarks({log: log.high_watermark})
    logs.shutdown(7)
    for directory in ("", f"{OURS}/"):
        for name in disk.list_directory(f"/d/{directory}"):
            path = f"/d/{directory}{name}"
            if not disk.is_directory(path) and name != ".lock":
                file = disk.open_for_reading(path)
                yield f"{directory}{name}", file.read(0, file.size())


def _append(log: Log, index: int) -> None:
    """Every codec, nulls, headers, a producer, transactions that end both ways, new epochs."""
    turn = index % 6
    end = ControlRecordType.ABORT if index % 12 == 5 else ControlRecordType.COMMIT
    if turn == 5:
        data = encode_control_batch(
            EndTransactionMarker(end, 1), timestamp=WALL_MS + index, producer_id=9, producer_epoch=0
        )
    else:
        data = encode_batch(
            [_record(index, number) for number in range(1 + index % 4)],
            codec=Codec(index % 5),
            producer_id=9,
            producer_epoch=0,
            base_sequence=sum(1 + each % 4 for each in range(index) if each % 6 != 5),
            transactional=True,
        )
    log.append_as_leader(
        memoryview(bytearray(data)),
        leader_epoch=index // 20,
        wall_ms=WALL_MS,
        from_client=turn != 5,
    )


def _record(index: int, number: int) -> Record:
    return Record(
        timestamp=WALL_MS + index * 10 - number,
        key=None if number == 1 else f"key {index}".encode(),
        value=None if number == 2 else f"value {index} {number} ".encode() * (1 + index % 3),
        headers=(("name", b"1"), ("ü", None)) if number == 3 else (),
    )
