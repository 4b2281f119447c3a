"""A log read from its start to its end, against `cat` of the same files.

    ours    Log.read at the offset after the last batch, a MiB at a time, into one buffer
    floor   cat of the `.log` files to a pipe that is read into one buffer of a MiB

Ours walks the batches that it was given, as a consumer must to know where it goes on. Both
read from the page cache.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from storage.batch.record_batch import walk
from storage.config import LogConfig
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.types import TopicPartition
from tests.bench.append import KIB, MIB, WALL_MS, follower_batches
from tests.bench.figures import Figure, interleaved

ROUNDS = 15
CASES = (("16 KiB", 16 * KIB, 128 * MIB), ("1 MiB", MIB, 256 * MIB))
SEGMENT_BYTES = 64 * MIB


def run() -> Iterator[Figure]:
    for name, size, total in CASES:
        with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
            config = LogConfig(segment_bytes=SEGMENT_BYTES)
            log = Log.open(OsFileSystem(), f"{scratch}/t-0", TopicPartition("t", 0), config=config)
            for batch in follower_batches(size, total // size):
                log.append_as_follower(batch, wall_ms=WALL_MS)
            files = sorted(Path(log.directory).glob("*.log"))
            ours, floor = interleaved(
                lambda log=log: read(log),  # type: ignore[misc]  # its default
                lambda files=files: cat(files),  # type: ignore[misc]
                rounds=ROUNDS,
            )
            log.close_uncleanly()
        yield Figure(f"read a log, batches of {name}", ours, floor, "MiB/s")


def read(log: Log) -> float:
    """MiB/s."""
    buffer = memoryview(bytearray(MIB + 4 * KIB))
    began = time.perf_counter()
    offset, size, end = 0, 0, 0
    while offset < log.log_end_offset:
        data = log.read(offset, MIB, max_offset_exclusive=log.log_end_offset, min_one=True)
        assert data.records is not None, "every offset up to the end has a batch"
        got = buffer[: data.records.read_into(buffer)]
        for position, header in walk(got):
            offset, end = header.next_offset, position + header.size
        size += end
    return size / MIB / (time.perf_counter() - began)


def cat(files: list[Path]) -> float:
    """MiB/s."""
    buffer = bytearray(MIB)
    began = time.perf_counter()
    size = 0
    with subprocess.Popen(["cat", *files], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None, "it was asked for"
        while count := os.readv(process.stdout.fileno(), [buffer]):
            size += count
    return size / MIB / (time.perf_counter() - began)
