"""From request to record (Kafka's FetcherTest): positions, buffers, pauses, sessions."""

import random

import pytest

from replication.errors import ErrorCode
from replication.wire.fetch import FetchRequest
from storage.batch.record_batch import TimestampType
from storage.batch.records import Record
from storage.types import TopicPartition
from tests.replication.client.consumer.fetching import (
    SESSION,
    T0,
    T1,
    T2,
    U0,
    Rig,
    Sent,
    batch_of,
    data,
    reading,
    values,
)


@pytest.mark.conformance("CF-1")
def test_records_come_in_order_and_the_position_moves_behind_them() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(1, 3))})
    assert rig.collect() == {T0: [1, 2, 3]}
    assert rig.position(T0) == 4
    assert rig.collect() == {}


@pytest.mark.conformance("CF-2")
def test_partitions_about_to_be_revoked_are_not_handed_over() -> None:
    rig = Rig()
    rig.assign_from_group(T0, at=0)
    [sent] = rig.send()
    rig.subscriptions.mark_pending_revocation([T0])
    rig.answer(sent, {T0: data(values(1, 3))})
    assert rig.collect() == {}
    assert rig.position(T0) == 0


@pytest.mark.conformance("CF-3", "CF-4")
def test_closing_ends_each_session_once() -> None:
    rig = Rig()
    rig.leaders[T1] = (2, 1)
    rig.update_metadata()
    rig.assign(T0, T1, at=0)
    for number, sent in enumerate(rig.send()):
        rig.answer(sent, {}, session_id=SESSION + number)
    last = rig.requests.close()
    assert [(node.id, asked.metadata.session_id, asked.metadata.epoch) for node, asked in last] == [
        (1, SESSION, -1),
        (2, SESSION + 1, -1),
    ]
    for _, asked in last:
        message = rig.requests.request(asked).build(17)
        assert isinstance(message, FetchRequest)
        assert (message.session_epoch, message.topics) == (-1, [])
    assert rig.requests.close() == []


@pytest.mark.conformance("CF-5")
def test_partitions_about_to_be_revoked_are_not_fetched() -> None:
    rig = Rig()
    rig.assign_from_group(T0, T1, at=100)
    rig.subscriptions.mark_pending_revocation([T0])
    [sent] = rig.send()
    assert sent.offsets() == {"t-1": 100}
    assert rig.position(T0) == 100


@pytest.mark.conformance("CF-7")
def test_an_error_yields_no_records() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(1, 3), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    assert rig.collect() == {}
    assert rig.position(T0) == 0


@pytest.mark.conformance("CF-8")
def test_gaps_between_offsets_are_fine() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(batch_of([Record(offset=each) for each in (15, 20, 30)]))})
    assert rig.collect() == {T0: [15, 20, 30]}
    assert rig.position(T0) == 31


@pytest.mark.conformance("CF-9")
def test_headers_survive_and_the_last_of_a_name_is_found() -> None:
    rig = reading(T0, at=1)
    several = (("name", b"first"), ("other", None), ("name", b"last"))
    rig.fetch({T0: data(batch_of([Record(offset=1), Record(offset=2, headers=several)]))})
    without, with_headers = rig.records()
    assert without.headers == ()
    assert without.header("name") is None
    assert with_headers.headers == several
    assert with_headers.header("name") == b"last"


def test_a_record_says_where_when_and_in_which_reign() -> None:
    rig = reading(T0, value_deserializer=bytes.decode)
    record = Record(offset=0, timestamp=12, key=b"kk", value=b"vvv")
    stamped = batch_of([record], leader_epoch=7, timestamp_type=TimestampType.LOG_APPEND_TIME)
    rig.fetch({T0: data(stamped)})
    [found] = rig.records()
    assert found.topic_partition == T0
    assert (found.key, found.value) == (b"kk", "vvv")
    assert (found.serialized_key_size, found.serialized_value_size) == (2, 3)
    assert (found.timestamp, found.timestamp_type) == (12, TimestampType.LOG_APPEND_TIME)
    assert found.leader_epoch == 7
    position = rig.subscriptions.state(T0).position
    assert position is not None
    assert position.offset_epoch == 7


@pytest.mark.conformance("CF-12")
def test_a_node_in_back_off_is_left_out_until_it_is_over() -> None:
    rig = reading(T0)
    rig.unavailable = {1}
    assert rig.send() == []
    rig.unavailable = set()
    assert len(rig.send()) == 1


