"""What a round of compaction leaves of a log."""

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import DELETE_HORIZON_BIT, NO_TIMESTAMP, check_crc, walk
from storage.batch.records import decode_batch
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
    keys,
    pairs,
    put,
    records,
    roll,
)
from tests.storage.logs import TP, WALL_MS, bases, contents, headers, new_disk, open_log

A, B, C = b"a", b"b", b"c"
DAY = 24 * 60 * 60 * 1000


def fresh(**changes: object) -> Log:
    return open_log(new_disk(), compacted(**changes))


def names(log: Log, ending: str) -> list[str]:
    return [
        each
        for each in log.local.file_system.list_directory(log.directory)
        if each.endswith(ending)
    ]


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    log = fresh()
    put(log, (A, b"1"), (B, b"1"), (A, b"2"))
    put(log, (C, b"1"), (B, b"2"))
    roll(log)
    end = log.log_end_offset
    cleaning = clean(log)
    assert pairs(log) == {2: (A, b"2"), 3: (C, b"1"), 4: (B, b"2")}
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    assert cleaning.end_offset == 5
    assert not names(log, ".cleaned")
    assert not names(log, ".swap")


def test_the_active_segment_is_left_alone_and_replaces_nothing() -> None:
    log = fresh()
    put(log, (A, b"1"))
    roll(log)
    put(log, (A, b"2"), (A, b"3"))
    clean(log)
    assert pairs(log) == {0: (A, b"1"), 1: (A, b"2"), 2: (A, b"3")}


def test_nothing_at_or_above_the_high_watermark_is_cleaned() -> None:
    log = fresh()
    for _ in range(3):
        put(log, (A, b"1"))
        roll(log)
    log.update_high_watermark(2)
    clean(log)
    assert list(pairs(log)) == [1, 2]


