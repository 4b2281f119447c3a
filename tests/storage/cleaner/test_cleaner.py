"""The records that a round of compaction keeps: of keys, of tombstones and of transactions."""

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import DELETE_HORIZON_BIT, NO_TIMESTAMP, check_crc, walk
from storage.batch.records import decode_batch
from storage.errors import CorruptRecordError
from storage.log.log import Log
from storage.testing import Fault, FaultyFileSystem
from tests.storage.cleaning import (
    aborted,
    begin,
    clean,
    compacted,
    end_transaction,
    finish,
    fresh,
    keys,
    names,
    pairs,
    put,
    records,
    roll,
    transactional,
)
from tests.storage.logs import WALL_MS, bases, contents, headers, new_disk, open_log

A, B, C = b"a", b"b", b"c"
DAY = 24 * 60 * 60 * 1000


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
