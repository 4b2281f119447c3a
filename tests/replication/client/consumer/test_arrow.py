"""Whole answers as Arrow columns: the same records, offsets and positions as one by one."""

import random
from typing import Any

import pytest

from replication.client.consumer.completed_fetch import CompletedFetch
from replication.client.consumer.errors import CorruptRecordsError
from replication.client.consumer.fetch_collector import Collected
from storage.batch.columns.columnar import COLUMNS
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record
from tests.replication.client.consumer.fetching import (
    T0,
    Rig,
    aborted,
    batch_of,
    data,
    reading,
    values,
)
from tests.replication.client.consumer.test_reading_transactions import abort, commit, written

Row = tuple[int, int, bytes | None, bytes | None, int]


def take_columns(fetch: CompletedFetch, _: int) -> list[Any]:
    return fetch.take_columns(COLUMNS)


def columns(rig: Rig) -> Collected:
    return rig.collector.collect(take=take_columns)


def rows_of(collected: Collected) -> list[Row]:
    names = ("offset", "timestamp", "key", "value", "leader_epoch")
    found: list[Row] = []
    for batch in collected.records.get(T0, []):
        arrays = [
            batch.column(name).cast("int64").to_pylist()
            if name == "timestamp"
            else batch.column(name).to_pylist()
            for name in names
        ]
        found += zip(*arrays, strict=True)
    return found


def one_by_one(rig: Rig) -> list[Row]:
    found: list[Row] = []
    while records := rig.records():
        found += [(r.offset, r.timestamp, r.key, r.value, r.leader_epoch) for r in records]
    return found


def a_log(draw: random.Random) -> tuple[list[bytes], object]:
    """Batches of all kinds, and which transactions of theirs were aborted."""
    batches: list[bytes] = []
    listed: list[tuple[int, int]] = []
    offset = 0
    for _ in range(draw.randrange(1, 7)):
        count, kind = draw.randrange(1, 5), draw.choice(("plain", "packed", "commit", "abort"))
        if kind in ("plain", "packed"):
            records = [
                Record(at, 1000 + at, draw.choice((None, b"k")), bytes(draw.randrange(40)))
                for at in range(offset, offset + count)
            ]
            codec = Codec.GZIP if kind == "packed" else Codec.NONE
            batches.append(batch_of(records, codec=codec, leader_epoch=draw.randrange(3)))
        else:
            batches.append(written(7, *range(offset, offset + count)))
            batches.append((abort if kind == "abort" else commit)(7, offset + count))
            if kind == "abort":
                listed.append((7, offset))
            count += 1
        offset += count
    return batches, aborted(*listed)


@pytest.mark.parametrize("seed", range(40))
def test_columns_hold_the_same_values_as_records(seed: int) -> None:
    draw = random.Random(seed)
    batches, listed = a_log(draw)
    begin, before, committed = draw.randrange(3), draw.randrange(4), draw.random() < 0.7
    read = []
    for how in ("columns", "one by one"):
        rig = Rig(read_committed=committed)
        rig.assign(T0, at=begin)
        rig.fetch({T0: data(*batches, aborted_transactions=listed, last_stable_offset=100)})
        found: list[Row] = []
        if before:
            taken = rig.collector.collect(before).records.get(T0, [])
            found = [(r.offset, r.timestamp, r.key, r.value, r.leader_epoch) for r in taken]
        found += rows_of(columns(rig)) if how == "columns" else one_by_one(rig)
        read.append((found, rig.position(T0), bool(list(rig.buffer.held()))))
    assert read[0] == read[1]


def damaged(batch: bytes) -> bytes:
    at = HEADER_SIZE + 3
    return batch[:at] + bytes([batch[at] ^ 0xFF]) + batch[at + 1 :]


def test_records_before_damage_are_handed_over_and_then_it_is_raised() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(0, 2), damaged(values(3, 4)), values(5, 6))})
    assert [row[0] for row in rows_of(columns(rig))] == [0, 1, 2]
    assert rig.position(T0) == 3
    for _ in range(2):
        with pytest.raises(CorruptRecordsError) as caught:
            columns(rig)
        assert caught.value.offset == 3
    with pytest.raises(CorruptRecordsError):
        rig.collector.collect()
    rig.seek(T0, 5)
    assert columns(rig).count == 0, "sought away from: it is fetched anew"


def test_a_batch_of_another_format_is_damage() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(0, 1), bytes(HEADER_SIZE))})
    assert len(rows_of(columns(rig))) == 2
    with pytest.raises(CorruptRecordsError):
        columns(rig)
