"""Appends as a follower, against a plain write of the same bytes with their CRC-32C computed.

    ours    Log.append_as_follower of one batch at a time: checked, indexed, noted, written
    floor   the CRC-32C of the batch, and one `pwrite` of it at the end of a file

Nothing is synced: both write into the page cache. Every round writes files of its own and
removes them, so that both write into memory that was just given back.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import crc32c

from storage.batch.record_batch import CRC_COVERS_FROM
from storage.batch.records import Record, encode_batch
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.types import TopicPartition
from tests.bench.figures import Figure, interleaved

KIB, MIB = 1024, 1024 * 1024
ROUNDS = 15
WALL_MS = 1_700_000_000_000
CASES = (("16 KiB", 16 * KIB, 64 * MIB, 0.5), ("1 MiB", MIB, 256 * MIB, 0.85))


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        for name, size, total, goal in CASES:
            batches = follower_batches(size, total // size)
            append(scratch, batches)
            plain_write(scratch, batches)
            ours, floor = interleaved(
                lambda batches=batches: append(scratch, batches),  # type: ignore[misc]  # its default
                lambda batches=batches: plain_write(scratch, batches),  # type: ignore[misc]
                rounds=ROUNDS,
            )
            yield Figure(f"append as follower, batches of {name}", ours, floor, "MiB/s", goal)


def follower_batches(
    size: int, count: int, *, first_offset: int = 0, timestamp: int = WALL_MS
) -> list[memoryview]:
    """Return batches of one record each, at the leader's offsets."""
    record = [Record(timestamp=timestamp, key=b"k", value=os.urandom(size - 100))]
    return [
        memoryview(encode_batch(record, base_offset=offset, leader_epoch=3))
        for offset in range(first_offset, first_offset + count)
    ]


def append(scratch: str, batches: list[memoryview]) -> float:
    """MiB/s."""
    directory = f"{scratch}/ours-0"
    log = Log.open(OsFileSystem(), directory, TopicPartition("ours", 0))
    began = time.perf_counter()
    for batch in batches:
        log.append_as_follower(batch, wall_ms=WALL_MS)
    took = time.perf_counter() - began
    log.close_uncleanly()
    shutil.rmtree(directory)
    return sum(map(len, batches)) / MIB / took


def plain_write(scratch: str, batches: list[memoryview]) -> float:
    """MiB/s."""
    path = f"{scratch}/floor"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    began = time.perf_counter()
    position = 0
    for batch in batches:
        crc32c.crc32c(batch[CRC_COVERS_FROM:])
        position += os.pwrite(file, batch, position)
    took = time.perf_counter() - began
    os.close(file)
    Path(path).unlink()
    return position / MIB / took