def test_nothing_of_an_open_transaction_is_cleaned() -> None:
    log = fresh()
    put(log, (A, b"1"))
    roll(log)
    put(log, (A, b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    roll(log)
    put(log, (A, b"3"))
    roll(log)
    clean(log)
    assert list(pairs(log)) == [0, 1, 2]


def test_a_record_younger_than_the_compaction_lag_is_not_cleaned() -> None:
    log = fresh(min_compaction_lag_ms=1000)
    put(log, (A, b"1"), timestamp=WALL_MS - 5000)
    put(log, (A, b"2"), timestamp=WALL_MS - 4000)
    roll(log)
    put(log, (A, b"3"), timestamp=WALL_MS - 500)
    roll(log)
    clean(log)
    assert list(pairs(log)) == [1, 2]
    clean(log, wall_ms=WALL_MS + 1000)
    assert list(pairs(log)) == [2]


def test_a_tombstone_hides_its_key_and_goes_after_its_delete_horizon() -> None:
    log = fresh(delete_retention_ms=DAY)
    put(log, (A, b"1"), (B, b"1"))
    put(log, (A, None), (C, b"1"), timestamp=WALL_MS + 7)
    roll(log)
    clean(log)
    assert pairs(log) == {1: (B, b"1"), 2: (A, None), 3: (C, b"1")}
    stamped = headers(log)[-1]
    assert stamped.delete_horizon_ms == WALL_MS + DAY
    assert [each.timestamp for each in records(log)] == [WALL_MS + 1, WALL_MS + 7, WALL_MS + 8]
    assert stamped.max_timestamp == WALL_MS + 8
    before = contents(log)
    clean(log, wall_ms=WALL_MS + DAY - 1)
    assert contents(log) == before
    clean(log, wall_ms=WALL_MS + DAY)
    assert pairs(log) == {1: (B, b"1"), 3: (C, b"1")}
    assert [each.timestamp for each in records(log)] == [WALL_MS + 1, WALL_MS + 8]


def test_without_a_tombstone_no_horizon_is_set() -> None:
    log = fresh()
    put(log, (A, b"1"), (A, b"2"))
    roll(log)
    clean(log)
    assert [each.attributes & DELETE_HORIZON_BIT for each in headers(log)] == [0]


def test_a_record_without_a_key_goes_and_is_counted() -> None:
    log = open_log(new_disk())
    put(log, (None, b"1"), (A, b"1"))
    roll(log)
    log.config = compacted()
    assert clean(log).stats.invalid_records == 1
    assert keys(records(log)) == [A]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_keeps_codec_sequences_epoch_and_both_its_offsets(codec: Codec) -> None:
    log = fresh()
    put(
        log,
        *[(A, b"%d" % n) for n in range(9)],
        (B, bytes(50)),
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
    )
    put(log, (A, b"x"))
    before = headers(log)[0]
    roll(log)
    clean(log)
    after = headers(log)[0]
    assert keys(records(log)) == [B, A]
    kept = (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "attributes",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "base_timestamp",
    )
    assert [getattr(after, each) for each in kept] == [getattr(before, each) for each in kept]
    assert (after.last_offset, after.last_sequence, after.record_count) == (9, 49, 1)
    assert all_sound(log)


def all_sound(log: Log) -> bool:
    data = contents(log)
    ends = -1
    for position, header in walk(data):
        whole = memoryview(data)[position : position + header.size]
        found = decode_batch(whole)
        assert check_crc(whole)
        assert header.base_offset > ends
        assert len(found) == header.record_count
        assert all(header.base_offset <= each.offset <= header.last_offset for each in found)
        ends = header.last_offset
    return True


def test_the_last_batch_of_an_active_producer_stays_empty() -> None:
    log = fresh()
    put(log, (A, b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (A, b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(log, (A, b"3"))
    roll(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(1, 0), (2, 1)]
    assert headers(log)[0].last_sequence == 1
    # Once the producer is forgotten its batch goes as well.
    log.producers.producers.clear()
    clean(log)
    assert [each.base_offset for each in headers(log)] == [2]


def test_no_batch_stays_only_because_its_segment_ends_there() -> None:
    """Cleaner.cleanInto: a fetch that starts at an empty batch may get nothing else."""
    log = fresh(segment_bytes=200)
    for number in range(6):
        put(log, (A, b"%100d" % number))
    roll(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(5, 1)]
    sizes = {each.base_offset: each.size for each in log.segments}
    assert list(sizes) == [0, 1, 2, 3, 4, 5, 6]
    assert [base for base, size in sizes.items() if size] == [5]
    # Kafka makes the indexes of a segment anew where one is missing, and says so.
    assert len(names(log, ".index")) == len(names(log, ".timeindex")) == 6
    assert pairs(log) == {5: (A, b"%100d" % 5)}
    log.close()
    again = open_log(log.local.file_system, log.config, clean=True, recovery_point=6)
    assert again.recovery.clean
    assert not again.recovery.repairs
    assert (pairs(again), again.log_end_offset) == ({5: (A, b"%100d" % 5)}, 6)
    again.update_high_watermark(6)
    clean(again)
    assert bases(again) == [0, 6]


def test_the_last_batch_of_a_round_stays_though_nothing_is_left_of_it() -> None:
    """Or a follower that begins anew would never know how far the log goes."""
    log = fresh()
    put(log, (A, b"1"))
    put(log, (None, b"without a key"), at=1)  # from a leader that let it in
    roll(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(0, 1), (1, 0)]
    # It is of no time: kafka-dump-log looks for a record behind each entry of the time index.
    assert headers(log)[-1].max_timestamp == NO_TIMESTAMP
    # The round after it has another end.
    put(log, (B, b"1"))
    roll(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(0, 1), (2, 1)]


def test_unsynced_segments_are_flushed_before_they_are_replaced() -> None:
    """Below the end of a cleaned segment a gap between segments is taken for compaction's."""
    log = fresh()
    for key in (A, B, A):
        put(log, (key, bytes(900)))
        roll(log)
    put(log, (C, b"1"))
    assert (log.recovery_point, log.local.compaction_gaps.below) == (0, 0)
    cleaning = begin(log)
    while not cleaning.ready:
        cleaning.advance(1)
    assert not cleaning.sources_are_synced
    cleaning.commit()
    assert (log.recovery_point, log.local.compaction_gaps.below) == (4, 1)
    finish(cleaning)
    assert log.local.compaction_gaps.below == 3


def test_small_segments_become_one() -> None:
    log = fresh(segment_bytes=1000)
    for number in range(40):
        put(log, (A, bytes(100)), (b"%d" % number, b""))
    roll(log)
    many = len(log.segments)
    clean(log)
    clean(log)
    assert len(log.segments) < many
    assert len(pairs(log)) == 41


@pytest.mark.conformance("UL-29")
def test_compaction_keeps_one_snapshot_for_each_segment_but_the_first() -> None:
    log = fresh()
    for number in range(4):
        put(log, (A, b"%d" % number), producer_id=7, producer_epoch=0, base_sequence=number)
        roll(log)
    assert len(log.producers.snapshots) == 4
    clean(log)
    assert log.producers.snapshots == bases(log)[1:]
    assert [int(each[:20]) for each in names(log, ".snapshot")] == bases(log)[1:]


# Transactions.


def transactional(
    log: Log, producer_id: int, *given: tuple[bytes, bytes], sequence: int = 0
) -> int:
    return put(
        log,
        *given,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def test_aborted_records_go_and_replace_nothing() -> None:
    log = fresh()
    put(log, (A, b"1"))
    transactional(log, 7, (A, b"2"))
    transactional(log, 8, (B, b"1"))
    end_transaction(log, 7, commit=False)
    end_transaction(log, 8, commit=True)
    roll(log)
    clean(log)
    assert pairs(log) == {0: (A, b"1"), 2: (B, b"1")}


def test_an_abort_marker_and_its_entry_stay_a_round_longer_than_its_data() -> None:
    log = fresh(delete_retention_ms=DAY)
    transactional(log, 7, (A, b"1"))
    marker = end_transaction(log, 7, commit=False)
    put(log, (A, b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    roll(log)
    put(log, (C, b"1"))
    clean(log)
    assert [each.offset for each in records(log, control=True)] == [marker]
    assert aborted(log) == [(7, 0, marker)]
    assert headers(log)[0].delete_horizon_ms is None
    clean(log)
    # Nothing of it is left: the marker is given its time, and the entry goes.
    assert headers(log)[0].delete_horizon_ms == WALL_MS + DAY
    assert aborted(log) == []
    clean(log, wall_ms=WALL_MS + DAY)
    assert records(log, control=True) == []
    assert list(pairs(log)) == [2, 3]


def aborted(log: Log) -> list[tuple[int, int, int]]:
    return [
        (each.producer_id, each.first_offset, each.last_offset)
        for segment in log.segments
        for each in segment.transaction_index.entries()
    ]


def test_a_commit_marker_stays_as_long_as_data_of_it_does() -> None:
    log = fresh(delete_retention_ms=0)
    transactional(log, 7, (A, b"1"), (B, b"1"))
    end_transaction(log, 7, commit=True)
    put(log, (B, b"2"), producer_id=7, producer_epoch=0, base_sequence=2)
    roll(log)
    for _ in range(3):
        clean(log)
    assert len(records(log, control=True)) == 1
    put(log, (A, b"2"))
    roll(log)
    clean(log)  # the data goes
    assert len(records(log, control=True)) == 1
    clean(log)  # the marker is given its time, which is over at once
    clean(log)
    assert records(log, control=True) == []
    assert list(pairs(log)) == [3, 4]


def test_a_transaction_over_two_segments_is_aborted_in_both() -> None:
    log = fresh(segment_bytes=300)
    transactional(log, 7, (A, bytes(150)))
    transactional(log, 7, (B, bytes(150)), sequence=1)
    transactional(log, 7, (C, bytes(150)), sequence=2)
    put(log, (A, b"1"))
    end_transaction(log, 7, commit=False)
    roll(log)
    clean(log)
    assert pairs(log) == {3: (A, b"1")}
    log.close()
    again = open_log(log.local.file_system, log.config, clean=True)
    assert aborted(again) == [(7, 0, 4)]


def test_transaction_indexes_are_read_by_the_round_and_not_by_its_plan() -> None:
    """The plan is made on an event loop, and the indexes may be long."""
    log = fresh(segment_bytes=300)
    transactional(log, 7, (A, bytes(150)))
    roll(log)
    put(log, (B, b"1"))
    end_transaction(log, 7, commit=False)  # in the active segment
    log.close()
    disk = log.local.file_system
    assert isinstance(disk, FaultyFileSystem)
    log = open_log(disk, log.config, clean=True)
    log.update_high_watermark(log.log_end_offset)
    disk.inject(Fault(operation="open", names="*.txnindex"))
    cleaning = begin(log)
    with pytest.raises(OSError, match="Input/output error"):
        cleaning.advance(1)
    finish(begin(log))
    assert pairs(log) == {1: (B, b"1")}


def test_a_log_whose_transaction_index_is_damaged_cannot_be_cleaned() -> None:
    log = fresh()
    transactional(log, 7, (A, b"1"))
    end_transaction(log, 7, commit=False)
    roll(log)
    disk = log.local.file_system
    assert isinstance(disk, FaultyFileSystem)
    cleaning = begin(log)
    disk.disk.corrupt(f"{log.directory}/{0:020d}.txnindex", 0, b"\xff")
    with pytest.raises(CorruptRecordError, match="version"):
        cleaning.advance(1)


# The map.


def test_a_full_map_ends_the_round_early_and_the_next_goes_on_from_there() -> None:
    log = fresh()
    for number in range(30):
        put(log, (b"%d" % number, b"1"), (A, b"%d" % number))
    roll(log)
    first = clean(log, memory=240)  # ten slots, nine of them used
    assert first.end_offset < log.log_end_offset
    checkpoint, rounds = first.end_offset, 1
    while checkpoint < log.log_end_offset:
        following = clean(log, checkpoint=checkpoint, memory=240)
        assert following.end_offset > checkpoint
        checkpoint, rounds = following.end_offset, rounds + 1
    assert rounds > 3
    found = pairs(log)
    assert len(found) == 31
    assert found[59] == (A, b"29")


def test_clean_records_are_copied_without_being_indexed_again() -> None:
    log = fresh()
    put(log, (A, b"1"), (B, b"1"))
    roll(log)
    put(log, (B, b"2"))
    roll(log)
    clean(log, checkpoint=2)
    assert pairs(log) == {0: (A, b"1"), 2: (B, b"2")}


# What happens to the log meanwhile.


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
    """And a group that ends with a piece has nothing left to write."""
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
