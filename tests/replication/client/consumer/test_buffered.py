"""What is fetched and not handed over: paused, sought away from, no longer assigned."""

import pytest

from replication.client.errors import IllegalStateError
from replication.errors import ErrorCode
from tests.replication.client.consumer.fetching import T0, T1, T2, Rig, data, reading, values


@pytest.mark.conformance("CF-26")
def test_a_new_assignment_drops_buffered_records_of_other_partitions() -> None:
    rig = reading(T0, at=1, max_poll_records=2)
    rig.fetch({T0: data(values(1, 3))})
    assert rig.collect() == {T0: [1, 2]}
    rig.assign(T1, at=4)
    rig.requests.buffer.retain_all({T1})
    sent = rig.fetch({T1: data(values(4, 5))})
    assert sent.offsets() == {"t-1": 4}
    assert sent.forgotten() == ["t-0"]
    assert rig.collect() == {T1: [4, 5]}
    with pytest.raises(IllegalStateError, match="no current assignment for partition t-0"):
        rig.position(T0)


@pytest.mark.conformance("CF-27")
def test_the_buffer_keeps_only_assigned_partitions() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(values(1, 3))})
    assert list(rig.buffer.held())
    rig.buffer.retain_all({T1})
    assert not list(rig.buffer.held())
    assert rig.buffer.peek() is None


@pytest.mark.conformance("CF-28")
def test_records_fetched_for_another_position_are_dropped() -> None:
    rig = reading(T0)
    rig.subscriptions.pause(T0)
    rig.subscriptions.resume(T0)
    [sent] = rig.send()
    rig.subscriptions.pause(T0)
    rig.answer(sent, {T0: data(values(0, 3))})
    assert rig.collect() == {}
    rig.seek(T0, 3)
    rig.subscriptions.resume(T0)
    collected = rig.collector.collect()
    assert collected.is_empty
    assert rig.position(T0) == 3
    assert not list(rig.buffer.held())


@pytest.mark.conformance("CF-29")
def test_records_of_a_paused_partition_are_not_handed_over() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    rig.subscriptions.pause(T0)
    rig.answer(sent, {T0: data(values(1, 3))})
    assert rig.collect() == {}


@pytest.mark.conformance("CF-30")
def test_a_paused_partition_is_not_fetched() -> None:
    rig = reading(T0)
    rig.subscriptions.pause(T0)
    assert rig.send() == []
    assert rig.subscriptions.paused == {T0}


def completed_and_available(rig: Rig) -> tuple[bool, bool]:
    held = list(rig.buffer.held())
    return bool(held), any(rig.subscriptions.is_fetchable(fetch.partition) for fetch in held)


@pytest.mark.conformance("CF-31")
def test_buffered_records_of_a_paused_partition_wait_for_it() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    rig.subscriptions.pause(T0)
    rig.answer(sent, {T0: data(values(0, 2))})
    assert rig.collect() == {}
    assert completed_and_available(rig) == (True, False)
    assert rig.send() == []
    rig.subscriptions.resume(T0)
    assert completed_and_available(rig) == (True, True)
    assert rig.send() == [], "it is here already"
    assert rig.collect() == {T0: [0, 1, 2]}
    assert completed_and_available(rig) == (False, False)


@pytest.mark.conformance("CF-32", "CF-33")
def test_only_partitions_that_are_not_paused_are_handed_over() -> None:
    rig = reading(T0, T1)
    [sent] = rig.send()
    rig.subscriptions.pause(T0)
    rig.answer(sent, {T0: data(values(0, 2)), T1: data(values(0, 1))})
    assert rig.collect() == {T1: [0, 1]}
    assert completed_and_available(rig) == (True, False)
    both = Rig()
    both.assign(T0, T1, at=0)
    [sent] = both.send()
    both.subscriptions.pause(T0)
    both.subscriptions.pause(T1)
    both.answer(sent, {T0: data(values(0, 2)), T1: data(values(0, 1))})
    assert both.collect() == {}
    assert both.buffer.buffered_partitions() == {T0, T1}


@pytest.mark.conformance("CF-34")
def test_a_half_read_fetch_of_a_partition_that_is_paused_goes_on_later() -> None:
    rig = reading(T0, T1, at=1, max_poll_records=2)
    rig.fetch({T0: data(values(1, 3)), T1: data(values(1, 3))})
    assert rig.collect() == {T0: [1, 2]}
    rig.subscriptions.pause(T0)
    assert rig.collect() == {T1: [1, 2]}
    assert rig.collect() == {T1: [3]}
    assert rig.buffer.buffered_partitions() == {T0}
    rig.subscriptions.resume(T0)
    assert rig.collect() == {T0: [3]}


def test_offsets_fetched_for_another_position_are_dropped_too() -> None:
    rig = reading(T0)
    [sent] = rig.send()
    rig.seek(T0, 3)
    rig.answer(sent, {T0: data(high_watermark=7, preferred_read_replica=2)})
    assert rig.collect() == {}
    assert rig.subscriptions.state(T0).high_watermark is None
    assert rig.subscriptions.preferred_read_replica(T0, 0) is None


def test_a_partition_that_was_read_or_failed_goes_to_the_end() -> None:
    rig = reading(T0, T1, T2)
    rig.fetch({T0: data(error=ErrorCode.UNKNOWN_LEADER_EPOCH), T1: data(values(0, 1))})
    rig.collect()
    assert rig.subscriptions.assigned == [T2, T0, T1]
