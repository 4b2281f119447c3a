"""Idempotent producers: what follows, what repeats, what is refused; and their snapshots.

The file is long because each rule of KIP-98 has its cases here.
"""

import struct
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import MAX_SEQUENCE, BatchHeader, read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
    read_marker,
)
from storage.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from storage.filesystem import OsFileSystem
from storage.producers.snapshot import (
    BatchMetadata,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
)
from storage.producers.state import CompletedTransaction, ProducerStateManager

PRODUCER = 7


def header(
    base_offset: int,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    batch = encode_batch(
        [Record(timestamp=timestamp, value=b"v")] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return read_header(batch)


def end(
    manager: ProducerStateManager,
    base_offset: int,
    kind: ControlRecordType = ControlRecordType.COMMIT,
    *,
    producer_id: int = PRODUCER,
) -> CompletedTransaction | None:
    batch = encode_control_batch(
        EndTransactionMarker(kind, 3),
        timestamp=1000,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=base_offset,
    )
    completed = manager.update(read_header(batch), read_marker(batch))
    if completed is not None:
        manager.complete_transaction(completed)
    return completed


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(OsFileSystem(), str(tmp_path))


def names(manager: ProducerStateManager) -> list[str]:
    return [path.name for path in Path(manager.directory).iterdir()]


def test_an_unknown_producer_may_start_anywhere(manager: ProducerStateManager) -> None:
    assert manager.check(header(0, 1234)) is None


def test_the_next_sequence_follows(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0, 3))
    assert manager.check(header(3, 3)) is None
    assert manager.map_end_offset == 3


@pytest.mark.conformance("UL-18")
@pytest.mark.parametrize("sequence", [4, 2, 0, 100])
def test_a_gap_or_a_step_back_is_out_of_order(manager: ProducerStateManager, sequence: int) -> None:
    manager.update(header(0, 0, 3))
    with pytest.raises(OutOfOrderSequenceError):
        manager.check(header(3, sequence))


@pytest.mark.conformance("UL-18b")
def test_an_older_epoch_is_refused(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0, epoch=5))
    with pytest.raises(InvalidProducerEpochError):
        manager.check(header(1, 1, epoch=4))


def test_a_new_epoch_starts_at_zero(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0, 3))
    with pytest.raises(OutOfOrderSequenceError):
        manager.check(header(3, 3, epoch=1))
    assert manager.check(header(3, 0, epoch=1)) is None
    manager.update(header(3, 0, epoch=1))
    assert manager.check(header(4, 1, epoch=1)) is None


def test_sequences_wrap_from_the_largest_to_zero(manager: ProducerStateManager) -> None:
    manager.update(header(0, MAX_SEQUENCE))
    assert manager.check(header(1, 0)) is None

    manager.update(header(1, 0, 2))
    manager.update(header(3, 2, 3))
    duplicate = manager.check(header(0, 0, 2))
    assert duplicate == BatchMetadata(1, 2, 1, 1000)


def test_a_batch_across_the_wrap_is_found_again(manager: ProducerStateManager) -> None:
    manager.update(header(10, MAX_SEQUENCE - 1, 4))
    duplicate = manager.check(header(0, MAX_SEQUENCE - 1, 4))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 13)
    assert manager.check(header(14, 2)) is None


def test_the_last_five_batches_are_known_again_with_their_offsets(
    manager: ProducerStateManager,
) -> None:
    for n in range(7):
        manager.update(header(10 * n, 2 * n, 2))

    for n in range(2, 7):
        duplicate = manager.check(header(0, 2 * n, 2))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (10 * n, 10 * n + 1)
    with pytest.raises(OutOfOrderSequenceError):
        manager.check(header(0, 2, 2))
    with pytest.raises(OutOfOrderSequenceError):
        manager.check(header(0, 12, 1))  # half of the last batch is no duplicate


def test_checking_changes_nothing(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0))
    before = encode_snapshot(manager.producers.values())
    manager.check(header(1, 1))
    manager.check(header(1, 0))
    manager.check(header(1, 0, producer_id=99))
    assert encode_snapshot(manager.producers.values()) == before


@pytest.mark.conformance("UL-37b", "UL-37c")
def test_a_replica_takes_what_its_leader_took(manager: ProducerStateManager) -> None:
    for offset in range(4):
        manager.update(header(offset, 0))
    manager.update(header(4, 17))
    assert manager.map_end_offset == 5
    assert manager.producers[PRODUCER].last_sequence == 17