@pytest.mark.conformance("CF-13")
def test_every_partition_is_fetched_with_the_leader_epoch_of_metadata() -> None:
    rig = Rig()
    rig.leaders = {T0: (1, 99), T1: (1, 3)}
    rig.update_metadata()
    rig.assign(T0, T1, at=0)
    [sent] = rig.send()
    partitions = [each for topic in sent.request.topics for each in topic.partitions]
    assert [(each.partition, each.current_leader_epoch) for each in partitions] == [(0, 99), (1, 3)]
    assert [each.last_fetched_epoch for each in partitions] == [-1, -1]


@pytest.mark.conformance("CF-14")
def test_an_answer_whose_ids_are_not_of_the_session_yields_nothing() -> None:
    """The ids of a response are looked up each time, in what the session holds then."""
    rig = reading(T0)
    [sent] = rig.send()
    known = dict(rig.requests.handlers[1].session_topic_names)
    rig.requests.handlers[1].session_topic_names.clear()
    rig.answer(sent, {T0: data(values(0, 2))})
    assert rig.collect() == {}
    rig.requests.handlers[1].session_topic_names.update(known)
    rig.fetch({T0: data(values(0, 2))})
    assert rig.collect() == {T0: [0, 1, 2]}


@pytest.mark.conformance("CF-15", "CF-16")
def test_topics_are_named_by_id_where_all_have_one() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    assert (sent.version, sent.request.topics[0].topic_id) == (17, rig.topic_ids["t"])
    without = Rig()
    del without.topic_ids["u"]
    without.update_metadata()
    without.assign(T0, U0, at=0)
    [sent] = without.send()
    assert sent.version == 12
    assert [topic.topic for topic in sent.request.topics] == ["t", "u"]


@pytest.mark.conformance("CF-18")
def test_a_topic_made_again_joins_the_session_anew() -> None:
    rig = reading(T0)
    rig.fetch({T0: data()})
    rig.collect()
    old, rig.topic_ids["t"] = rig.topic_ids["t"], b"T" * 16
    rig.update_metadata()
    rig.seek(T0, 0)
    [sent] = rig.send()
    assert sent.data.metadata.epoch == 1
    assert sent.request.topics[0].topic_id == b"T" * 16
    assert [each.topic_id for each in sent.request.forgotten_topics_data] == [old]


