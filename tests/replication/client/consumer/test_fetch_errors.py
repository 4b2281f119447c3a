"""What cannot be handed over (Kafka's FetcherTest): errors, damage, aborted transactions."""

import random

import pytest

from replication.client.consumer.errors import (
    CorruptRecordsError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from replication.client.consumer.offset_reset import EARLIEST, LATEST
from replication.client.consumer.position import FetchPosition, FetchState
from replication.client.errors import TopicAuthorizationFailedError
from replication.errors import ErrorCode, KafkaError
from storage.compression import Codec
from storage.record_batch import HEADER_SIZE
from storage.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.types import OffsetAndEpoch
from tests.replication.client.consumer.fetching import T0, T1, Rig, aborted, batch_of, data, values


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


# -- errors


@pytest.mark.conformance("CF-37")
@pytest.mark.parametrize(
    ("error", "refreshes"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.INCONSISTENT_TOPIC_ID, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.REPLICA_NOT_AVAILABLE, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.OFFSET_NOT_AVAILABLE, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (12345, False),
    ],
)
def test_errors_that_are_tried_again(error: ErrorCode, refreshes: bool) -> None:
    rig = Rig()
    rig.assign(T0, at=20)
    rig.fetch({T0: data(values(20, 22), error=error)})
    assert rig.collect() == {}
    assert rig.position(T0) == 20
    assert rig.metadata_requested == int(refreshes)
    assert len(rig.send()) == 1, "and fetched again"


@pytest.mark.conformance("CF-37")
def test_a_session_error_about_ids_asks_for_metadata() -> None:
    rig = Rig()
    rig.assign(T0, at=20)
    rig.fetch({}, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert rig.collect() == {}
    assert rig.position(T0) == 20
    assert rig.metadata_requested == 1


@pytest.mark.conformance("CF-38")
def test_not_being_allowed_is_raised_with_the_topic() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    with pytest.raises(TopicAuthorizationFailedError) as raised:
        rig.collect()
    assert raised.value.topics == {"t"}
    assert not raised.value.retriable
    assert rig.collect() == {}, "told once; the next fetch may tell again"


def test_an_error_that_no_fetch_should_meet_is_raised_by_name() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(error=ErrorCode.GROUP_ID_NOT_FOUND)})
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: fetching t-0 at 0"):
        rig.collect()


# -- out of range


@pytest.mark.conformance("CF-47")
def test_out_of_range_of_an_older_position_is_ignored() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    [sent] = rig.send()
    rig.answer(sent, {T0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    rig.seek(T0, 1)
    assert rig.collect() == {}
    assert rig.subscriptions.needing_reset(0) == {}
    assert rig.position(T0) == 1


@pytest.mark.conformance("CF-48")
def test_a_seek_before_an_out_of_range_is_met_drops_it() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, at=0)
    rig.fetch({T0: data(values(0, 1), error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.subscriptions.needing_reset(0) == {}
    rig.seek(T0, 2)
    assert rig.collect() == {}
    assert rig.position(T0) == 2


@pytest.mark.conformance("CF-49")
def test_out_of_range_without_a_policy_is_raised_until_it_is_dealt_with() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, at=0)
    rig.fetch({T0: data(values(0, 1), error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            rig.collect()
        assert raised.value.offsets == {T0: 0}
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    rig.seek(T0, 5)
    assert rig.collect() == {}


@pytest.mark.conformance("CF-50")
def test_good_data_comes_first_and_the_error_of_another_partition_after() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, T1, at=1)
    rig.fetch({T0: data(values(1, 3)), T1: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {T0: [1, 2, 3]}
    assert (rig.position(T0), rig.position(T1)) == (4, 1)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        rig.collect()
    assert raised.value.offsets == {T1: 1}
    assert (rig.position(T0), rig.position(T1)) == (4, 1)


@pytest.mark.conformance("CF-52")
def test_a_seek_on_the_failing_partition_forestalls_its_error() -> None:
    rig = Rig(policy=None, max_poll_records=2)
    rig.assign(T0, T1, at=1)
    rig.fetch({T0: data(values(1, 3)), T1: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {T0: [1, 2]}
    rig.seek(T1, 10)
    assert rig.collect() == {T0: [3]}
    assert rig.collect() == {}
    assert rig.position(T1) == 10


def test_out_of_range_at_the_leader_is_reset_by_policy() -> None:
    rig = Rig(policy=LATEST)
    rig.assign(T0, at=0)
    rig.fetch({T0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {}
    assert rig.subscriptions.needing_reset(0) == {T0: LATEST}
    assert rig.position(T0) is None
    assert rig.send() == []


def test_out_of_range_at_a_follower_is_asked_of_the_leader() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, at=0)
    rig.fetch({T0: data(preferred_read_replica=2)})
    rig.collect()
    sent = rig.fetch({T0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert sent.node.id == 2
    assert rig.collect() == {}
    assert rig.position(T0) == 0
    assert [each.node.id for each in rig.send()] == [1]


# -- what cannot be read


def refuse_two(value: bytes) -> bytes:
    if value == b"2":
        raise ValueError("no twos")
    return value


@pytest.mark.conformance("CF-40")
def test_what_a_deserialiser_refuses_is_raised_until_it_is_passed_over() -> None:
    rig = Rig(value_deserializer=refuse_two)
    rig.assign(T0, at=2)
    rig.fetch({T0: data(values(2, 4))})
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="the value of t-0 at 2") as raised:
            rig.collect()
        assert (raised.value.partition, raised.value.offset) == (T0, 2)
        assert isinstance(raised.value.__cause__, ValueError)
        assert rig.position(T0) == 2
    rig.seek(T0, 3)
    assert rig.collect() == {}
    rig.fetch({T0: data(values(2, 4))})
    assert rig.collect() == {T0: [3, 4]}


def test_a_deserialiser_may_be_an_object_and_never_sees_null() -> None:
    class Named:
        def deserialize(self, topic: str, headers: object, given: bytes, /) -> str:
            return f"{topic}:{given.decode()}:{headers}"

    rig = Rig(key_deserializer=Named(), value_deserializer=Named())
    rig.assign(T0, at=0)
    rig.fetch({T0: data(batch_of([Record(offset=0, key=b"k", value=None)]))})
    [record] = rig.records()
    assert (record.key, record.value) == ("t:k:()", None)


def damaged(batch: bytes, at: int = -1) -> bytes:
    broken = bytearray(batch)
    broken[at] ^= 0x40
    return bytes(broken)


@pytest.mark.conformance("CF-41")
def test_good_records_before_a_corrupt_one_are_handed_over_first() -> None:
    """[0] [1 bad checksum] [2] [3 bad length] [4]"""
    bad_length = bytearray(values(3, 3))
    bad_length[8:12] = (1).to_bytes(4, "big")
    answer = b"".join(
        (values(0, 0), damaged(values(1, 1)), values(2, 2), bytes(bad_length), values(4, 4))
    )
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(answer)})
    assert rig.collect() == {T0: [0]}
    assert rig.position(T0) == 1
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="CRC-32C of the batch at 1"):
            rig.collect()
        assert rig.position(T0) == 1
    rig.seek(T0, 2)
    assert rig.collect() == {}
    rig.fetch({T0: data(answer)})
    assert rig.collect() == {T0: [2]}, "a wrong checksum can be passed over"
    rig.seek(T0, 4)
    rig.collect()
    rig.fetch({T0: data(answer)})
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="a batch length of 1"):
            rig.collect()
        assert rig.position(T0) == 4, "behind a wrong length nothing can be found"


@pytest.mark.conformance("CF-42")
def test_a_header_that_its_checksum_does_not_fit_is_raised() -> None:
    broken = bytearray(encode_batch([Record(offset=0)]))
    broken[HEADER_SIZE - 1] ^= 1  # the count of records
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(bytes(broken))})
    for _ in range(2):
        with pytest.raises(CorruptRecordsError):
            rig.collect()
        assert rig.position(T0) == 0


@pytest.mark.conformance("CF-43")
def test_bytes_that_were_changed_on_their_way_are_raised() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(damaged(values(0, 2), at=40))})
    with pytest.raises(CorruptRecordsError):
        rig.collect()
    assert rig.position(T0) == 0


def test_checksums_are_not_looked_at_where_nobody_wants_that() -> None:
    rig = Rig(check_crcs=False)
    rig.assign(T0, at=0)
    broken = bytearray(values(0, 1))
    broken[17] ^= 1
    rig.fetch({T0: data(bytes(broken))})
    assert rig.collect() == {T0: [0, 1]}


@pytest.mark.conformance("CF-45")
def test_less_than_a_whole_batch_is_no_progress_and_said_so() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(values(0, 2)[:-5])})
    with pytest.raises(KafkaError, match="no progress: 80 bytes of t-0 at 0"):
        rig.collect()
    assert rig.position(T0) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    rig = Rig()
    rig.assign(T0, at=2)
    rig.fetch({T0: data(values(0, 4, codec=codec))})
    assert [(each.offset, each.value) for each in rig.records()] == [
        (2, b"2"),
        (3, b"3"),
        (4, b"4"),
    ]


def test_what_is_damaged_at_random_is_raised_and_never_handed_over() -> None:
    chance = random.Random(41)
    whole = values(0, 5, codec=Codec.LZ4)
    for _ in range(200):
        broken = damaged(whole, at=chance.randrange(12, len(whole)))
        rig = Rig()
        rig.assign(T0, at=0)
        rig.fetch({T0: data(broken)})
        if broken[12:16] != whole[12:16]:
            continue  # the leader epoch is stamped by leaders: no checksum covers it
        with pytest.raises(KafkaError):
            rig.collect()
        assert rig.position(T0) == 0


# -- transactions


def reading(*batches: bytes, listed: object = None, committed: bool = True, at: int = 0) -> Rig:
    rig = Rig(read_committed=committed)
    rig.assign(T0, at=at)
    sent = rig.fetch({T0: data(*batches, aborted_transactions=listed, last_stable_offset=100)})
    assert sent.request.isolation_level == int(committed)
    return rig


@pytest.mark.conformance("CF-6")
def test_control_records_are_passed_over() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(values(0, 1), commit(1, 2))})
    assert rig.collect() == {T0: [0, 1]}
    rig.collect()
    assert rig.position(T0) == 3


@pytest.mark.conformance("CF-54", "CF-61")
def test_what_was_aborted_is_passed_over_and_the_position_moves() -> None:
    rig = reading(written(1, 0, 1), abort(1, 2), listed=aborted((1, 0)))
    collected = rig.collector.collect()
    assert collected.count == 0
    assert not collected.is_empty, "the position has moved"
    assert rig.position(T0) == 3


@pytest.mark.conformance("CF-55")
def test_what_was_committed_is_handed_over() -> None:
    rig = reading(written(1, 0, 1), commit(1, 2))
    assert rig.collect() == {T0: [0, 1]}


@pytest.mark.conformance("CF-56")
def test_two_producers_whose_transactions_interleave() -> None:
    rig = reading(
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
    rig = reading(
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
    rig = reading(abort(1, 5), written(1, 6, 7, 8), commit(1, 9), listed=aborted((1, 0)), at=5)
    assert rig.collect() == {T0: [6, 7, 8]}


@pytest.mark.conformance("CF-59")
def test_a_compacted_topic_with_aborted_transactions() -> None:
    """What was listed begins below what compaction has left."""
    rig = reading(
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
def test_read_uncommitted_hands_over_what_was_aborted() -> None:
    rig = reading(written(1, 0, 1), abort(1, 2), listed=aborted((1, 0)), committed=False)
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
    rig = reading(
        empty, written(2, 1, 2), abort(2, 3), written(1, 4, 5), commit(1, 6), listed=aborted((2, 1))
    )
    assert rig.collect() == {T0: [4, 5]}


@pytest.mark.conformance("CF-64")
def test_an_empty_batch_moves_the_position_over_itself() -> None:
    rig = Rig()
    rig.assign(T0, at=37)
    rig.fetch({T0: data(encode_batch([], base_offset=37, last_offset_delta=17))})
    collected = rig.collector.collect()
    assert (collected.count, collected.position_advanced) == (0, True)
    assert rig.position(T0) == 55


# -- truncation (KIP-320)


@pytest.mark.conformance("CF-66")
def test_a_position_of_an_older_reign_is_validated_before_it_is_used() -> None:
    rig = Rig()
    rig.assign(T0)
    rig.seek(T0, 5, epoch=1)
    rig.subscriptions.complete_validation(
        T0, FetchPosition(5, 1, rig.view.leader(T0)), OffsetAndEpoch(9, 1)
    )
    assert rig.subscriptions.is_fetchable(T0)
    rig.update_metadata(epoch=2)
    state = rig.subscriptions.state(T0)
    assert state.state is FetchState.AWAIT_VALIDATION
    assert rig.send() == []
    [(tp, asked)] = rig.subscriptions.needing_validation(0).items()
    assert (tp, asked.offset, asked.offset_epoch, asked.leader.epoch) == (T0, 5, 1, 2)
    assert rig.subscriptions.complete_validation(tp, asked, OffsetAndEpoch(9, 1)) is None
    [sent] = rig.send()
    assert sent.offsets() == {"t-0": 5}


def awaiting(policy: object = EARLIEST) -> tuple[Rig, FetchPosition]:
    rig = Rig(policy=policy)  # type: ignore[arg-type]  # a strategy, or none
    rig.assign(T0)
    rig.seek(T0, 10, epoch=1)
    [asked] = rig.subscriptions.needing_validation(0).values()
    return rig, asked


def test_a_log_that_was_cut_is_read_on_from_where_it_parts() -> None:
    rig, asked = awaiting()
    assert rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0)) is None
    position = rig.subscriptions.valid_position(T0)
    assert position == FetchPosition(7, 0, asked.leader)


def test_a_log_that_was_cut_is_told_to_a_program_that_has_no_policy() -> None:
    rig, asked = awaiting(policy=None)
    error = rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0))
    assert isinstance(error, LogTruncationError)
    assert error.offsets == {T0: 10}
    assert error.divergent_offsets == {T0: OffsetAndEpoch(7, 0)}
    assert not rig.subscriptions.is_fetchable(T0)


@pytest.mark.parametrize("end", [OffsetAndEpoch(-1, 3), OffsetAndEpoch(7, -1)])
def test_an_epoch_that_the_leader_does_not_know_is_reset_or_told(end: OffsetAndEpoch) -> None:
    rig, asked = awaiting(policy=LATEST)
    assert rig.subscriptions.complete_validation(T0, asked, end) is None
    assert rig.subscriptions.needing_reset(0) == {T0: LATEST}
    rig, asked = awaiting(policy=None)
    error = rig.subscriptions.complete_validation(T0, asked, end)
    assert error is not None
    assert error.divergent_offsets == {}


def test_an_answer_about_another_position_is_ignored() -> None:
    rig, asked = awaiting()
    rig.seek(T0, 11, epoch=1)
    assert rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0)) is None
    assert rig.position(T0) == 11
    assert not rig.subscriptions.is_fetchable(T0)


def test_nothing_committed_and_no_policy_is_raised_for_all_of_them() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, T1)
    with pytest.raises(NoOffsetForPartitionError) as raised:
        rig.subscriptions.reset_initializing()
    assert raised.value.partitions == {T0, T1}


# -- numbers


@pytest.mark.conformance("CF-74")
def test_the_time_that_brokers_throttle_is_counted() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    for throttled_ms in (100, 200, 300, 400):
        rig.fetch({}, throttle_time_ms=throttled_ms)
        rig.collect()
    assert rig.metric("fetch-throttle-time-avg") == 250
    assert rig.metric("fetch-throttle-time-max") == 400


@pytest.mark.conformance("CF-75")
def test_lag_is_what_is_left_to_read() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    assert rig.metric("records-lag-max") != rig.metric("records-lag-max"), "nothing is known yet"
    rig.fetch({T0: data(high_watermark=100)})
    rig.collect()
    assert rig.metric("records-lag-max") == 100
    assert rig.metric("records-lag", T0) == 100
    rig.fetch({T0: data(values(0, 2), high_watermark=200)})
    rig.collect()
    assert rig.metric("records-lag-max") == 197
    assert rig.metric("records-lag", T0) == 197
    rig.assign(T1, at=0)
    rig.send()
    with pytest.raises(KeyError):
        rig.metric("records-lag", T0)


@pytest.mark.conformance("CF-76")
def test_lead_is_what_has_been_read_of_what_is_kept() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(log_start_offset=0)})
    rig.collect()
    assert rig.metric("records-lead-min") == 0
    assert rig.metric("records-lead", T0) == 0
    rig.fetch({T0: data(values(0, 2), log_start_offset=0)})
    rig.collect()
    assert rig.metric("records-lead-min") == 0
    assert rig.metric("records-lead", T0) == 3


@pytest.mark.conformance("CF-77")
def test_read_committed_lags_behind_the_last_stable_offset() -> None:
    rig = Rig(read_committed=True)
    rig.assign(T0, at=0)
    rig.fetch({T0: data(high_watermark=100, last_stable_offset=50)})
    rig.collect()
    assert rig.metric("records-lag-max") == 50
    rig.fetch({T0: data(values(0, 2), high_watermark=200, last_stable_offset=150)})
    rig.collect()
    assert rig.metric("records-lag-max") == 147
    assert rig.metric("records-lag", T0) == 147


def test_lag_of_a_window_that_is_over_is_forgotten() -> None:
    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(high_watermark=100)})
    rig.collect()
    rig.now_ms += 70_000
    rig.fetch({T0: data(high_watermark=30)})
    rig.collect()
    assert rig.metric("records-lag-max") == 30


@pytest.mark.conformance("CF-78")
def test_sizes_are_summed_over_the_partitions_of_an_answer() -> None:
    rig = Rig()
    rig.assign(T0, T1, at=1)
    first, second = values(1, 3), values(1, 3, codec=Codec.GZIP)
    rig.fetch({T0: data(first), T1: data(second)})
    rig.collect()
    assert rig.metric("fetch-size-avg") == pytest.approx(len(first) + len(second))
    assert rig.metric("records-per-request-avg") == 6
    assert rig.metric("records-consumed-total") == 6


@pytest.mark.conformance("CF-79")
def test_records_below_the_position_are_not_counted() -> None:
    rig = Rig()
    rig.assign(T0, at=2)
    rig.fetch({T0: data(values(1, 3))})
    rig.collect()
    assert rig.metric("records-per-request-avg") == 2
    assert rig.metric("fetch-size-avg") == pytest.approx(len(values(1, 3)) * 2 / 3)


@pytest.mark.conformance("CF-80")
def test_a_partition_in_error_counts_as_nothing_beside_the_others() -> None:
    rig = Rig()
    rig.assign(T0, T1, at=1)
    failed = data(values(1, 3), error=ErrorCode.OFFSET_OUT_OF_RANGE)
    rig.fetch({T0: data(values(1, 3)), T1: failed})
    rig.collect()
    assert rig.metric("fetch-size-avg") == len(values(1, 3))
    assert rig.metric("records-per-request-avg") == 3


@pytest.mark.conformance("CF-81")
def test_a_partition_that_was_dropped_counts_as_nothing() -> None:
    rig = Rig()
    rig.assign(T0, T1, at=1)
    [sent] = rig.send()
    rig.seek(T1, 5)
    rig.answer(sent, {T0: data(values(1, 3)), T1: data(values(1, 3))})
    rig.collect()
    assert rig.metric("fetch-size-avg") == len(values(1, 3))
    assert rig.metric("records-per-request-avg") == 3


@pytest.mark.conformance("CF-82")
def test_every_number_is_declared_and_every_declared_one_is_there() -> None:
    from replication.client.consumer.metrics import FETCH_METRICS, PARTITION_METRICS

    rig = Rig()
    rig.assign(T0, at=0)
    rig.fetch({T0: data(values(0, 2))})
    rig.collect()
    of_all = {each.name for each in rig.registry.names() if "topic" not in dict(each.tags)}
    of_one = {each.name for each in rig.registry.names() if "topic" in dict(each.tags)}
    assert of_all == set(FETCH_METRICS)
    assert of_one == set(PARTITION_METRICS)
    for name, value in rig.registry.snapshot():
        assert isinstance(value, int | float), name