@pytest.mark.conformance("UL-37")
def test_several_producers_are_kept_apart(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0, producer_id=1))
    manager.update(header(1, 0, producer_id=2))
    manager.update(header(2, 1, producer_id=1))
    assert {p: s.last_sequence for p, s in manager.producers.items()} == {1: 1, 2: 0}


@pytest.mark.conformance("UL-24c")
def test_a_compacted_batch_keeps_its_original_last_sequence(manager: ProducerStateManager) -> None:
    thinned = encode_batch(
        [Record(timestamp=1, key=b"k")],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        last_offset_delta=3,
    )
    empty = encode_batch(
        [], base_offset=4, producer_id=8, producer_epoch=0, base_sequence=0, last_offset_delta=1
    )
    manager.update(read_header(thinned))
    manager.update(read_header(empty))
    assert manager.producers[PRODUCER].last_sequence == 3
    assert manager.producers[8].last_sequence == 1
    assert manager.map_end_offset == 6


def test_a_silent_producer_expires_unless_it_has_a_transaction_open(
    manager: ProducerStateManager,
) -> None:
    manager.update(header(0, 0, producer_id=1, timestamp=1000))
    manager.update(header(1, 0, producer_id=2, timestamp=2000))
    manager.update(header(2, 0, producer_id=3, timestamp=1000, transactional=True))

    manager.remove_expired(1000 + manager.expiration_ms - 1)
    assert sorted(manager.producers) == [1, 2, 3]
    manager.remove_expired(1000 + manager.expiration_ms)
    assert sorted(manager.producers) == [2, 3]


def test_a_transaction_is_unstable_until_it_has_ended_below_the_high_watermark(
    manager: ProducerStateManager,
) -> None:
    manager.update(header(5, 0, producer_id=1, transactional=True))
    manager.update(header(6, 0, producer_id=2, transactional=True))
    manager.update(header(7, 1, producer_id=1, transactional=True))
    assert manager.first_unstable_offset == 5

    completed = end(manager, 8, ControlRecordType.ABORT, producer_id=1)
    assert completed == CompletedTransaction(
        producer_id=1, first_offset=5, last_offset=8, aborted=True
    )
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(8)
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(9)
    assert manager.first_unstable_offset == 6


def test_the_oldest_transaction_is_as_old_as_its_producers_last_batch(
    manager: ProducerStateManager,
) -> None:
    seen = [manager.oldest_transaction_timestamp]
    manager.update(header(5, 0, producer_id=1, transactional=True, timestamp=100))
    manager.update(header(6, 0, producer_id=2, transactional=True, timestamp=200))
    manager.update(header(7, 1, producer_id=1, transactional=True, timestamp=300))
    seen.append(manager.oldest_transaction_timestamp)
    for offset, producer_id in ((8, 1), (9, 2)):
        end(manager, offset, ControlRecordType.COMMIT, producer_id=producer_id)
        seen.append(manager.oldest_transaction_timestamp)
    assert seen == [None, 300, 200, None]


def test_the_last_stable_offset_of_a_completed_transaction_is_for_its_index_entry(
    manager: ProducerStateManager,
) -> None:
    manager.update(header(0, 0, producer_id=1, transactional=True))
    manager.update(header(1, 0, producer_id=2, transactional=True))
    completed = CompletedTransaction(producer_id=1, first_offset=0, last_offset=2, aborted=True)
    assert manager.last_stable_offset_after(completed) == 1
    completed = CompletedTransaction(producer_id=2, first_offset=1, last_offset=3, aborted=True)
    assert manager.last_stable_offset_after(completed) == 0
    end(manager, 2, producer_id=1)
    assert manager.last_stable_offset_after(completed) == 4


@pytest.mark.conformance("UL-9")
def test_a_commit_closes_the_transaction_and_notes_the_coordinator(
    manager: ProducerStateManager,
) -> None:
    manager.update(header(0, 0, transactional=True))
    state = manager.producers[PRODUCER]
    assert (state.transaction_first_offset, state.coordinator_epoch) == (0, -1)
    end(manager, 1)
    assert (state.transaction_first_offset, state.coordinator_epoch) == (None, 3)
    assert (state.producer_epoch, state.last_sequence) == (0, 0)


def test_an_empty_transaction_completes_nothing(manager: ProducerStateManager) -> None:
    assert end(manager, 0) is None
    assert manager.first_unstable_offset is None


