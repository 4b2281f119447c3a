"""A round of compaction beside truncation, retention, reads, damage and recovery."""

import pytest

from storage.batch.record_batch import NO_TIMESTAMP
from storage.errors import CleaningAbortedError, CorruptRecordError
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.testing import Fault, FaultyFile, FaultyFileSystem
from tests.storage.cleaning import (
    begin,
    clean,
    compacted,
    end_transaction,
    finish,
    fresh,
    names,
    pairs,
    put,
    roll,
)
from tests.storage.logs import TP, WALL_MS, bases, contents, headers, new_disk, open_log

A, B, C = b"a", b"b", b"c"
DAY = 24 * 60 * 60 * 1000


def two_segments() -> Log:
    log = fresh(segment_bytes=300)
    for number in range(4):
        put(log, (A, b"%150d" % number))
    roll(log)
    return log


def test_a_cut_ends_the_round_and_leaves_nothing_behind() -> None:
    log = two_segments()
    cleaning = begin(log)
    cleaning.advance(1)
    cleaning.aborted = True
    log.truncate_to(1)
    with pytest.raises(CleaningAbortedError):
        cleaning.advance(1)
    cleaning.close()
    assert not names(log, ".cleaned")
    assert list(pairs(log)) == [0]


def test_a_group_that_was_ready_is_not_put_in_place_after_a_cut() -> None:
    log = two_segments()
    cleaning = begin(log)
    while not cleaning.ready:
        cleaning.advance(1 << 20)
    cleaning.aborted = True
    log.truncate_to(1)
    with pytest.raises(CleaningAbortedError):
        cleaning.commit()
    cleaning.close()
    assert not names(log, ".cleaned")
    assert list(pairs(log)) == [0]


def test_segments_that_retention_has_taken_are_not_brought_back() -> None:
    log = fresh(segment_bytes=1000)
    for number in range(4):
        put(log, (b"%d" % number, b""))
        roll(log)
    cleaning = begin(log)
    while not cleaning.ready:
        cleaning.advance(1 << 20)
    assert len(cleaning.ready) > 1
    log.increment_log_start_offset(1)
    log.delete_segments_below_log_start()
    with pytest.raises(CleaningAbortedError):
        cleaning.commit()
    cleaning.close()
    assert list(pairs(log)) == [1, 2, 3]
    assert bases(log)[0] == 1


def test_a_segment_that_has_gone_before_it_was_read_ends_the_round() -> None:
    log = fresh(segment_bytes=1000)
    for number in range(4):
        put(log, (b"%d" % number, b""))
        roll(log)
    cleaning = begin(log)
    log.increment_log_start_offset(1)
    log.delete_segments_below_log_start()
    with pytest.raises(CleaningAbortedError):
        finish(cleaning)
    cleaning.close()
    assert not log.failed
    assert list(pairs(log)) == [1, 2, 3]


def test_readers_of_what_was_replaced_read_on() -> None:
    log = two_segments()
    found = log.read(0, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True)
    assert found.records is not None
    before = found.records.read()
    clean(log)
    assert found.records.read() == before


def test_a_batch_that_is_not_sound_is_not_sealed_again() -> None:
    disk = new_disk()
    log = open_log(disk, compacted())
    put(log, (A, b"1"), (A, b"2"))
    roll(log)
    disk.disk.corrupt(f"{log.directory}/{0:020d}.log", 70, b"\x55")
    with pytest.raises(CorruptRecordError):
        finish(begin(log))


def test_a_gap_is_read_over_and_follows_to_a_replica() -> None:
    log = two_segments()
    clean(log)
    put(log, (B, b"1"))
    for offset in range(4):
        data = log.read(offset, 1, max_offset_exclusive=log.log_end_offset, min_one=True)
        assert data.records is not None
    follower = open_log(new_disk(2), compacted())
    assert append_all(follower, log)
    assert contents(follower) == contents(log)
    assert follower.log_end_offset == log.log_end_offset
    found = log.offset_for_timestamp(WALL_MS)
    assert found is not None
    assert found.offset == 3


