"""Each reader of a file, asked about a mutated one: the truth, or an error that names the place.

Rule 1: the truth is what a twin of `twins` reads, or what was written.

Rule 2: an error is one of `storage.errors` and names the file; `struct.error`, `IndexError` and
their like are findings. `assert` is not an answer either: bytes on a disk are not our mistake.

The file is long because it is one list: a reader of each kind of file.
"""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.batch.columns import columnar
from storage.batch.compression import decompress
from storage.batch.record_batch import read_header, walk
from storage.batch.records import Record, decode_batch, read_marker, unpack
from storage.batch.sound_records import check_records
from storage.checkpoint import (
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_clean_shutdown,
)
from storage.cleaner.record_walk import places
from storage.errors import (
    CheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    InvalidRecordError,
)
from storage.log.index.offset_index import OffsetIndex
from storage.log.index.time_index import TimeIndex
from storage.log.index.transaction_index import TransactionIndex, aborted_between
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.segment_file import open_segment
from storage.producers.snapshot import decode_snapshot
from storage.testing import FaultyFileSystem
from storage.tools.dump import DumpOptions, dump, is_damage
from storage.tools.dump.arrow import arrow_batches, arrow_records
from storage.tools.dump.entries import BatchEntry, Damage, RecordEntry
from storage.tools.dump.json_lines import json_line
from storage.tools.dump.text import TextOptions, line
from tests.storage.fuzz import twins
from tests.storage.fuzz.corpus import log_directory, put, real_files
from tests.storage.fuzz.mutations import Mutated, mutated
from tests.storage.fuzz.twins import Refused
from tests.storage.logs import new_disk, outlined

DIRECTORY = "/d/t-0"

Check = Callable[[Mutated], None]
READERS: dict[str, tuple[st.SearchStrategy[Mutated], Check]] = {}


def reads(*kinds: str) -> Callable[[Check], Check]:
    """Registers a check of mutated files of `kinds`."""

    def register(check: Check) -> Check:
        READERS[check.__name__] = mutated(real_files(*kinds)), check
        return check

    return register


def on_disk(case: Mutated) -> tuple[FaultyFileSystem, str]:
    """In a log directory that was closed: whatever zeroes the file ends with are damage."""
    disk, path = new_disk(), f"{DIRECTORY}/{case.file.name}"
    put(disk, path, case.data)
    write_clean_shutdown(disk, "/d", 1)
    return disk, path


def base_of(case: Mutated) -> int:
    return int(case.file.name[:20])


# Batches and records.


@reads(".log")
def batches(case: Mutated) -> None:
    expected, damage = twins.batches_in(case.data)
    found = []
    try:
        for position, header in walk(case.data):
            found.append((position, case.data[position : position + header.size]))
            assert header.last_offset == twins.last_offset(found[-1][1])
        assert damage is None
    except CorruptRecordError as error:
        if damage is None:  # the beginning of one, of a magic that is no batch's
            damage = sum(len(batch) for _, batch in expected)
            assert len(case.data) - damage < twins.HEADER_SIZE
        assert f"byte {damage}" in str(error)
    assert found == expected


@reads(".log")
def records(case: Mutated) -> None:
    for _, batch in twins.batches_in(case.data)[0]:
        expected = _or_none(twins.records_of, batch)
        found = _or_none(decode_batch, batch)
        assert found == expected
        outlined = _or_none(_outlines, batch)
        framed = _or_none(_framed, batch, "sound")
        if found is not None:
            assert framed == "sound"
            assert outlined == [(r.offset, r.timestamp, r.key is not None) for r in found]
        if batch[22] & 0x20:
            _or_none(read_marker, batch)
        assert _or_none(_columns, batch) == (found and [each[:5] for each in found])


def _or_none(read: Callable[[bytes], Any], data: bytes, instead_of_none: Any = None) -> Any:
    """Return what `read` finds; None where it refuses."""
    try:
        found = read(data)
    except (CorruptRecordError, InvalidRecordError, Refused):
        return None
    return instead_of_none if found is None else found


def _framed(batch: bytes) -> None:
    header = read_header(batch)
    check_records(header, unpack(header, batch), counted=False)


