"""Dumps of damaged files in the format of kafka-dump-log: each damage has a place, and no dump raises."""

import json
import os
import struct

import pytest
from hypothesis import given, strategies as st

from storage.batch.compression import Codec
from storage.batch.record_batch import walk
from storage.batch.records import (
    Record,
    encode_batch,
)
from storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
)
from storage.testing import FaultyFileSystem
from storage.tools.dump import DumpOptions, dump, files_in
from storage.tools.dump.entries import BatchEntry, Damage, InvalidBytes
from storage.tools.dump.json_lines import json_line
from tests.storage.logs import batch, joined, new_disk
from tests.storage.tools.dumps import (
    ALL,
    DEEP,
    INDEX,
    LOG,
    TIME_INDEX,
    complaints,
    damage_in,
    five_batches,
    indexed_log,
    put,
    shown,
)


def test_a_torn_tail() -> None:
    disk, batches = new_disk(), five_batches()
    whole = b"".join(batches)
    put(disk, LOG, whole + batches[0][:70])
    entries = list(dump(disk, [LOG]))
    assert entries[-1] == InvalidBytes(LOG, len(whole), 70)
    assert shown(entries).endswith("Found 70 invalid bytes at the end of 00000000000000000000.log")


def test_a_batch_that_the_limit_cuts_is_no_damage() -> None:
    disk, batches = new_disk(), five_batches()
    put(disk, LOG, b"".join(batches))
    entries = list(dump(disk, [LOG], DumpOptions(max_bytes=len(batches[0]) + 70)))
    assert len([entry for entry in entries if isinstance(entry, BatchEntry)]) == 1
    assert damage_in(entries) == []


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        pytest.param(16, 1, id="an older magic"),
        pytest.param(11, 1, id="a length below a header's"),
        pytest.param(10, 1, id="a length into the next batches"),
        pytest.param(8, 0x7F, id="a length past the file"),
    ],
)
def test_the_dump_goes_on_behind_a_broken_header(at: int, byte: int) -> None:
    disk, batches = new_disk(), five_batches()
    start = len(batches[0])
    data = bytearray(b"".join(batches))
    data[start + at] = byte
    put(disk, LOG, bytes(data))
    entries = list(dump(disk, [LOG]))
    valid = [e.header.base_offset for e in entries if isinstance(e, BatchEntry) and e.is_valid]
    assert valid == [0, 6, 9, 12]
    (damage,) = [entry for entry in entries if isinstance(entry, Damage)]
    assert (damage.position, damage.resumed_at) == (start, start + len(batches[1]))


def test_a_batch_inside_of_a_value_is_not_taken_for_the_logs() -> None:
    disk = new_disk()
    inner = batch(1, at=1).tobytes()
    outer = bytearray(encode_batch([Record(timestamp=1, value=inner)], base_offset=7))
    outer[16] = 0
    put(disk, LOG, batch(7).tobytes() + bytes(outer))
    entries = list(dump(disk, [LOG]))
    assert [e.header.base_offset for e in entries if isinstance(e, BatchEntry)] == [0]


def test_a_flipped_bit_is_shown_and_passed_over() -> None:
    disk, batches = new_disk(), five_batches()
    data = bytearray(b"".join(batches))
    data[len(batches[0]) + 65] ^= 4
    put(disk, LOG, bytes(data))
    entries = list(dump(disk, [LOG], DEEP))
    valid = [entry.is_valid for entry in entries if isinstance(entry, BatchEntry)]
    assert valid == [True, False, True, True, True]
    assert damage_in(entries) != []


def test_offsets_that_go_back_are_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(3), batch(3, at=1)).tobytes())
    (damage,) = damage_in(dump(disk, [LOG]))
    assert "offset 1 where 3 comes next" in str(damage)


def test_gaps_are_named_but_are_no_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(3, at=5), batch(3, at=9)).tobytes())
    entries = list(dump(disk, [LOG], DEEP))
    assert complaints(entries) == [f"Non-consecutive offsets in {LOG}", "  7 is followed by 9"]
    assert damage_in(entries) == []


