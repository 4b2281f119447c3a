"""The offsets of a group, against a twin that reads the log from the start each time."""

from typing import Any

from hypothesis import given, settings, strategies as st

from replication.coordinator.rules import KeyAndValue
from replication.groups.rules.offsets import CommittedOffset, GroupOffsets
from replication.groups.rules.records import (
    GroupMetadataValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from replication.groups.rules.replay import Replayed, read_batch
from storage.batch.record_batch import walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
DAY_MS = 86_400_000


def at(offset: int, *, since: int = 0, expires: int = -1) -> CommittedOffset:
    return CommittedOffset(offset=offset, commit_timestamp=since, expire_timestamp=expires)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from([A, B]), st.integers(0, 99)),
        st.tuples(st.just("pend"), st.sampled_from([A, B]), st.integers(0, 99), st.integers(1, 2)),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from([A, B])),
    ),
    max_size=12,
)


def twin(steps: list[tuple[object, ...]], partition: TopicPartition) -> tuple[int | None, bool]:
    """Return the committed offset of `partition`, and whether one is pending, from every step."""
    best: tuple[int, int] | None = None
    pending: dict[int, tuple[int, int]] = {}
    for place, step in enumerate(steps):
        match step:
            case ("commit", where, int(offset)) if where == partition:
                best = (place, offset)
            case ("pend", where, int(offset), int(producer)) if where == partition:
                pending[producer] = (place, offset)
            case ("end", int(producer), commits):
                ended = pending.pop(producer, None)
                if ended is not None and commits and (best is None or best < ended):
                    best = ended
            case ("remove", where) if where == partition:
                best, pending = None, {}
            case _:
                pass
    return (None if best is None else best[1]), bool(pending)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(STEPS)
def test_the_offset_that_is_last_in_the_log_is_committed(steps: list[tuple[object, ...]]) -> None:
    offsets = GroupOffsets()
    for place, step in enumerate(steps):
        match step:
            case ("commit", TopicPartition() as where, int(offset)):
                offsets.begin([where])
                offsets.written({where: at(offset)}, log_offset=place)
            case ("pend", TopicPartition() as where, int(offset), int(producer)):
                offsets.add_pending(producer, where, at(offset), log_offset=place)
            case ("end", int(producer), bool(commits)):
                offsets.end_transaction(producer, commit=commits)
            case ("remove", TopicPartition() as where):
                offsets.remove([where])
            case _:
                pass
    for partition in (A, B):
        known = offsets.get(partition)
        found = (None if known is None else known.offset), offsets.is_unstable(partition)
        assert found == twin(steps, partition)


def test_commits_answered_in_the_wrong_order_leave_the_later_one() -> None:
    offsets = GroupOffsets()
    offsets.begin([A])
    offsets.begin([A])
    offsets.written({A: at(20)}, log_offset=8)
    offsets.written({A: at(10)}, log_offset=7)
    assert offsets.get(A) == at(20)


def test_a_commit_that_failed_is_as_if_it_had_not_been_tried() -> None:
    offsets = GroupOffsets()
    offsets.begin([A])
    assert not offsets.is_empty
    offsets.failed([A])
    assert offsets.is_empty


def test_what_a_transaction_is_writing_is_in_doubt_and_stays_so_if_it_is_written() -> None:
    offsets = GroupOffsets()
    offsets.put(A, at(1), log_offset=5)
    first, second = {A: at(7)}, {A: at(8)}
    offsets.begin_pending(1, first)
    assert offsets.is_unstable(A)
    offsets.begin_pending(1, second)
    offsets.pending_failed(1, first)
    assert offsets.is_unstable(A), "the second is on its way"
    offsets.pending_written(1, second, log_offset=6)
    offsets.end_transaction(1, commit=True)
    assert (offsets.get(A), offsets.is_unstable(A)) == (at(8), False)
    offsets.begin_pending(1, first)
    offsets.pending_failed(1, first)
    offsets.end_transaction(1, commit=True)
    assert (offsets.get(A), offsets.is_unstable(A)) == (at(8), False)


