"""What our consumer takes for a record, beside the least that Python takes for the objects alone.

The floor knows where each value begins and ends, and makes of it what a program receives: the
bytes of the value, and a ConsumerRecord. Nothing is read, checked or counted. A client that makes
an object of each record in Python cannot be faster; `poll_arrow` makes none.
"""

import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, repeat

from replication.client.consumer.completed_fetch import CompletedFetch, ReadSettings
from replication.client.consumer.records import ConsumerRecord
from replication.wire.fetch import PartitionData
from storage.batch.columns.columnar import COLUMNS
from storage.batch.record_batch import TimestampType
from storage.batch.records import Record, encode_batch
from storage.types import TopicPartition
from tests.bench.figures import Figure, interleaved

ROUNDS = 15
MAX_POLL_RECORDS = 500
BATCH_BYTES, FETCH_BYTES = 16_384, 1 << 20
SIZES = {"100 B": (100, 100), "20-180 B": (20, 180), "1024 B": (1024, 1024)}
PARTITION = TopicPartition("t", 0)


def run() -> Iterator[Figure]:
    for label, (least, most) in SIZES.items():
        values = values_of(least, most)
        data, count = encoded(values), len(values)
        for name, take in (("records", take_records), ("columns", take_columns)):
            ours, floor = interleaved(
                partial(take, data), partial(make_objects, values), rounds=ROUNDS
            )
            yield Figure(
                f"{name} of {label} beside objects alone",
                ours / count * 1e9,
                floor / count * 1e9,
                "ns",
            )


def values_of(least: int, most: int) -> list[bytes]:
    """Return as many values as are fetched at once."""
    draw, size, values = random.Random(1), 0, list[bytes]()
    while size < FETCH_BYTES:
        values.append(bytes(draw.randint(least, most)))
        size += len(values[-1])
    return values


def encoded(values: list[bytes]) -> bytes:
    """Return the values in batches of the size that producers make."""
    batches: list[bytes] = []
    records: list[Record] = []
    size = 0
    for offset, value in enumerate(values):
        records.append(Record(offset, 1_700_000_000_000 + offset // 50, None, value))
        size += len(value)
        if size >= BATCH_BYTES or offset + 1 == len(values):
            batches.append(encode_batch(records, base_offset=records[0].offset))
            records, size = [], 0
    return b"".join(batches)


def fetched(data: bytes) -> CompletedFetch:
    return CompletedFetch(
        partition=PARTITION,
        fetch_offset=0,
        leader_epoch=0,
        data=PartitionData(partition_index=0, records=memoryview(data)),
        settings=ReadSettings(),
    )


def take_records(data: bytes) -> float:
    """Processor seconds, here and below."""
    fetch, began = fetched(data), time.thread_time()
    while fetch.take(MAX_POLL_RECORDS):
        pass
    return time.thread_time() - began


def take_columns(data: bytes) -> float:
    fetch, began = fetched(data), time.thread_time()
    fetch.take_columns(COLUMNS)
    return time.thread_time() - began


def make_objects(values: list[bytes]) -> float:
    data, ends = b"".join(values), [*accumulate(map(len, values))]
    places = [*zip([0, *ends], ends, strict=False)]
    began = time.thread_time()
    for first in range(0, len(places), MAX_POLL_RECORDS):
        found = [data[begin:end] for begin, end in places[first : first + MAX_POLL_RECORDS]]
        rows = zip(
            repeat(PARTITION.topic),
            repeat(PARTITION.partition),
            range(len(found)),
            repeat(0),
            repeat(TimestampType.CREATE_TIME),
            repeat(None),
            found,
            repeat(()),
            repeat(-1),
            map(len, found),
            repeat(0),
            strict=False,
        )
        list(map(tuple.__new__, repeat(ConsumerRecord), rows))
    return time.thread_time() - began