def _outlines(batch: bytes) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp, each.has_key) for each in outlined(batch)]


def _columns(batch: bytes) -> list[tuple[Any, ...]]:
    return [
        row
        for found in columnar.decode(batch, check_crcs=False, control_batches=True)
        for row in _rows(found)
    ]


def _rows(found: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    names = ("offset", "timestamp", "key", "value", "headers")
    columns = [found.column(name) for name in names]
    columns[1] = columns[1].cast(pa.int64())
    for offset, timestamp, key, value, headers in zip(
        *(c.to_pylist() for c in columns), strict=True
    ):
        yield offset, timestamp, key, value, tuple((h["key"], h["value"]) for h in headers)


@reads(".log")
def records_to_compact(case: Mutated) -> None:
    """The cleaner's own walk over records, which takes of each what decides whether it stays."""
    for _, batch in twins.batches_in(case.data)[0]:
        expected = _or_none(twins.records_of, batch)
        found = _or_none(_places, batch)
        if expected is not None:
            assert found == [(r.offset, r.key, r.value is not None) for r in expected]


def _places(batch: bytes) -> list[tuple[Any, ...]]:
    header = read_header(batch)
    plain = bytes(decompress(header.codec, batch[twins.HEADER_SIZE :], max_size=1 << 24))
    return [
        (header.base_offset + offset_delta, key, has_value)
        for _, _, _, _, offset_delta, key, has_value in places(plain, header.record_count)
    ]


# A `.log` file.


def _readable(case: Mutated) -> tuple[list[Record], int | None]:
    """The records up to the first batch that cannot be read, and where that one stands."""
    found: list[Record] = []
    expected, damage = twins.batches_in(case.data)
    for position, batch in expected:
        try:
            if not twins.crc_matches(batch):
                raise Refused("checksum")
            if not batch[22] & 0x20:
                found += twins.records_of(batch)
        except Refused:
            return found, position
    return found, damage


@reads(".log")
def segment_file(case: Mutated) -> None:
    disk, path = on_disk(case)
    expected, damage = _readable(case)
    found: list[Record] = []
    with open_segment(path, disk) as segment:
        assert segment.base_offset == base_of(case)
        try:
            found.extend(segment.records())
            assert damage is None
        except DamagedLogError as error:
            assert (error.path, error.position) == (path, damage)
            assert f"{path}, byte {damage}" in str(error)
        assert found == expected
        rows = []
        try:
            for piece in columnar.read(segment.file, chunk_size=700):
                rows += list(_rows(piece))
            assert damage is None
        except DamagedLogError as error:
            assert (error.path, error.position) == (path, damage)
        assert rows == [each[:5] for each in expected]


@reads(".log")
def batch_stream(case: Mutated) -> None:
    """Another reader of a log at rest: it also wants offsets to go on, and the file to be whole."""
    disk, path = on_disk(case)
    stream = BatchStream(disk, DIRECTORY, chunk_size=200)
    taken, following = [], base_of(case)
    try:
        while (header := stream.head()) is not None:
            assert header.base_offset >= following
            following, data = header.next_offset, b""
            while len(data) < header.size:
                data += stream.take(min(header.size - len(data), stream.available))
            taken.append(data)
            stream.passed(header)
        assert sum(map(len, taken)) == len(case.data)
    except DamagedLogError as error:
        assert (error.path, error.position) == (path, sum(map(len, taken)))
    finally:
        stream.close()
    assert taken == [batch for _, batch in twins.batches_in(case.data)[0]][: len(taken)]


# Indexes.


@reads(".index")
def offset_index(case: Mutated) -> None:
    disk, path = on_disk(case)
    base = base_of(case)
    index = OffsetIndex.open(disk, path, base_offset=base, max_size=400)
    stored = [
        (base + twins.number(case.data, at, 4), twins.number(case.data, at + 4, 4))
        for at in range(0, len(case.data) - 7, 8)
    ]
    assert list(index.entries()) == stored
    if not _is_sane(index, path):
        index.reset(max_size=400)
        stored = []
    for wanted in (base, base + 1, base + 30, base + 60):
        below = [entry for entry in stored if entry[0] <= wanted]
        found = index.lookup(wanted)
        if stored == sorted(stored):
            assert found == (below[-1] if below else (base, 0))
        index.first_position_from(wanted)
        list(index.positions_before(wanted))
    index.truncate_to(base + 20)
    if stored == sorted(stored):
        assert list(index.entries()) == [entry for entry in stored if entry[0] < base + 20]


@reads(".timeindex")
def time_index(case: Mutated) -> None:
    disk, path = on_disk(case)
    base = base_of(case)
    index = TimeIndex.open(disk, path, base_offset=base, max_size=400)
    stored = [
        (twins.number(case.data, at, 8), base + twins.number(case.data, at + 8, 4))
        for at in range(0, len(case.data) - 11, 12)
    ]
    assert list(index.entries()) == stored
    if not _is_sane(index, path):
        index.reset(max_size=400)
        stored = []
    in_order = stored == sorted(stored)
    for wanted in (-1, 0, 1_700_000_000_300, 2**63 - 1):
        below = [entry for entry in stored if entry[0] <= wanted]
        found = index.lookup(wanted)
        if in_order:
            assert found == (below[-1] if below else (-1, base))
    index.truncate_to(base + 20)
    if in_order and [each for _, each in stored] == sorted(each for _, each in stored):
        assert list(index.entries()) == [entry for entry in stored if entry[1] < base + 20]


@reads(".txnindex")
def transaction_index(case: Mutated) -> None:
    disk, path = on_disk(case)
    index = TransactionIndex.open(disk, path)
    stored = [
        tuple(twins.number(case.data, at + field, 8) for field in (2, 10, 18, 26))
        for at in range(0, len(case.data) - 33, 34)
    ]
    sane = _is_sane(index, path, base_of(case))
    if not sane:
        index.reset()
        stored = []
    assert [tuple(entry) for entry in index.entries()] == stored
    found = aborted_between([index], 10, 90)
    assert set(map(tuple, found)) <= set(stored)
    index.truncate_to(50)
    assert [tuple(entry) for entry in index.entries()] == [e for e in stored if e[2] < 50]


def _is_sane(index: OffsetIndex | TimeIndex | TransactionIndex, path: str, *base: int) -> bool:
    try:
        index.sanity_check(*base)
    except CorruptIndexError as error:
        assert str(error).startswith(f"{path}: ")
        return False
    return True


# What is read whole.


@reads(".snapshot")
def producer_snapshot(case: Mutated) -> None:
    count = twins.number(case.data, 6, 4) if len(case.data) >= 10 else -1
    try:
        states = decode_snapshot(case.data)
    except CorruptRecordError:
        assert not case.sound
        return
    assert len(case.data) == 10 + 46 * count
    assert len(states) == count
    for at, state in zip(range(10, len(case.data), 46), states, strict=True):
        assert state.producer_id == twins.number(case.data, at, 8)
        assert state.producer_epoch == twins.number(case.data, at + 8, 2)
        first = twins.number(case.data, at + 38, 8)
        assert state.transaction_first_offset == (first if first >= 0 else None)


def _text_file(case: Mutated, read: Callable[[FaultyFileSystem, str], Any]) -> Any:
    """Return what `read` finds; None where it refuses, which it does by name."""
    disk, path = on_disk(case)
    try:
        return read(disk, path)
    except CheckpointError as error:
        assert str(error).startswith(f"{path}: ")
        assert not case.sound
        return None


_OFFSET_CHECKPOINTS = tuple(
    f"{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "replication")
)


@reads("leader-epoch-checkpoint")
def leader_epochs(case: Mutated) -> None:
    found = _text_file(case, lambda disk, path: LeaderEpochCheckpoint(disk, path).read())
    lines = _or_none(lambda data: twins.checkpoint_lines(data, 32, 64), case.data)
    expected = None
    if lines is not None and all(len(each) == 2 for each in lines):
        expected = [(int(epoch), int(start)) for epoch, start in lines]
    assert found == expected
    if found is not None:
        LeaderEpochCache(LeaderEpochCheckpoint(*on_disk(case))).end_offset_for(1, 100)


@reads(*_OFFSET_CHECKPOINTS)
def offset_checkpoint(case: Mutated) -> None:
    found = _text_file(case, lambda disk, path: OffsetCheckpoint(disk, path).read())
    lines = _or_none(lambda data: twins.checkpoint_lines(data, 32, 64), case.data)
    expected = None
    if lines is not None and all(len(each) == 3 for each in lines):
        expected = {(topic, int(number)): int(offset) for topic, number, offset in lines}
    assert found == expected


@reads(".metadata")
def partition_metadata(case: Mutated) -> None:
    found = _text_file(case, lambda disk, _: read_partition_metadata(disk, DIRECTORY))
    if found is not None:
        assert len(found) == 16
        assert any(found)
        assert base64.urlsafe_b64encode(found).rstrip(b"=") in case.data


@reads(".properties")
def meta_properties(case: Mutated) -> None:
    found = _text_file(case, lambda disk, _: read_meta_properties(disk, DIRECTORY))
    if found is not None:
        assert 0 <= found.node_id < 2**31
        assert str(found.node_id).encode() in case.data


@reads(".kafka_cleanshutdown")
def clean_shutdown(case: Mutated) -> None:
    disk, _ = on_disk(case)
    found = read_clean_shutdown(disk, DIRECTORY)
    assert found is not None
    try:
        content = json.loads(case.data)
    except (ValueError, RecursionError):
        content = None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    legible = type(epoch) is int and -1 <= epoch < 2**63 and content.get("version") == 0
    assert found.broker_epoch == (epoch if legible else None)


# A dump reads everything.


@reads()
def dump_log(case: Mutated) -> None:
    disk = new_disk()
    for path, data in log_directory(case.file.origin).items():
        put(disk, f"/d/{path}", data)
    path = f"/d/{case.file.directory}/{case.file.name}".replace("//", "/")
    put(disk, path, case.data)
    for options in (DumpOptions(deep_iteration=True), DumpOptions(index_sanity_check=True)):
        for entry in dump(disk, [path], options):
            line(entry, TextOptions(print_data_log=True))
            str(entry)
            json.loads(json_line(entry, TextOptions(print_data_log=True)))
            if isinstance(entry, Damage):
                assert entry.path == path
                assert 0 <= entry.position <= len(case.data)
                assert not case.sound
            if isinstance(entry, BatchEntry):
                batch = case.data[entry.position : entry.position + entry.header.size]
                assert entry.is_valid == twins.crc_matches(batch)
            assert not isinstance(entry, RecordEntry) or -(2**63) <= entry.record.offset < 2**63
            assert not case.sound or not is_damage(entry)


@reads(".log")
def dump_arrow(case: Mutated) -> None:
    disk, path = on_disk(case)
    stored = set(_all_that_stands_in(case.data))
    rows: list[tuple[Any, ...]] = []
    for found in arrow_batches(disk, [path]):
        for row in found.to_pylist() if isinstance(found, pa.RecordBatch) else []:
            batch = case.data[row["position"] : row["position"] + row["size"]]
            assert len(batch) == row["size"]
            assert row["is_valid"] == twins.crc_matches(batch)
    for found in arrow_records(disk, [path]):
        if isinstance(found, Damage):
            assert 0 <= found.position <= len(case.data)
            assert not case.sound
        elif isinstance(found, pa.RecordBatch):
            rows += list(_rows(found))
    assert set(rows) <= stored
    expected, _ = _readable(case)
    assert [each[:5] for each in expected] == rows[: len(expected)]
    assert not case.sound or len(rows) == len(expected)


def _all_that_stands_in(data: bytes) -> Iterator[tuple[Any, ...]]:
    """The records of every batch that a search could find, wherever it begins."""
    for at in range(len(data) - twins.HEADER_SIZE + 1):
        for _, batch in twins.batches_in(data[at:])[0][:1]:
            if twins.crc_matches(batch):
                for record in _or_none(twins.records_of, batch) or []:
                    yield record[:5]