@pytest.mark.conformance("CF-19")
def test_a_change_between_names_and_ids_begins_a_session_anew() -> None:
    rig = Rig()
    without = {"u": rig.topic_ids["u"]}
    seen = []
    for ids in (without, dict(rig.topic_ids), without):
        rig.topic_ids = ids
        rig.update_metadata()
        rig.assign(T0, at=0)
        [sent] = rig.send()
        seen.append((sent.version, sent.request.session_epoch, sent.forgotten()))
        # A broker that meets the other way of naming ends the session (KIP-516).
        rig.answer(sent, {}, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if len(seen) < 3:
            assert rig.metadata_requested == len(seen)
    assert seen == [(12, 0, []), (17, 0, []), (12, 0, [])]


@pytest.mark.conformance("CF-20")
def test_an_incremental_session_carries_only_what_is_new() -> None:
    rig = reading(T0, T1)
    first = rig.fetch({T0: data(values(1, 3)), T1: data()})
    assert first.request.session_epoch == 0
    assert rig.collect() == {T0: [1, 2, 3]}
    assert (rig.position(T0), rig.position(T1)) == (4, 0)
    second = rig.fetch({})
    assert (second.request.session_id, second.request.session_epoch) == (SESSION, 1)
    assert second.offsets() == {"t-0": 4}, "the other has not changed"
    assert rig.collect() == {}
    assert (rig.position(T0), rig.position(T1)) == (4, 0)
    third = rig.fetch({T0: data(values(4, 5))})
    assert third.offsets() == {}
    assert rig.collect() == {T0: [4, 5]}
    assert (rig.position(T0), rig.position(T1)) == (6, 0)


@pytest.mark.conformance("CF-21")
def test_every_partition_of_many_is_read_without_gaps_whatever_comes_when() -> None:
    """Kafka's threads race here; our tasks take turns, in any order that chance picks."""
    chance = random.Random(21)
    rig = Rig(max_poll_records=30)
    partitions = [TopicPartition("t", each) for each in range(20)]
    rig.leaders = dict.fromkeys(partitions[::3], (2, 1))
    rig.update_metadata()
    rig.assign(*partitions, at=0)
    handed: dict[TopicPartition, list[int]] = {tp: [] for tp in partitions}
    under_way: list[Sent] = []
    for _ in range(1500):
        step = chance.choice(["send", "answer", "collect"])
        if step == "send":
            under_way.extend(rig.send())
        elif step == "answer" and under_way:
            sent = under_way.pop(chance.randrange(len(under_way)))
            chosen = {
                tp: data(values(wanted.fetch_offset, wanted.fetch_offset + chance.randrange(9)))
                for tp, wanted in sent.data.session_partitions.items()
                if chance.random() < 0.7
            }
            rig.answer(sent, chosen)
        elif step == "collect":
            for tp, offsets in rig.collect().items():
                handed[tp] += offsets
    for tp, offsets in handed.items():
        assert len(offsets) > 30
        assert offsets == list(range(len(offsets)))
        assert rig.position(tp) == len(offsets)


@pytest.mark.conformance("CF-22")
def test_session_epochs_are_consecutive_or_begin_anew() -> None:
    chance = random.Random(22)
    rig = reading(T0)
    expected = 0
    for _ in range(1000):
        [sent] = rig.send()
        assert sent.request.session_epoch in (expected, 0)
        if chance.random() < 0.05:
            rig.requests.on_failure(sent.node)
            expected = 0
            continue
        rig.answer(sent, {})
        rig.collect()
        expected = sent.request.session_epoch + 1


@pytest.mark.conformance("CF-24")
def test_max_poll_records_leaves_the_rest_for_the_next_poll() -> None:
    rig = reading(T0, at=1, max_poll_records=2)
    rig.fetch({T0: data(values(1, 3))})
    assert rig.collect() == {T0: [1, 2]}
    assert rig.position(T0) == 3
    assert rig.send() == [], "one is still buffered"
    assert rig.collect() == {T0: [3]}
    assert rig.position(T0) == 4
    sent = rig.fetch({T0: data(values(4, 5))})
    assert sent.offsets() == {"t-0": 4}
    assert rig.collect() == {T0: [4, 5]}


@pytest.mark.conformance("CF-25")
def test_a_poll_is_filled_from_the_next_partition_where_one_runs_out() -> None:
    rig = reading(T0, T1, at=1, max_poll_records=2)
    rig.fetch({T0: data(values(1, 3)), T1: data(values(1, 3))})
    assert rig.collect() == {T0: [1, 2]}
    assert rig.collect() == {T0: [3], T1: [1]}
    assert rig.collect() == {T1: [2, 3]}
    assert (rig.position(T0), rig.position(T1)) == (4, 4)


def test_reading_and_fetching_take_turns() -> None:
    """Four records of one partition in each answer, two in each poll: nobody is starved."""
    rig = reading(T0, T1, T2, max_poll_records=2)
    polls, fetchable = [], []
    for _ in range(8):
        fetchable.append([tp.partition for tp in sorted(rig.requests.fetchable())])
        for sent in rig.send():
            # As a broker that fills its answer with the first of the session.
            tp, asked = next(iter(sent.data.session_partitions.items()))
            rig.answer(sent, {tp: data(values(asked.fetch_offset, asked.fetch_offset + 3))})
        polls.append(rig.collect())
    assert polls == [
        {T0: [0, 1]},
        {T0: [2, 3]},
        {T1: [0, 1]},
        {T1: [2, 3]},
        {T2: [0, 1]},
        {T2: [2, 3]},
        {T0: [4, 5]},
        {T0: [6, 7]},
    ]
    assert fetchable == [[0, 1, 2], [1, 2], [0, 2], [0], [1], [], [2], []]


@pytest.mark.conformance("CF-35")
def test_a_response_after_everything_was_revoked_is_dropped() -> None:
    rig = Rig()
    rig.assign_from_group(T0, at=0)
    [sent] = rig.send()
    rig.assign_from_group()
    rig.assign_from_group(T0)
    rig.answer(sent, {T0: data(values(0, 2))})
    assert rig.collect() == {}
    assert rig.position(T0) is None


@pytest.mark.conformance("CF-53")
def test_a_lost_connection_costs_nothing_but_the_answer() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    assert rig.send() == [], "one at a time"
    rig.requests.on_failure(sent.node)
    assert rig.collect() == {}
    assert rig.subscriptions.is_fetchable(T0)
    assert rig.subscriptions.needing_reset(0) == {}
    assert rig.position(T0) == 0
    [again] = rig.send()
    assert again.request.session_epoch == 0
