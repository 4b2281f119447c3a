"""Records to Arrow, all columns: beside aiokafka's decoder on the same bytes in the same run.

    ours      batches to eight columns, every CRC-32C checked
    floor     aiokafka's compiled decoder, every CRC-32C checked, to the six columns that its
              records have: Arrow arrays of their fields, a batch at a time

A second floor shows what of aiokafka's time is the decoding: its records are made and
dropped again, no field of them looked at. It is no like for like, so it has no goal.

Times are of the process, not of the wall: one core's work.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

from storage.batch.columns import columnar
from storage.batch.compression import Codec
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch
from tests.bench.figures import Figure, interleaved

ROUNDS = 5
MIB = 1024 * 1024
LOG_SIZE = 32 * MIB

# Records of one size let a large batch be read by runs; those of any size do not.
ANY_SIZE = (20, 180)
SHAPES = (
    ("100 B, 16 KiB batches", 16 * 1024, Codec.NONE, (100, 100), 4),
    ("100 B, 1 MiB batches", MIB, Codec.NONE, (100, 100), 4),
    ("20 to 180 B, 16 KiB batches", 16 * 1024, Codec.NONE, ANY_SIZE, None),
    ("20 to 180 B, 1 MiB batches", MIB, Codec.NONE, ANY_SIZE, None),
    ("100 B, 16 KiB batches, lz4", 16 * 1024, Codec.LZ4, (100, 100), None),
)


def run() -> Iterator[Figure]:
    for name, batch_size, codec, sizes, goal in SHAPES:
        data, count = log_of(batch_size, codec, sizes)
        ours, floor = rates(partial(to_columns, data), partial(theirs, data), count)
        yield Figure(f"to Arrow, {name}", ours, floor, "M/s", goal=goal)
        ours, floor = rates(partial(to_columns, data), partial(dropped, data), count)
        yield Figure("  beside records made and dropped", ours, floor, "M/s")


def log_of(batch_size: int, codec: Codec, sizes: tuple[int, int]) -> tuple[bytes, int]:
    """About `LOG_SIZE` of batches, and how many records they hold."""
    per_batch = batch_size // (sum(sizes) // 2 + 10)
    chance = random.Random(1)
    values = [chance.randbytes(chance.randint(*sizes)) for _ in range(per_batch)]
    records = [Record(timestamp=1000 + n, value=value) for n, value in enumerate(values)]
    template = encode_batch(records, codec=codec)
    batches = []
    for number in range(LOG_SIZE // len(template)):
        batch = bytearray(template)
        stamp(batch, base_offset=number * per_batch, leader_epoch=3)
        batches.append(batch)
    return b"".join(batches), per_batch * len(batches)


def rates(ours: Callable[[], int], floor: Callable[[], int], count: int) -> tuple[float, float]:
    return interleaved(
        lambda: millions_a_second(ours, count),
        lambda: millions_a_second(floor, count),
        rounds=ROUNDS,
    )


def millions_a_second(decode: Callable[[], int], count: int) -> float:
    began = time.process_time()
    assert decode() == count, "every record is decoded"
    return count / (time.process_time() - began) / 1e6


def to_columns(data: bytes) -> int:
    return sum(batch.num_rows for batch in columnar.decode(data))


def theirs(data: bytes) -> int:
    """aiokafka's records as Arrow columns, a batch at a time."""
    count = 0
    for batch in their_batches(data):
        if not batch.validate_crc():
            raise RuntimeError("the benchmark's own batches are sound")
        fields = [fields_of(record) for record in batch]
        offsets, times, kinds, keys, values, headers = zip(*fields, strict=True)
        table = pa.table(
            {
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array(times, pa.int64()),
                "timestamp_type": pa.array(kinds, pa.int8()),
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "headers": pa.array(headers, pa.list_(pa.struct({"key": pa.string()}))),
            }
        )
        count += table.num_rows
    return count


def fields_of(record: Any) -> tuple[Any, ...]:
    times = record.timestamp, record.timestamp_type
    return record.offset, *times, record.key, record.value, record.headers


def dropped(data: bytes) -> int:
    return sum(1 for batch in their_batches(data) for _ in batch)


def their_batches(data: bytes) -> Iterator[Any]:
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch
