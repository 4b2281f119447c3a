"""read_committed, as Kafka's FetcherTest has it: what was aborted is passed over."""

import pytest

from replication.client.consumer.errors import CorruptRecordsError
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from tests.replication.client.consumer.fetching import (
    T0,
    Rig,
    aborted,
    batch_of,
    data,
    reading,
    values,
)


def transactional(producer_id: int, *records: Record) -> bytes:
    return batch_of(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def written(producer_id: int, *offsets: int) -> bytes:
    return transactional(
        producer_id, *(Record(offset=each, key=b"%d" % each, value=b"v") for each in offsets)
    )


def marker(kind: ControlRecordType, producer_id: int, offset: int) -> bytes:
    return encode_control_batch(
        EndTransactionMarker(kind, coordinator_epoch=0),
        timestamp=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=offset,
    )


def abort(producer_id: int, offset: int) -> bytes:
    return marker(ControlRecordType.ABORT, producer_id, offset)


def commit(producer_id: int, offset: int) -> bytes:
    return marker(ControlRecordType.COMMIT, producer_id, offset)


# -- transactions


def fetched(*batches: bytes, listed: object = None, committed: bool = True, at: int = 0) -> Rig:
    rig = reading(T0, at=at, read_committed=committed)
    sent = rig.fetch({T0: data(*batches, aborted_transactions=listed, last_stable_offset=100)})
    assert sent.request.isolation_level == int(committed)
    return rig


@pytest.mark.conformance("CF-6")
def test_control_records_are_passed_over() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(0, 1), commit(1, 2))})
    assert rig.collect() == {T0: [0, 1]}
    rig.collect()
    assert rig.position(T0) == 3


@pytest.mark.conformance("CF-54", "CF-61")
def test_aborted_records_are_skipped_and_the_position_moves() -> None:
    rig = fetched(written(1, 0, 1), abort(1, 2), listed=aborted((1, 0)))
    collected = rig.collector.collect()
    assert collected.count == 0
    assert not collected.is_empty, "the position has moved"
    assert rig.position(T0) == 3


@pytest.mark.conformance("CF-55")
def test_committed_records_are_handed_over() -> None:
    rig = fetched(written(1, 0, 1), commit(1, 2))
    assert rig.collect() == {T0: [0, 1]}


@pytest.mark.conformance("CF-56")
def test_two_producers_whose_transactions_interleave() -> None:
    rig = fetched(
        written(1, 0),
        written(2, 1),
        written(2, 2),
        written(1, 3),
        commit(1, 4),
        abort(2, 5),
        written(1, 6, 7),
        abort(1, 8),
        written(2, 9),
        commit(2, 10),
        listed=aborted((2, 1), (1, 6)),
    )
    assert rig.collect() == {T0: [0, 3, 9]}
    rig.collect()
    assert rig.position(T0) == 11


@pytest.mark.conformance("CF-57")
def test_a_second_abort_marker_does_no_harm() -> None:
    rig = fetched(
        written(1, 0, 1),
        abort(1, 2),
        abort(1, 3),
        written(1, 4, 5),
        commit(1, 6),
        listed=aborted((1, 0)),
    )
    assert rig.collect() == {T0: [4, 5]}


@pytest.mark.conformance("CF-58")
def test_an_abort_marker_whose_records_are_compacted_away() -> None:
    rig = fetched(abort(1, 5), written(1, 6, 7, 8), commit(1, 9), listed=aborted((1, 0)), at=5)
    assert rig.collect() == {T0: [6, 7, 8]}


@pytest.mark.conformance("CF-59")
def test_a_compacted_topic_with_aborted_transactions() -> None:
    """The listed transaction begins below the first record that compaction has left."""
    rig = fetched(
        written(1, 3, 4),
        written(2, 5),
        abort(2, 8),
        commit(1, 10),
        written(3, 19, 20),
        abort(3, 22),
        written(1, 30, 31, 32),
        commit(1, 33),
        listed=aborted((2, 1), (3, 18)),
    )
    assert rig.collect() == {T0: [3, 4, 30, 31, 32]}


@pytest.mark.conformance("CF-60")
def test_read_uncommitted_hands_over_aborted_records() -> None:
    rig = fetched(written(1, 0, 1), abort(1, 2), listed=aborted((1, 0)), committed=False)
    assert rig.collect() == {T0: [0, 1]}


@pytest.mark.conformance("CF-62")
def test_an_empty_control_batch_in_front_is_no_obstacle() -> None:
    empty = encode_batch(
        [],
        base_offset=0,
        last_offset_delta=0,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    rig = fetched(
        empty, written(2, 1, 2), abort(2, 3), written(1, 4, 5), commit(1, 6), listed=aborted((2, 1))
    )
    assert rig.collect() == {T0: [4, 5]}


@pytest.mark.conformance("CF-64")
def test_an_empty_batch_moves_the_position_over_itself() -> None:
    rig = reading(T0, at=37)
    rig.fetch({T0: data(encode_batch([], base_offset=37, last_offset_delta=17))})
    collected = rig.collector.collect()
    assert (collected.count, collected.position_advanced) == (0, True)
    assert rig.position(T0) == 55


def test_skipped_records_move_the_position_before_damage_is_raised() -> None:
    broken = bytearray(written(2, 3))
    broken[-1] ^= 1
    rig = fetched(written(1, 0, 1), abort(1, 2), bytes(broken), listed=aborted((1, 0)))
    assert rig.collect() == {}
    assert rig.position(T0) == 3
    for _ in range(2):
        with pytest.raises(CorruptRecordsError):
            rig.collect()
    assert rig.position(T0) == 3