def test_a_plain_batch_inside_a_transaction_is_refused(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0, transactional=True))
    with pytest.raises(InvalidTransactionStateError):
        manager.check(header(1, 1))


def test_a_marker_of_a_replaced_coordinator_is_refused(manager: ProducerStateManager) -> None:
    end(manager, 0)
    batch = encode_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 2),
        timestamp=1,
        producer_id=PRODUCER,
        producer_epoch=0,
    )
    with pytest.raises(TransactionCoordinatorFencedError):
        manager.check(read_header(batch), read_marker(batch))


# Snapshots.


def test_a_snapshot_is_in_kafkas_bytes() -> None:
    state = ProducerState(7, 1, 3, 1001, 90)
    state.batches.append(BatchMetadata(5, 105, 2, 1001))
    body = bytes.fromhex(
        "00000001 0000000000000007 0001 00000005 0000000000000069 00000002"
        "00000000000003e9 00000003 000000000000005a"
    )
    expected = struct.pack(">hI", 1, crc32c.crc32c(body)) + body

    assert encode_snapshot([state]) == expected
    assert decode_snapshot(expected) == [state]


@pytest.mark.parametrize("count", [0, 2, -1])
def test_a_snapshot_of_another_count_than_it_says_is_corrupt(count: int) -> None:
    body = struct.pack(">i", count) + encode_snapshot([ProducerState(7, 1, 3, 1001)])[10:]
    with pytest.raises(CorruptRecordError, match=f"of {count} entries"):
        decode_snapshot(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)


def test_a_snapshot_is_named_by_its_offset(manager: ProducerStateManager) -> None:
    manager.update(header(104, 0))
    manager.take_snapshot()
    assert names(manager) == ["00000000000000000105.snapshot"]


@pytest.mark.conformance("UL-10")
def test_the_offset_is_read_from_a_snapshots_name(tmp_path: Path) -> None:
    for name in ["00000000000000000105.snapshot", "105.snapshot", "00000000000000000105.log", "x"]:
        (tmp_path / name).touch()
    assert list_snapshots(OsFileSystem(), str(tmp_path)) == [105]


def test_a_snapshot_restores_the_producers_and_their_transactions(
    manager: ProducerStateManager,
) -> None:
    manager.update(header(0, 0, 3, producer_id=1))
    manager.update(header(3, 0, producer_id=2, transactional=True))
    manager.take_snapshot()

    reopened = ProducerStateManager(OsFileSystem(), manager.directory)
    reopened.truncate_and_reload(0, 4)

    assert reopened.producers == manager.producers
    assert reopened.map_end_offset == 4
    assert reopened.first_unstable_offset == 3


def test_expired_producers_are_left_out_of_a_reload(manager: ProducerStateManager) -> None:
    manager.update(header(0, 0))
    manager.take_snapshot()
    reopened = ProducerStateManager(OsFileSystem(), manager.directory)
    reopened.truncate_and_reload(0, 1, now_ms=1000 + manager.expiration_ms)
    assert reopened.producers == {}


def test_truncation_goes_back_to_the_snapshot_before_it(manager: ProducerStateManager) -> None:
    for offset in range(3):
        manager.update(header(offset, offset))
        manager.take_snapshot()

    manager.truncate_and_reload(0, 2)
    assert manager.snapshots == [1, 2]
    assert (manager.map_end_offset, manager.producers[PRODUCER].last_sequence) == (2, 1)
    manager.truncate_and_reload(0, 1)
    assert (manager.map_end_offset, manager.producers[PRODUCER].last_sequence) == (1, 0)
    manager.truncate_and_reload(0, 0)
    assert (manager.map_end_offset, manager.producers, manager.snapshots) == (0, {}, [])


def test_truncating_below_an_open_transaction_forgets_it(manager: ProducerStateManager) -> None:
    manager.update(header(3, 0, transactional=True))
    manager.truncate_and_reload(0, 0)
    assert (manager.first_unstable_offset, manager.producers) == (None, {})


def test_full_truncation_forgets_everything(manager: ProducerStateManager) -> None:
    manager.update(header(3, 0, transactional=True))
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(29)
    assert (manager.map_end_offset, manager.producers, manager.snapshots) == (29, {}, [])
    assert manager.first_unstable_offset is None
    assert names(manager) == []


