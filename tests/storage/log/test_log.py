"""The marks of a log (log start, high watermark, log end), and truncation."""

import itertools

import pytest

from storage.errors import KafkaStorageError, OffsetOutOfRangeError
from storage.log.log import Log
from storage.types import OffsetAndEpoch
from tests.storage.logs import (
    batch,
    committed,
    contents,
    end_transaction,
    fill,
    lead,
    new_disk,
    offsets,
    open_log,
    read,
    small_config,
)

ID = b"\7" * 16


def first_unstable(log: Log) -> int | None:
    return log.producers.first_unstable_offset


# The marks.


@pytest.mark.conformance("UL-6")
def test_the_high_watermark_stays_inside_the_log() -> None:
    log = open_log(new_disk())
    assert log.high_watermark == 0
    lead(log, 3)
    assert log.high_watermark == 0
    assert log.update_high_watermark(1)
    assert log.update_high_watermark(5)
    assert log.high_watermark == 3
    log.append_as_follower(batch(3, at=3))
    log.update_high_watermark(6)
    assert log.high_watermark == 6
    log.truncate_to(3)
    assert log.high_watermark == 3
    lead(log)
    assert log.high_watermark == 3
    log.truncate_fully_and_start_at(4)
    assert log.high_watermark == log.log_end_offset == log.log_start_offset == 4


@pytest.mark.conformance("UL-111")
@pytest.mark.conformance("UL-112")
def test_a_listener_is_called_with_the_new_high_watermark_in_place() -> None:
    heard: list[int] = []

    log = open_log(new_disk())
    log.on_moved = lambda: heard.append(log.high_watermark)
    lead(log, 3)
    lead(log, 3)
    log.update_high_watermark(4)
    log.update_high_watermark(4)
    log.truncate_to(3)
    lead(log, 3)
    log.truncate_fully_and_start_at(4)
    assert [each for each, _ in itertools.groupby(heard)] == [0, 4, 3, 4]


@pytest.mark.conformance("UL-90")
def test_no_committed_read_sees_an_open_transaction_wherever_the_high_watermark_is() -> None:
    log = open_log(new_disk(), small_config(segment_bytes=1 << 20))
    sequence = 0
    while log.log_end_offset < 50:
        started = log.log_end_offset
        lead(log, producer_id=15, producer_epoch=0, base_sequence=sequence, transactional=True)
        sequence += 1
        for mark in range(started, log.log_end_offset + 1):
            log.update_high_watermark(mark)
            assert log.last_stable_offset <= started
            assert committed(log, started) == b""
        end_transaction(log, 15, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.conformance("UL-107")
def test_an_update_of_the_high_watermark_returns_whether_it_changed() -> None:
    log = open_log(new_disk())
    lead(log, 100, size=1)
    assert [log.update_high_watermark(each) for each in (99, 99, 100, 100, 101)] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.conformance("UL-105")
def test_the_log_start_is_not_raised_past_the_high_watermark() -> None:
    log = open_log(new_disk())
    fill(log, 20)
    log.update_high_watermark(10)
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(11)
    assert log.increment_log_start_offset(10)
    assert not log.increment_log_start_offset(9)
    with pytest.raises(OffsetOutOfRangeError):
        read(log, 9)


@pytest.mark.conformance("UL-75")
def test_segments_below_the_log_start_are_deleted() -> None:
    log = open_log(new_disk())
    for _ in range(2):
        fill(log, 5)
        log.roll()
    fill(log, 5)
    log.update_high_watermark(15)
    for start, left in [(1, 3), (6, 2), (15, 1)]:
        log.increment_log_start_offset(start)
        log.delete_segments_below_log_start()
        assert (len(log.segments), log.log_start_offset) == (left, start)


@pytest.mark.conformance("UL-85")
@pytest.mark.conformance("UL-86")
@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([(0, 0), (1, 5), (2, 10)], ["1@5", "2@10"]),
        ([(0, 0), (1, 7), (2, 10)], ["0@5", "1@7", "2@10"]),
    ],
)
def test_the_epochs_follow_the_log_start(entries: list[tuple[int, int]], left: list[str]) -> None:
    log = open_log(new_disk())
    for at in range(15):
        epoch = max(epoch for epoch, start in entries if start <= at)
        log.append_as_follower(batch(at=at, epoch=epoch))
    log.update_high_watermark(15)
    log.increment_log_start_offset(5)
    assert [str(entry) for entry in log.leader_epoch_cache.entries] == left


@pytest.mark.conformance("UL-88")
def test_without_transactions_the_log_is_stable_up_to_the_high_watermark() -> None:
    log = open_log(new_disk())
    lead(log)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_an_open_transaction_holds_the_last_stable_offset_until_its_end_is_replicated() -> None:

    log = open_log(new_disk())
    fill(log, 3)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 3
    end_transaction(log, 4, commit=True)
    assert log.last_stable_offset == 3
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


# Truncating.


@pytest.mark.conformance("UL-55")
def test_truncation_and_refilling() -> None:
    log = open_log(new_disk())
    fill(log, 50)
    size = log.size
    for offset in (50, 51):
        assert not log.truncate_to(offset)
        assert (log.log_end_offset, log.size) == (50, size)
    assert log.truncate_to(25)
    assert offsets(contents(log)) == list(range(25))
    log.truncate_to(0)
    assert (log.log_end_offset, log.size) == (0, 0)
    fill(log, 50)
    assert (log.log_end_offset, log.size) == (50, size)
    log.truncate_fully_and_start_at(41)
    assert (log.log_end_offset, log.size) == (41, 0)
    fill(log, 1)
    log.truncate_to(0)
    assert (log.log_end_offset, log.size) == (0, 0)