def append_all(follower: Log, leader: Log) -> bool:
    """As a fetcher would, from an offset that the leader may have no record at."""
    while follower.log_end_offset < leader.log_end_offset:
        data = leader.read(
            follower.log_end_offset, 1, max_offset_exclusive=leader.log_end_offset, min_one=True
        )
        assert data.records is not None
        follower.append_as_follower(memoryview(bytearray(data.records.read())))
    return True


@pytest.mark.conformance("UL-24")
def test_producers_are_the_same_over_compacted_batches() -> None:
    log = fresh()
    put(
        log,
        *[(A, b"%d" % n) for n in range(3)],
        (B, b""),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    put(log, (B, b"1"))
    roll(log)
    clean(log)
    rebuilt(log)
    assert log.producers.producers[7].last_sequence == 3


@pytest.mark.conformance("UL-24b")
def test_producers_are_the_same_over_a_batch_compacted_to_nothing() -> None:
    log = fresh()
    put(log, (A, b"1"), (A, b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (A, b"3"))
    roll(log)
    clean(log)
    assert headers(log)[0].record_count == 0
    rebuilt(log)
    assert log.producers.producers[7].last_sequence == 1


def rebuilt(log: Log) -> None:
    """From the batches: no snapshot is left, and a truncation asks for the producers anew."""
    put(log, (C, b"1"))
    for each in log.producers.snapshots:
        log.producers.delete_snapshot(each)
    log.truncate_to(log.log_end_offset - 1)
    assert 7 in log.producers.producers


def test_records_without_a_time_stay_as_old_as_their_segment_was() -> None:
    """Cleaner.cleanSegments: or each round would put off retention by time."""
    log, clock = fresh(), [WALL_MS - 7 * DAY]
    disk = log.local.file_system
    assert isinstance(disk, FaultyFileSystem)
    disk.disk.wall_ms = lambda: clock[0]
    for key in (A, B):
        put(log, (key, b"1"), timestamp=NO_TIMESTAMP)
        roll(log)
        clock[0] += DAY
    clean(log)
    assert bases(log) == [0, 2], "both became one"
    assert next(iter(log.segments)).newest_ms() == WALL_MS - 6 * DAY


def test_the_youngest_record_is_none_where_only_its_batch_is_left() -> None:
    """UnifiedLog.fetchOffsetByTimestamp: the batch counts, and no record of it is there."""
    log = fresh()
    put(log, (A, b"1"), timestamp=WALL_MS + 9, producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (A, b"2"), timestamp=WALL_MS)
    roll(log)
    assert log.offset_of_max_timestamp() == (WALL_MS + 9, 0, 0)
    clean(log)
    assert [each.record_count for each in headers(log)] == [0, 1]
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(WALL_MS) == (WALL_MS, 1, 0)


def test_a_compacted_log_is_the_same_when_it_is_opened_again() -> None:
    disk: FileSystem = new_disk()
    log = open_log(disk, compacted(segment_bytes=300))
    for number in range(12):
        put(log, (b"%d" % (number % 5), bytes(100)))
    roll(log)
    clean(log)
    before = contents(log), bases(log), log.log_end_offset
    log.close_uncleanly()
    again = Log.open(disk, log.directory, TP, config=log.config)
    assert (contents(again), bases(again), again.log_end_offset) == before
    assert isinstance(disk, FaultyFileSystem)


@pytest.mark.parametrize(("at", "value"), [(16, b"\7"), (8, b"\0\0\1\0")], ids=["magic", "length"])
def test_a_log_with_garbage_or_half_a_batch_is_not_cleaned(at: int, value: bytes) -> None:
    disk = new_disk()
    log = open_log(disk, compacted())
    first = put(log, (A, b"1"))
    put(log, (A, b"2"))
    roll(log)
    path = f"{log.directory}/{first:020d}.log"
    before = contents(log)
    disk.disk.corrupt(path, len(before) // 2 + at, value)
    with pytest.raises(CorruptRecordError, match=path):
        finish(begin(log))
    assert not [name for name in disk.list_directory(log.directory) if "swap" in name]


def test_a_disk_that_cannot_be_read_ends_the_round_with_its_own_error() -> None:
    disk = new_disk()
    log = open_log(disk, compacted())
    put(log, (A, b"1"), (A, b"2"))
    roll(log)
    cleaning = begin(log)
    disk.inject(Fault(operation="read", names="*.log"))
    with pytest.raises(OSError, match="Input/output"):
        finish(cleaning)


def test_many_bytes_are_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece holds one byte, so a group also ends with a piece and nothing is left to write."""
    monkeypatch.setattr("storage.cleaner.cleaner._WRITE_BYTES", 1)
    log = open_log(new_disk(), compacted())
    for number in range(5):
        put(log, (b"%d" % number, b"v"), (A, b"%d" % number))
    roll(log)
    clean(log)
    assert set(pairs(log).values()) == {*((b"%d" % n, b"v") for n in range(5)), (A, b"4")}


def test_the_marker_of_an_active_producer_stays_empty() -> None:
    """All its data has gone: the marker's epoch is what its next batch is judged by."""
    log = fresh()
    put(log, (A, b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = end_transaction(log, 7, commit=True)
    put(log, (A, b"2"))
    roll(log)
    state = log.producers.producers[7]
    state.batches.clear()
    for horizon in range(3):
        clean(log, wall_ms=WALL_MS + (horizon + 1) * 2 * log.config.delete_retention_ms)
    assert marker in [header.base_offset for header in headers(log)]
    log.producers.producers.clear()
    for horizon in range(3, 6):
        clean(log, wall_ms=WALL_MS + (horizon + 1) * 2 * log.config.delete_retention_ms)
    assert marker not in [header.base_offset for header in headers(log)]


def test_records_that_stay_are_as_old_as_their_leader_said() -> None:
    log = open_log(new_disk(), compacted(message_timestamp_type="LogAppendTime"))
    put(log, (A, b"1"), (b"b", b"2"), timestamp=5)
    put(log, (A, b"3"), timestamp=5)
    roll(log)
    clean(log)
    assert pairs(log) == {1: (b"b", b"2"), 2: (A, b"3")}
    assert {header.max_timestamp for header in headers(log)} == {WALL_MS}


def test_numbers_of_any_width_are_walked_over() -> None:
    """Long keys, records far apart in time, and more of them than one byte can count."""
    log = fresh(segment_bytes=1 << 20)
    many = [(b"%100d" % (number % 70), b"%d" % number) for number in range(140)]
    put(log, *many, timestamp=WALL_MS)
    put(log, (b"%100d" % 0, b"last"), timestamp=WALL_MS - 10**6)
    roll(log)
    clean(log)
    assert set(pairs(log).values()) == {*many[71:], (b"%100d" % 0, b"last")}


def test_a_cut_that_takes_the_file_from_under_the_reader_ends_the_round() -> None:
    class Cut(FaultyFileSystem):
        """The log is cut in another task, just as the cleaner opens its file."""

        def open_for_reading(self, path: str) -> FaultyFile:
            if path.endswith(".log"):
                cleaning.aborted = True
                raise OSError("gone")
            return super().open_for_reading(path)

    disk = new_disk()
    log = open_log(disk, compacted())
    put(log, (A, b"1"), (A, b"2"))
    roll(log)
    cleaning = begin(log)
    log.local.file_system = Cut(disk.disk.chance, disk=disk.disk)
    with pytest.raises(CleaningAbortedError, match="has changed"):
        finish(cleaning)
