"""Aborted transactions: the file, and what a log keeps in it through everything that happens.

The file is long because every operation of a log has a case that the index must follow.
"""

import contextlib
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    encode_control_batch,
    read_marker,
)
from storage.errors import (
    CorruptIndexError,
    InvalidProducerEpochError,
    TransactionCoordinatorFencedError,
)
from storage.log.index.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    aborted_between,
)
from storage.log.log import Log
from storage.log.segment import TRANSACTION_INDEX_SUFFIX
from storage.testing import FaultyFileSystem
from tests.storage.logs import WALL_MS, batch, contents, fill, joined, lead, new_disk, open_log

PATH = "/d/00000000000000000000.txnindex"
FIRST = AbortedTransaction(producer_id=7, first_offset=0, last_offset=10, last_stable_offset=5)
SECOND = AbortedTransaction(producer_id=8, first_offset=5, last_offset=20, last_stable_offset=13)
THIRD = AbortedTransaction(producer_id=7, first_offset=13, last_offset=30, last_stable_offset=31)


def index_of(*entries: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex.open(new_disk(), PATH)
    for entry in entries:
        index.append(entry)
    return index


# The file.


def test_an_index_of_nothing_is_no_file() -> None:
    index = index_of()
    assert list(index.entries()) == []
    index.truncate_to(0)
    index.reset()
    index.sanity_check(0)
    assert not index.file_system.exists(PATH)


def test_entries_stand_as_kafka_writes_them() -> None:
    index = index_of(FIRST, SECOND)
    expected = "0000 0000000000000007 0000000000000000 000000000000000a 0000000000000005"
    file = index.file_system.open(PATH)
    assert file.read(0, 34) == bytes.fromhex(expected)
    assert file.size() == 68
    again = TransactionIndex.open(index.file_system, PATH)
    assert list(again.entries()) == [FIRST, SECOND]
    assert (again.last_offset, again.entry_count) == (20, 2)
    again.append(THIRD)
    assert list(again.entries()) == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize(
    ("offset", "left"), [(31, 3), (30, 2), (21, 2), (20, 1), (10, 0), (0, 0), (11, 1)]
)
def test_truncation_drops_what_ended_there_or_later(offset: int, left: int) -> None:
    index = index_of(FIRST, SECOND, THIRD)
    index.truncate_to(offset)
    kept = [FIRST, SECOND, THIRD][:left]
    for each in (index, TransactionIndex.open(index.file_system, PATH)):
        assert list(each.entries()) == kept
        assert each.last_offset == (kept[-1].last_offset if kept else -1)
    index.reset()
    assert list(index.entries()) == []


@pytest.mark.parametrize(
    ("start", "upper_bound", "found"),
    [
        (0, 1, [FIRST]),
        (0, 6, [FIRST, SECOND]),
        (10, 14, [FIRST, SECOND, THIRD]),
        (11, 13, [SECOND]),
        (21, 40, [THIRD]),
        (31, 40, []),
    ],
)
def test_a_search_finds_what_overlaps(
    start: int, upper_bound: int, found: list[AbortedTransaction]
) -> None:
    index = index_of(FIRST, SECOND, THIRD)
    assert aborted_between([index], start, upper_bound) == found
    parted = [index_of(FIRST), index_of(), index_of(SECOND, THIRD)]
    assert aborted_between(parted, start, upper_bound) == found


def test_a_search_ends_where_nothing_later_can_overlap() -> None:
    looked_at = []

    class Watched(TransactionIndex):
        def entries(self) -> "contextlib.nullcontext[None]":  # type: ignore[override]
            looked_at.append(self)
            return iter([THIRD])  # type: ignore[return-value]

    later = Watched.open(new_disk(), PATH)
    aborted_between([index_of(FIRST, SECOND), later], 0, 13)
    assert looked_at == []
    aborted_between([index_of(FIRST, SECOND), later], 0, 14)
    assert looked_at == [later]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data + b"\0",
        lambda data: b"\0\1" + data[2:],
        lambda data: data + data,
        lambda data: bytes(34) + data,
    ],
    ids=["torn", "a newer version", "not in order", "before the segment"],
)
def test_a_damaged_transaction_index_fails_its_sanity_check(
    damage: Callable[[bytes], bytes],
) -> None:
    system = index_of(FIRST, SECOND).file_system
    file = system.open(PATH)
    file.write(0, damage(file.read(0, 100)))
    with pytest.raises(CorruptIndexError):
        TransactionIndex.open(system, PATH).sanity_check(5)


def test_a_transaction_index_cut_by_others_is_corrupt() -> None:
    index = index_of(FIRST, SECOND)
    index.file_system.open(PATH).truncate(40)
    with pytest.raises(CorruptIndexError, match="cut short"):
        list(index.entries())


# The log.


