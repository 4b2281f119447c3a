"""What the benchmarks on Spark read: a partition's segments, no two values alike.

A log of one batch over and over would be nothing to Spark's Parquet, whose dictionaries keep
each value once, and cost ours as much as any other. So every value is random bytes.

How much log: UNDERSTUDY_BENCH_MIB, 2048 by default (`make bench ARGS=spark UNDERSTUDY_BENCH_MIB=256`).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, stamp, with_records
from storage.batch.records import Record, encode_batch
from storage.checkpoint import HIGH_WATERMARK_CHECKPOINT

MIB = 1024 * 1024
LOG_MIB = int(os.environ.get("UNDERSTUDY_BENCH_MIB", "2048"))
SEGMENT_MIB = min(64, LOG_MIB)
BATCH_BYTES = 16 * 1024
SIZES = (("100 B", 100), ("1 KiB", 1024))
TIMESTAMP = 1_700_000_000_000


def write_log(directory: Path, size: int) -> int:
    """`LOG_MIB` of records with values of `size` bytes, as t-0; how many."""
    (directory / "t-0").mkdir(parents=True)
    offset, batches = 0, random_batches(size)
    for _ in range(max(1, LOG_MIB // SEGMENT_MIB)):
        with (directory / "t-0" / f"{offset:020d}.log").open("wb") as file:
            while file.tell() < SEGMENT_MIB * MIB - BATCH_BYTES:
                batch, count = next(batches)
                stamp(batch, base_offset=offset, leader_epoch=0)
                file.write(batch)
                offset += count
    # An export takes what is committed.
    (directory / HIGH_WATERMARK_CHECKPOINT).write_text(f"0\n1\nt 0 {offset}\n")
    return offset


def random_batches(size: int) -> Iterator[tuple[bytearray, int]]:
    """Batches with values that were never seen before, and how many each holds."""
    count = BATCH_BYTES // (size + 10)
    marks = [b"%08d" % number + bytes(size - 8) for number in range(count)]
    made = encode_batch(
        [Record(timestamp=TIMESTAMP + number, value=mark) for number, mark in enumerate(marks)]
    )
    records = made[HEADER_SIZE:]
    starts = np.array([records.index(mark) for mark in marks])
    values = starts[:, None] + np.arange(size)
    room = np.frombuffer(records, np.uint8).copy()
    chance = np.random.default_rng(1)
    while True:
        room[values] = np.frombuffer(chance.bytes(count * size), np.uint8).reshape(-1, size)
        yield with_records(made, Codec.NONE, room.data), count
