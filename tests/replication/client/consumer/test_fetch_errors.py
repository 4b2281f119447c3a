"""What cannot be handed over (Kafka's FetcherTest): errors, damage, aborted transactions."""

import random

import pytest

from replication.client.consumer.errors import (
    CorruptRecordsError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from replication.client.consumer.position import LATEST
from replication.client.errors import TopicAuthorizationFailedError
from replication.errors import ErrorCode, KafkaError
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record, encode_batch
from tests.replication.client.consumer.fetching import T0, T1, Rig, batch_of, data, reading, values

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
    rig = reading(T0, at=20)
    rig.fetch({T0: data(values(20, 22), error=error)})
    assert rig.collect() == {}
    assert rig.position(T0) == 20
    assert rig.metadata_requested == int(refreshes)
    rig.now_ms += 99
    assert rig.send() == [], "not as fast as it is refused"
    rig.now_ms += 1
    assert len(rig.send()) == 1, "and fetched again"


@pytest.mark.conformance("CF-37")
def test_a_session_error_about_ids_requests_metadata() -> None:
    rig = reading(T0, at=20)
    rig.fetch({}, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert rig.collect() == {}
    assert rig.position(T0) == 20
    assert rig.metadata_requested == 1


@pytest.mark.conformance("CF-38")
def test_not_being_allowed_is_raised_with_the_topic() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    with pytest.raises(TopicAuthorizationFailedError) as raised:
        rig.collect()
    assert raised.value.topics == {"t"}
    assert not raised.value.retriable
    assert rig.collect() == {}, "raised once; the next fetch may fail again"


def test_an_error_that_no_fetch_should_meet_is_raised_by_name() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(error=ErrorCode.GROUP_ID_NOT_FOUND)})
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: fetching t-0 at 0"):
        rig.collect()


# -- out of range


@pytest.mark.conformance("CF-47")
def test_out_of_range_of_an_older_position_is_ignored() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    rig.answer(sent, {T0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    rig.seek(T0, 1)
    assert rig.collect() == {}
    assert rig.subscriptions.needing_reset(0) == {}
    assert rig.position(T0) == 1


@pytest.mark.conformance("CF-48")
def test_a_seek_before_an_out_of_range_is_met_drops_it() -> None:
    rig = reading(T0, policy=None)
    rig.fetch({T0: data(values(0, 1), error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.subscriptions.needing_reset(0) == {}
    rig.seek(T0, 2)
    assert rig.collect() == {}
    assert rig.position(T0) == 2


@pytest.mark.conformance("CF-49")
def test_out_of_range_without_a_policy_is_raised_until_it_is_dealt_with() -> None:
    rig = reading(T0, policy=None)
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
    rig = reading(T0, T1, at=1, policy=None)
    rig.fetch({T0: data(values(1, 3)), T1: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {T0: [1, 2, 3]}
    assert (rig.position(T0), rig.position(T1)) == (4, 1)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        rig.collect()
    assert raised.value.offsets == {T1: 1}
    assert (rig.position(T0), rig.position(T1)) == (4, 1)


@pytest.mark.conformance("CF-52")
def test_a_seek_on_the_failing_partition_forestalls_its_error() -> None:
    rig = reading(T0, T1, at=1, policy=None, max_poll_records=2)
    rig.fetch({T0: data(values(1, 3)), T1: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {T0: [1, 2]}
    rig.seek(T1, 10)
    assert rig.collect() == {T0: [3]}
    assert rig.collect() == {}
    assert rig.position(T1) == 10


def test_out_of_range_at_the_leader_is_reset_by_policy() -> None:
    rig = reading(T0, policy=LATEST)
    rig.fetch({T0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert rig.collect() == {}
    assert rig.subscriptions.needing_reset(0) == {T0: LATEST}
    assert rig.position(T0) is None
    assert rig.send() == []


def test_out_of_range_at_a_follower_is_retried_at_the_leader() -> None:
    rig = reading(T0, policy=None)
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
def test_a_refused_record_is_raised_until_the_program_seeks_past_it() -> None:
    rig = reading(T0, at=2, value_deserializer=refuse_two)
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
    rig = reading(T0)
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
    rig = reading(T0)
    rig.fetch({T0: data(bytes(broken))})
    for _ in range(2):
        with pytest.raises(CorruptRecordsError):
            rig.collect()
        assert rig.position(T0) == 0


@pytest.mark.conformance("CF-43")
def test_bytes_that_were_changed_on_their_way_are_raised() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(damaged(values(0, 2), at=40))})
    with pytest.raises(CorruptRecordsError):
        rig.collect()
    assert rig.position(T0) == 0


def test_checksums_are_not_verified_without_check_crcs() -> None:
    rig = reading(T0, check_crcs=False)
    broken = bytearray(values(0, 1))
    broken[17] ^= 1
    rig.fetch({T0: data(bytes(broken))})
    assert rig.collect() == {T0: [0, 1]}


@pytest.mark.conformance("CF-45")
def test_less_than_a_whole_batch_raises_an_error() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(0, 2)[:-5])})
    with pytest.raises(KafkaError, match="no progress: 80 bytes of t-0 at 0"):
        rig.collect()
    assert rig.position(T0) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    rig = reading(T0, at=2)
    rig.fetch({T0: data(values(0, 4, codec=codec))})
    assert [(each.offset, each.value) for each in rig.records()] == [
        (2, b"2"),
        (3, b"3"),
        (4, b"4"),
    ]


def test_random_damage_is_raised_and_never_handed_over() -> None:
    chance = random.Random(41)
    whole = values(0, 5, codec=Codec.LZ4)
    for _ in range(200):
        broken = damaged(whole, at=chance.randrange(12, len(whole)))
        rig = reading(T0)
        rig.fetch({T0: data(broken)})
        if broken[12:16] != whole[12:16]:
            continue  # the leader epoch is stamped by leaders: no checksum covers it
        with pytest.raises(KafkaError):
            rig.collect()
        assert rig.position(T0) == 0