def data(log: Log, producer: int, count: int = 1, *, size: int = 10) -> None:
    """Transactional records, as a leader would send them."""
    log.append_as_follower(
        batch(
            count,
            at=log.log_end_offset,
            epoch=0,
            size=size,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def marker(kind: ControlRecordType, producer: int, offset: int) -> memoryview:
    return memoryview(
        bytearray(
            encode_control_batch(
                EndTransactionMarker(kind, coordinator_epoch=0),
                timestamp=WALL_MS,
                producer_id=producer,
                producer_epoch=0,
                base_offset=offset,
                leader_epoch=0,
            )
        )
    )


def end(log: Log, kind: ControlRecordType, producer: int) -> None:
    log.append_as_follower(marker(kind, producer, log.log_end_offset))


def abort(log: Log, producer: int) -> None:
    end(log, ControlRecordType.ABORT, producer)


def commit(log: Log, producer: int) -> None:
    end(log, ControlRecordType.COMMIT, producer)


def aborted(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.transaction_index.entries()]


def overlapping(log: Log) -> list[AbortedTransaction]:
    """Two aborted, a third one committed after them, plain records between."""
    data(log, 1, 5)
    fill(log, 3)
    data(log, 2, 8)
    data(log, 1, 13)
    abort(log, 1)
    fill(log, 6)
    data(log, 3, 20)
    data(log, 2, 18)
    abort(log, 2)
    data(log, 3, 10)
    commit(log, 3)
    return aborted(log)


EXPECTED = [
    AbortedTransaction(1, first_offset=0, last_offset=29, last_stable_offset=8),
    AbortedTransaction(2, first_offset=8, last_offset=74, last_stable_offset=36),
]
END = 86


@pytest.mark.conformance("UL-92")
def test_a_follower_keeps_the_same_index_as_its_leader() -> None:
    log = open_log(new_disk())
    assert overlapping(log) == EXPECTED
    follower = open_log(new_disk(2))
    follower.append_as_follower(memoryview(contents(log)))
    assert aborted(follower) == EXPECTED
    assert follower.log_end_offset == END
    for high_watermark, stable in [(29, 0), (30, 8), (74, 8), (75, 36), (END, END)]:
        follower.update_high_watermark(high_watermark)
        assert follower.last_stable_offset == stable


def test_a_read_is_given_the_aborted_transactions_that_overlap_it() -> None:
    log = open_log(new_disk())
    overlapping(log)
    log.update_high_watermark(END)

    def aborted_at(offset: int, size: int = 1) -> list[int]:
        found = log.read(offset, size, max_offset_exclusive=log.last_stable_offset, min_one=True)
        return [each.producer_id for each in log.aborted_transactions(found)]

    assert aborted_at(0, 1 << 20) == [1, 2]
    assert aborted_at(31) == [2]
    assert aborted_at(76) == []
    assert 2 in aborted_at(8)


@pytest.mark.conformance("LL-29")
@pytest.mark.conformance("LL-29b")
@pytest.mark.parametrize("recovery_point", [0, 60, END])
def test_indexes_that_are_gone_are_made_again(recovery_point: int) -> None:
    system = new_disk()
    log = open_log(system)
    overlapping(log)
    last = log.segments.active.base_offset
    log.flush()
    system.detach()
    system = system.reopen()
    for name in system.list_directory("/d/t-0"):
        recovered = int(name[:20]) >= last or recovery_point == 0 if name[:20].isdigit() else False
        if recovered and name.endswith((TRANSACTION_INDEX_SUFFIX, ".index")):
            system.remove(f"/d/t-0/{name}")
    again = open_log(system, recovery_point=recovery_point)
    assert aborted(again) == EXPECTED
    again.update_high_watermark(END)
    assert again.producers.first_unstable_offset is None


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_made_again(clean: bool) -> None:
    system = new_disk()
    log = open_log(system)
    overlapping(log)
    log.close()
    for name in system.list_directory("/d/t-0"):
        if name.endswith(TRANSACTION_INDEX_SUFFIX):
            system.open(f"/d/t-0/{name}").write(0, b"\xff" * 35)
    again = open_log(system, clean=clean, recovery_point=END)
    assert aborted(again) == EXPECTED
    assert again.recovery.segments_recovered > 0


def test_an_index_lasts_once_its_segment_is_below_the_recovery_point() -> None:
    system = new_disk()
    log = open_log(system)
    data(log, 1)
    log.flush()
    abort(log, 1)
    log.roll()
    fill(log, 3)
    log.roll()
    log.flush()
    entries = aborted(log)
    system.crash()
    assert aborted(open_log(system.reopen(), recovery_point=5)) == entries != []


@pytest.mark.parametrize("seed", range(20))
def test_an_index_made_last_of_all_lasts_through_a_clean_shutdown(seed: int) -> None:
    system = new_disk(seed)
    log = open_log(system)
    for _ in range(3):
        data(log, 1, size=80)
    assert log.segments.active.offset_index.entry_count > 0
    log.flush()
    abort(log, 1)
    log.close()
    system.crash()
    again = open_log(system.reopen(), clean=True, recovery_point=4)
    assert aborted(again) == [AbortedTransaction(1, 0, 3, 4)]


@pytest.mark.conformance("UL-99")
def test_the_first_unstable_offset_goes_from_one_transaction_to_the_next() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    data(log, 1, 3)
    data(log, 2, 2)
    fill(log, 2)

    def first_unstable() -> int | None:
        return log.producers.first_unstable_offset

    assert first_unstable() == 2
    abort(log, 1)
    assert first_unstable() == 2
    log.update_high_watermark(log.log_end_offset)
    assert first_unstable() == 5
    abort(log, 2)
    assert first_unstable() == 5
    log.update_high_watermark(log.log_end_offset)
    assert first_unstable() is None
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.conformance("UL-34")
def test_an_aborted_transaction_leaves_nothing_unstable() -> None:
    system = new_disk()
    log = open_log(system)
    data(log, 1, 3)
    abort(log, 1)
    log.update_high_watermark(4)
    assert log.producers.first_unstable_offset is None
    log.close()
    again = open_log(system, clean=True, recovery_point=4)
    again.update_high_watermark(4)
    assert again.producers.first_unstable_offset is None


@pytest.mark.conformance("UL-96")
@pytest.mark.conformance("UL-97")
@pytest.mark.parametrize("rolls", [False, True])
def test_the_last_stable_offset_is_not_below_the_log_start(rolls: bool) -> None:
    log = open_log(new_disk())
    data(log, 1, 5)
    if rolls:
        log.roll()
    data(log, 1, 5)
    log.update_high_watermark(10)
    assert log.last_stable_offset == 0
    log.increment_log_start_offset(8 if rolls else 5)
    assert log.delete_segments_below_log_start() == rolls
    assert log.last_stable_offset == (8 if rolls else 5)


@pytest.mark.conformance("UL-8")
def test_read_committed_sees_what_is_stable_and_replicated() -> None:
    log = open_log(new_disk())

    def seen() -> int:
        """Up to where read-committed reads, and that nothing is given behind it."""
        stable = log.last_stable_offset
        for offset in range(log.log_end_offset + 1):
            found = log.read(offset, 1 << 20, max_offset_exclusive=stable, min_one=True)
            assert (found.records is not None) == (offset < stable)
        return stable

    data(log, 1, 8)
    data(log, 2, 4)
    log.update_high_watermark(12)
    assert seen() == 0
    commit(log, 1)
    assert seen() == 0
    log.update_high_watermark(13)
    assert seen() == 8
    abort(log, 2)
    assert seen() == 8
    log.update_high_watermark(14)
    assert seen() == 14


def led_end(log: Log, *, producer_epoch: int = 0, coordinator_epoch: int = 0) -> None:
    """Append what a transaction's coordinator has its leader write."""
    ended = EndTransactionMarker(ControlRecordType.COMMIT, coordinator_epoch)
    encoded = encode_control_batch(
        ended, timestamp=WALL_MS, producer_id=1, producer_epoch=producer_epoch
    )
    log.append_as_leader(
        memoryview(bytearray(encoded)), leader_epoch=0, wall_ms=WALL_MS, from_client=False
    )


@pytest.mark.conformance("UL-93")
@pytest.mark.conformance("UL-94")
@pytest.mark.parametrize("empty", [False, True])
def test_an_older_coordinator_is_fenced(empty: bool) -> None:
    log = open_log(new_disk())
    if not empty:
        data(log, 1)
    led_end(log, coordinator_epoch=5)
    if not empty:
        data(log, 1)
    end_before = log.log_end_offset
    with pytest.raises(TransactionCoordinatorFencedError):
        led_end(log, coordinator_epoch=4)
    assert log.log_end_offset == end_before
    led_end(log, coordinator_epoch=5)


@pytest.mark.conformance("UL-95")
def test_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    log = open_log(new_disk())
    data(log, 1)
    led_end(log, producer_epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        led_end(log, producer_epoch=0)


@pytest.mark.conformance("LL-5")
def test_an_older_coordinator_s_marker_in_the_log_does_not_stop_recovery() -> None:
    """It was written when its producer had been forgotten."""
    system = new_disk()
    log = open_log(system)
    data(log, 1)
    led_end(log, coordinator_epoch=5)
    log.producers.remove_expired(WALL_MS * 2)
    assert not log.producers.producers
    led_end(log, coordinator_epoch=4)
    system.detach()
    again = open_log(system.reopen())
    assert again.log_end_offset == 3
    assert again.producers.producers[1].coordinator_epoch == 4


# Producers and the log start.


def by(log: Log, producer: int, sequence: int) -> None:
    lead(log, producer_id=producer, producer_epoch=0, base_sequence=sequence)


@pytest.mark.conformance("LL-8")
@pytest.mark.conformance("LL-9")
@pytest.mark.parametrize("boundary", [False, True], ids=["inside a segment", "between two"])
def test_producers_below_the_log_start_are_known_while_the_segment_is_there(boundary: bool) -> None:
    system = new_disk()
    log = open_log(system)
    by(log, 1, 0)
    if boundary:
        log.roll()
    by(log, 2, 7)
    assert set(log.producers.producers) == {1, 2}
    log.update_high_watermark(2)
    log.increment_log_start_offset(1)
    assert log.delete_old_segments(WALL_MS) == boundary
    assert set(log.producers.producers) == {1, 2}
    system.detach()
    again = open_log(system.reopen(), log_start_offset=1)
    assert set(again.producers.producers) == ({2} if boundary else {1, 2})
    assert again.producers.producers[2].last_sequence == 7


@pytest.mark.conformance("UL-28")
@pytest.mark.conformance("UL-28b")
@pytest.mark.conformance("UL-32")
def test_snapshots_below_the_log_start_go_and_their_producers_stay() -> None:
    log = open_log(new_disk())
    for producer in range(3):
        by(log, producer, 0)
        log.roll()
    by(log, 3, 0)
    assert log.producers.snapshots == [1, 2, 3]
    log.update_high_watermark(4)
    log.increment_log_start_offset(2)
    assert log.delete_old_segments(WALL_MS) == 2
    assert log.producers.snapshots == [2, 3]
    log.increment_log_start_offset(3)
    assert log.delete_old_segments(WALL_MS) == 1
    assert log.producers.snapshots == [3]
    assert set(log.producers.producers) == {0, 1, 2, 3}


# Whatever happens.


def naive(log: Log) -> list[AbortedTransaction]:
    """Return the aborted transactions, from the batches of the log alone."""
    open_since: dict[int, int] = {}
    found = []
    held = contents(log)
    for position, header in walk(held):
        if header.is_control:
            said = read_marker(held[position : position + header.size])
            first = open_since.pop(header.producer_id, None)
            if first is not None and said is not None and said.type is ControlRecordType.ABORT:
                stable = min(open_since.values(), default=header.base_offset + 1)
                found.append(
                    AbortedTransaction(header.producer_id, first, header.base_offset, stable)
                )
        elif header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
    return found


def check(log: Log) -> None:
    expected = naive(log)
    assert aborted(log) == expected
    for earlier, later in pairwise([0, *log.segments.base_offsets[1:], log.log_end_offset]):
        offset = (earlier + later) // 2
        found = log.read(offset, 300, max_offset_exclusive=log.log_end_offset, min_one=True)
        if found.records is None:
            continue
        read = list(walk(found.records.read()))
        upper_bound = read[-1][1].next_offset
        aborted_at = log.aborted_transactions(found)
        assert set(aborted_at) <= {each for each in expected if each.last_offset >= offset}
        assert set(aborted_at) >= {each for each in expected if each.overlaps(offset, upper_bound)}


def step(chance: random.Random, log: Log) -> None:
    producer = chance.randrange(3)
    match chance.choice("dddddaaccprtf"):
        case "d":
            data(log, producer, chance.randrange(1, 4), size=chance.choice((10, 200)))
        case "a":
            abort(log, producer)
        case "c":
            commit(log, producer)
        case "p":
            # Several at once, an end among them.
            at = log.log_end_offset
            more = batch(1, at=at + 2, epoch=0)
            log.append_as_follower(joined(marker(ControlRecordType.ABORT, producer, at), more))
        case "r":
            log.roll()
        case "t":
            log.truncate_to(max(0, log.log_end_offset - chance.randrange(8)))
        case _:
            log.flush()


def open_again(system: FaultyFileSystem, log: Log, chance: random.Random) -> Log:
    """Shut down, killed or without power; the recovery point was written down then or before."""
    match chance.choice("skp"):
        case "s":
            log.close()
            return open_log(system, clean=True, recovery_point=log.recovery_point)
        case "k":
            system.detach()
        case _:
            system.crash()
    log.close_uncleanly()
    return open_log(system.reopen(), recovery_point=log.recovery_point)


@given(seed=st.integers(0, 2**32))
def test_the_index_says_what_the_batches_say(seed: int) -> None:
    chance = random.Random(seed)
    system = new_disk(seed)
    log = open_log(system)
    log.flush()
    for _ in range(3):
        for _ in range(chance.randrange(25)):
            step(chance, log)
        check(log)
        log = open_again(system, log, chance)
        assert isinstance(log.local.file_system, FaultyFileSystem)
        system = log.local.file_system
        check(log)
