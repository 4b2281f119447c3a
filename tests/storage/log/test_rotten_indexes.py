"""Segments whose indexes rot while their files are open: no reader takes an entry at its word."""

from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import BatchHeader
from storage.errors import CorruptRecordError
from storage.log.index.time_index import ENTRY_SIZE
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from storage.log.time_lookup import first_at_or_after
from tests.storage.log.test_segment import get, new_segment, put
from tests.storage.logs import new_disk


@given(data=st.data())
def test_whatever_rots_in_an_index_every_record_is_found(data: st.DataObject) -> None:
    """The twin is the segment before its index was damaged: it finds the same batches."""
    disk = new_disk()
    segment = new_segment(system=disk)
    for offset in range(40, 140, 5):
        put(segment, offset, 5)
    written = range(segment.offset_index.size_in_bytes)
    found = {offset: get(segment, offset, 1) for offset in range(40, 141)}
    segment.release()  # the last entry is read from the file again
    for position in data.draw(st.lists(st.sampled_from(written), min_size=1, max_size=4)):
        disk.disk.flip_bit(segment.path(INDEX_SUFFIX), position, data.draw(st.integers(0, 7)))
    assert {offset: get(segment, offset, 1) for offset in range(40, 141)} == found


@given(data=st.data())
def test_whatever_rots_in_an_index_times_and_bounds_stay_true(data: st.DataObject) -> None:
    """The twins are the segment before its indexes were damaged, and a walk over its batches."""
    disk = new_disk()
    segment = new_segment(system=disk)
    for offset in range(40, 140, 5):
        put(segment, offset, 5, timestamp=1000 + data.draw(st.integers(0, 40)))
    segment.become_inactive()
    batches = list(segment.headers())
    times = range(999, 1042)

    def from_disk() -> tuple[Segment, list[object]]:
        segment.release()
        found = Segment.load(disk, "/d", 40, max_index_bytes=1000, index_interval_bytes=10)
        youngest_ms = found.newest_ms()
        by_time = [first_at_or_after([found], time, start_offset=40) for time in times]
        return found, [youngest_ms, *by_time]

    _, whole = from_disk()
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        written = range(disk.open(segment.path(suffix)).size())
        for position in data.draw(st.lists(st.sampled_from(written), max_size=3)):
            disk.disk.flip_bit(segment.path(suffix), position, data.draw(st.integers(0, 7)))
    rotten, seen = from_disk()
    assert seen == whole
    for position, header in batches:
        begin = rotten.start_before_byte(position)
        assert begin < position or begin == 0
        assert begin in [each for each, _ in batches]
        bound = rotten.upper_bound(position)
        assert bound is None or bound >= header.base_offset


@pytest.mark.parametrize(("rotten", "most"), [(1, 15), (3, 30), (79, 200)])
def test_where_the_last_times_rot_few_batches_are_asked(
    monkeypatch: pytest.MonkeyPatch, rotten: int, most: int
) -> None:
    """Retention asks on the event loop, and a segment may have ten million batches."""
    disk = new_disk()
    segment = new_segment(system=disk)
    for number in range(80):
        put(segment, 40 + number, timestamp=1000 + number)
    segment.become_inactive()
    entries = segment.time_index.entry_count
    assert entries == 79
    segment.release()
    for entry in range(entries - rotten, entries):
        disk.disk.flip_bit(segment.path(TIME_INDEX_SUFFIX), entry * ENTRY_SIZE + 3)
    found = Segment.load(disk, "/d", 40, max_index_bytes=1000, index_interval_bytes=10)
    walked = 0
    headers = Segment.headers

    def counted(self: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        nonlocal walked
        for each in headers(self, position):
            walked += 1
            yield each

    monkeypatch.setattr(Segment, "headers", counted)
    assert found.newest_ms() == 1079
    assert walked < most


def test_damage_of_the_records_themselves_is_met_once() -> None:
    disk = new_disk()
    segment = new_segment(system=disk)
    for offset in range(40, 140, 5):
        put(segment, offset, 5)
    damaged = segment.locate(100)
    assert damaged is not None
    segment.release()
    disk.disk.corrupt(segment.path(LOG_SUFFIX), damaged.position, bytes(61))
    assert get(segment, 99) is not None
    with pytest.raises(CorruptRecordError):
        segment.locate(104)