def test_the_epoch_of_a_batch_that_is_cut_inside_stays_known_up_to_the_cut() -> None:
    file_system = new_disk()
    log = open_log(file_system)
    lead(log, 5, epoch=0)
    lead(log, 5, epoch=1)
    log.truncate_to(7)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=1)
    log.append_as_follower(batch(3, at=7, epoch=2))
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(offset=5, leader_epoch=0)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=1)
    log.close()
    read_again = open_log(file_system, recovery_point=0)
    assert read_again.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=0)


def test_truncation_below_zero_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="truncation to -1"):
        open_log(new_disk()).truncate_to(-1)


@pytest.mark.conformance("UL-19")
def test_truncation_to_the_end_drops_an_epoch_that_has_written_nothing() -> None:
    for offset in (1, 2):
        log = open_log(new_disk())
        lead(log, epoch=0)
        log.leader_epoch_cache.assign(1, 1)
        assert log.latest_epoch == 1
        assert not log.truncate_to(offset)
        assert log.latest_epoch == 0


@pytest.mark.conformance("UL-87")
def test_the_epochs_follow_a_truncation() -> None:
    log = open_log(new_disk())
    for epoch, count in [(0, 10), (1, 6), (2, 6)]:
        fill(log, count, epoch=epoch)
    for offset, left in [(20, 3), (11, 2), (10, 1), (0, 0)]:
        log.truncate_to(offset)
        assert len(log.leader_epoch_cache.entries) == left


def test_where_an_epoch_ends() -> None:
    log = open_log(new_disk())
    fill(log, 10, epoch=0)
    fill(log, 6, epoch=3)
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(offset=10, leader_epoch=0)
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(offset=10, leader_epoch=0)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(offset=16, leader_epoch=3)
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(offset=-1, leader_epoch=-1)


@pytest.mark.conformance("UL-5")
def test_full_truncation_with_a_log_start_of_its_own() -> None:
    log = open_log(new_disk())
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    log.truncate_fully_and_start_at(2, 1)
    assert (log.log_end_offset, log.log_start_offset) == (2, 1)
    assert log.producers.producers == {}
    assert log.last_stable_offset == log.high_watermark == 2


@pytest.mark.conformance("UL-4")
@pytest.mark.conformance("UL-4b")
@pytest.mark.parametrize("fully", [False, True])
def test_truncation_forgets_transactions_that_it_cut_off(fully: bool) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 3)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    assert first_unstable(log) == 3
    system.detach()
    log = open_log(system.reopen())
    assert first_unstable(log) == 3
    if fully:
        log.truncate_fully_and_start_at(0)
    else:
        log.truncate_to(0)
    assert first_unstable(log) is None
    assert log.producers.producers == {}


@pytest.mark.conformance("UL-25")
def test_producers_follow_a_truncation() -> None:
    log = open_log(new_disk())
    for sequence in range(3):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.roll()
    for offset in (2, 1, 0):
        log.truncate_to(offset)
        assert log.producers.map_end_offset == offset
        assert (4 in log.producers.producers) == (offset > 0)
        if offset:
            assert log.producers.producers[4].last_sequence == offset - 1
        assert all(snapshot <= offset for snapshot in log.producers.snapshots)


@pytest.mark.conformance("UL-31")
def test_full_truncation_removes_the_snapshots() -> None:
    log = open_log(new_disk())
    for sequence in range(3):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.roll()
    log.truncate_fully_and_start_at(29)
    assert (log.producers.snapshots, len(log.segments), log.producers.map_end_offset) == ([], 1, 29)


# The rest.


@pytest.mark.conformance("UL-48")
@pytest.mark.conformance("UL-48c")
def test_the_topic_id_is_on_disk_before_the_first_record() -> None:
    system = new_disk()
    log = open_log(system, topic_id=ID)
    assert not system.exists("/d/t-0/partition.metadata")
    lead(log)
    assert system.exists("/d/t-0/partition.metadata")
    log.close()
    assert open_log(system, clean=True).topic_id == ID


def test_a_closed_log_refuses_everything() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    log.close()
    log.close()
    for use in (lambda: lead(log), lambda: read(log, 0), lambda: log.truncate_to(0)):
        with pytest.raises(KafkaStorageError, match="closed"):
            use()


def test_a_follower_that_was_sent_nothing_whole_appends_nothing() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    for nothing in (b"", bytes(batch(at=2))[:-1]):
        info = log.append_as_follower(memoryview(bytearray(nothing)))
        assert (info.first_offset, info.record_count) == (None, 0)
    assert log.log_end_offset == 2


def test_a_log_that_has_failed_says_so_when_it_is_closed_and_writes_nothing() -> None:
    """As UnifiedLog.close does: its caller must not take it for synced."""
    disk = new_disk()
    log = open_log(disk)
    fill(log, 2)
    log.fail(OSError("the disk is gone"))
    changes = disk.changes
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="the disk is gone"):
            log.close()
    assert log.closed
    assert disk.changes == changes


def test_a_read_without_records_has_no_aborted_transactions() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    nothing = log.read(2, 100, max_offset_exclusive=2, min_one=True)
    assert log.aborted_transactions(nothing) == []


def test_a_high_watermark_over_a_cut_that_is_not_synced_is_not_written_down() -> None:
    """Found by a swarm: the power failed, and what had been cut came back as committed."""
    disk = new_disk()
    log = open_log(disk)
    fill(log, 1)
    log.flush()
    log.truncate_to(0)
    fill(log, 2, epoch=1)
    log.update_high_watermark(2)
    assert (log.high_watermark, log.lasting_high_watermark) == (2, 0)
    log.flush()
    assert log.lasting_high_watermark == 2