def test_the_same_offset_sent_again_and_refused_leaves_what_was_written() -> None:
    """The answer to the first was late, and the transaction ended before the second was written."""
    offsets = GroupOffsets()
    first, again, next_one = {A: at(7)}, {A: at(7)}, {A: at(9)}
    offsets.begin_pending(1, first)
    offsets.begin_pending(1, again)
    offsets.pending_written(1, first, log_offset=6)
    offsets.pending_failed(1, again)
    assert offsets.is_unstable(A)
    offsets.end_transaction(1, commit=True)
    assert (offsets.get(A), offsets.is_unstable(A)) == (at(7), False)
    # It may be refused in the next transaction only, whose offsets stay too.
    offsets.begin_pending(1, again)
    offsets.end_transaction(1, commit=True)
    offsets.begin_pending(1, next_one)
    offsets.pending_failed(1, again)
    assert offsets.is_unstable(A)
    offsets.pending_written(1, next_one, log_offset=8)
    offsets.end_transaction(1, commit=True)
    assert (offsets.get(A), offsets.is_unstable(A)) == (at(9), False)


def test_offsets_expire_from_when_the_group_went_idle_or_else_from_their_commit() -> None:
    offsets = GroupOffsets()
    offsets.written({A: at(1, since=0), B: at(1, since=DAY_MS)}, log_offset=0)

    def expired(**how: Any) -> list[TopicPartition]:
        asked: dict[str, Any] = {
            "wall_ms": 8 * DAY_MS,
            "retention_ms": 7 * DAY_MS,
            "idle_since_ms": None,
        } | how
        return offsets.expired(**asked)

    assert expired() == [A, B]
    assert expired(wall_ms=8 * DAY_MS - 1) == [A]
    assert expired(idle_since_ms=2 * DAY_MS) == []
    assert expired(kept_topics=frozenset({"a"})) == [B]
    offsets.begin([A])
    assert expired() == [B], "a commit is on its way"
    offsets.begin_pending(1, {B: at(2)})
    assert expired() == [], "a transaction is"
    offsets.put(A, at(3, expires=9 * DAY_MS), log_offset=2)
    offsets.failed([A])
    assert expired() == []
    assert expired(wall_ms=9 * DAY_MS) == [A], "by the expiry it was committed with"


# From the log.


def batch(base: int, *records: KeyAndValue, **how: Any) -> bytes:
    written = (Record(timestamp=5, key=each.key, value=each.value) for each in records)
    return encode_batch(written, base_offset=base, **how)


def replayed(*batches: bytes) -> Replayed:
    result = Replayed()
    for each in batches:
        view = memoryview(each)
        ((_, header),) = walk(view)
        result.add(read_batch(header, view))
    return result


def test_a_coordinator_reads_the_last_value_of_each_key() -> None:
    value = GroupMetadataValue(protocol_type="consumer", generation=3)
    state = replayed(
        batch(0, group_record("g", value), group_record("h", value)),
        batch(2, offset_record("g", A, at(10).value()), offset_record("g", B, at(11).value())),
        batch(4, offset_record("g", A, at(12).value()), offset_tombstone("g", B)),
        batch(6, group_tombstone("h"), KeyAndValue(b"\0\x0bsomebody else's", b"x")),
    )
    assert state.groups == {"g": value}
    assert [state.offsets["g"].get(each) for each in (A, B)] == [at(12), None]


def test_what_a_transaction_wrote_counts_from_its_commit_on() -> None:
    def in_transaction(base: int, producer_id: int, offset: int) -> bytes:
        record = offset_record("g", A, at(offset).value())
        return batch(
            base,
            record,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    def end(base: int, producer_id: int, kind: ControlRecordType) -> bytes:
        return encode_control_batch(
            EndTransactionMarker(kind, 1),
            timestamp=6,
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=base,
        )

    aborted = (in_transaction(0, 1, 50), end(1, 1, ControlRecordType.ABORT))
    assert replayed(*aborted).offsets["g"].get(A) is None
    open_still = replayed(*aborted, in_transaction(2, 2, 60)).offsets["g"]
    assert (open_still.get(A), open_still.is_unstable(A)) == (None, True)
    committed = replayed(
        *aborted, in_transaction(2, 2, 60), end(3, 2, ControlRecordType.COMMIT)
    ).offsets["g"]
    assert (committed.get(A), committed.is_unstable(A)) == (at(60), False)