def test_a_file_that_is_not_there_or_not_legible_is_damage_and_the_next_is_dumped() -> None:
    disk = new_disk()
    put(disk, LOG, batch(1).tobytes())
    put(disk, f"/d/{LEADER_EPOCH_CHECKPOINT}", b"nonsense")
    paths = ["/d/00000000000000000009.log", f"/d/{LEADER_EPOCH_CHECKPOINT}", LOG]
    entries = list(dump(disk, paths))
    assert [entry.path for entry in damage_in(entries)] == paths[:2]  # type: ignore[union-attr]
    assert isinstance(entries[-1], BatchEntry)


def written(disk: FaultyFileSystem) -> dict[str, int]:
    return {path: disk.open_for_reading(path).size() for path in files_in(disk, "/d")}


def test_a_dump_writes_nothing() -> None:
    disk = indexed_log()
    disk.remove("/d/t-0/00000000000000000000.index")
    before = disk.list_directory("/d/t-0"), written(disk)
    list(dump(disk, ["/d"], DEEP))
    assert (disk.list_directory("/d/t-0"), written(disk)) == before


@given(st.lists(st.sampled_from(Codec), min_size=1, max_size=6), st.data())
def test_untouched_batches_are_shown_and_damaged_ones_are_not_called_sound(
    codecs: list[Codec], data: st.DataObject
) -> None:
    batches = [batch(2, at=2 * n, codec=codec).tobytes() for n, codec in enumerate(codecs)]
    log = bytearray(b"".join(batches))
    places = dict(zip((at for at, _ in walk(b"".join(batches))), batches, strict=True))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.sampled_from(sorted(places)))
        # From the magic on: nothing guards the offset and the epoch but what follows them.
        at = start + data.draw(st.integers(16, len(places[start]) - 1))
        log[at] = data.draw(st.integers(0, 255))
    disk = new_disk()
    put(disk, LOG, bytes(log))
    entries = list(dump(disk, [LOG], DEEP))
    sound = {
        entry.position for entry in entries if isinstance(entry, BatchEntry) and entry.is_valid
    }
    assert sound == {at for at, one in places.items() if log[at : at + len(one)] == one}
    assert bool(damage_in(entries)) == (len(sound) < len(batches))


NAMES = (
    os.path.basename(LOG),
    os.path.basename(INDEX),
    os.path.basename(TIME_INDEX),
    "00000000000000000000.snapshot",
    "00000000000000000000.txnindex",
    "00000000000000000001-0000000001.checkpoint",
    LEADER_EPOCH_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_a_dump_of_any_bytes_ends_without_an_exception(
    files: dict[str, bytes], sanity: bool, sound: bool
) -> None:
    disk = new_disk()
    for name, content in files.items():
        put(disk, f"/d/{name}", content)
    if sound:
        put(disk, LOG, joined(batch(2), batch(2, at=2)).tobytes())
    options = DumpOptions(deep_iteration=True, index_sanity_check=sanity)
    entries = list(dump(disk, ["/d"], options))
    assert isinstance(shown(entries), str)
    for entry in entries:
        assert json.loads(json_line(entry, ALL))["kind"]


def test_a_time_index_over_a_damaged_log() -> None:
    disk, one = new_disk(), batch(2)
    put(disk, LOG, one.tobytes() + bytes(100))
    put(disk, TIME_INDEX, struct.pack(">qi", 5, 3))
    assert complaints(dump(disk, [TIME_INDEX]))[-1] == "Indexed offset: 3, found log offset: -1"


def test_aborted_transactions_that_are_no_whole_entries() -> None:
    disk, path = new_disk(), "/d/00000000000000000000.txnindex"
    entry = struct.pack(">hqqqq", 0, 5, 8, 30, 31)
    put(disk, path, entry + b"torn")
    assert list(dump(disk, [path]))[-1] == Damage(path, 34, "4 bytes after the last whole entry")
    put(disk, path, entry + struct.pack(">hqqqq", 1, 5, 8, 30, 31))
    assert list(dump(disk, [path]))[-1] == Damage(path, 34, "an entry of version 1")