@pytest.mark.parametrize("damage", ["cut", "flip", "version", "empty"])
def test_a_damaged_snapshot_is_deleted_and_the_one_before_it_taken(
    manager: ProducerStateManager, damage: str
) -> None:
    for offset in range(2):
        manager.update(header(offset, offset))
        manager.take_snapshot()
    path = Path(manager.snapshot_path(2))
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[:-1],
            "flip": data[:-1] + bytes([data[-1] ^ 1]),
            "version": b"\0\2" + data[2:],
            "empty": b"",
        }[damage]
    )

    reopened = ProducerStateManager(OsFileSystem(), manager.directory)
    reopened.truncate_and_reload(0, 2)

    assert (reopened.map_end_offset, reopened.snapshots) == (1, [1])
    assert not path.exists()


@pytest.mark.conformance("LL-10")
def test_only_the_newest_stray_snapshot_beyond_every_segment_stays(
    manager: ProducerStateManager,
) -> None:
    for offset in (1, 2, 3, 4):
        Path(manager.snapshot_path(offset)).write_bytes(encode_snapshot([]))
    manager = ProducerStateManager(OsFileSystem(), manager.directory)
    manager.remove_stray_snapshots([1, 2])
    assert manager.snapshots == [1, 2, 4]
    manager.remove_stray_snapshots([1, 2, 5])
    assert manager.snapshots == [1, 2]


def test_moving_the_log_start_keeps_the_producers(manager: ProducerStateManager) -> None:
    for offset in range(3):
        manager.update(header(offset, 0, producer_id=offset))
        manager.take_snapshot()
    for offset in (1, 2):
        manager.delete_snapshot(offset)
    manager.on_log_start_offset_incremented(2)
    assert manager.snapshots == [3]
    assert sorted(manager.producers) == [0, 1, 2]
    assert manager.map_end_offset == 3


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**15 - 1),
            st.integers(0, MAX_SEQUENCE),
            st.integers(0, 2**62),
            st.integers(0, 1000),
            st.none() | st.integers(0, 2**62),
        ),
        unique_by=lambda fields: fields[0],
    )
)
def test_snapshots_survive_the_round_trip(
    fields: list[tuple[int, int, int, int, int, int | None]],
) -> None:
    states = []
    for producer_id, epoch, sequence, offset, delta, first in fields:
        state = ProducerState(producer_id, epoch, -1, 5, first)
        state.batches.append(BatchMetadata(sequence, offset, delta, 5))
        states.append(state)
    assert decode_snapshot(encode_snapshot(states)) == states


@given(st.binary(max_size=100))
def test_a_garbage_snapshot_is_corrupt_and_nothing_worse(garbage: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_snapshot(b"\0\1\0\0\0\1" + garbage)


class NaiveProducer:
    """All that a producer ever wrote, in a list; the last five are found by looking."""

    def __init__(self) -> None:
        self.epoch = -1
        self.written: list[tuple[int, int]] = []

    def verdict(self, epoch: int, first: int, count: int) -> str:
        last = first + count - 1
        if epoch == self.epoch and (first, last) in self.written[-5:]:
            return "duplicate"
        if self.epoch >= 0 and epoch < self.epoch:
            return "epoch"
        expected = 0 if epoch > self.epoch else self.written[-1][1] + 1
        return "append" if self.epoch < 0 or first == expected else "sequence"

    def write(self, epoch: int, first: int, count: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.written = epoch, []
        self.written.append((first, first + count - 1))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 2)), max_size=30))
def test_a_naive_twin_agrees_on_what_follows(attempts: list[tuple[int, int, int]]) -> None:
    manager = ProducerStateManager(OsFileSystem(), "/nowhere")
    naive = NaiveProducer()
    offset = 0
    for epoch, first, count in attempts:
        batch = header(offset, first, count, epoch=epoch)
        try:
            verdict = "append" if manager.check(batch) is None else "duplicate"
        except InvalidProducerEpochError:
            verdict = "epoch"
        except OutOfOrderSequenceError:
            verdict = "sequence"
        assert verdict == naive.verdict(epoch, first, count)
        if verdict == "append":
            manager.update(batch)
            naive.write(epoch, first, count)
            offset += count


def test_a_batch_of_no_producer_only_moves_the_end(tmp_path: Path) -> None:
    manager = ProducerStateManager(OsFileSystem(), str(tmp_path))
    assert manager.update(header(5, -1, 3, producer_id=-1)) is None
    assert (manager.map_end_offset, manager.producers) == (8, {})
