"""Offsets that the leader does not have."""

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode, KafkaError
from replication.follower.rules.fetch_state import FetchPhase
from replication.wire.fetch import PartitionData
from storage.types import TopicPartition
from tests.replication.follower.following import T0, T1, both_ways, committed, following
from tests.replication.follower.model_log import ModelLog, drawn

# -- out of range -------------------------------------------------------------


@pytest.mark.conformance("FT-16")
@both_ways
async def test_a_leader_that_has_lost_its_log_takes_the_followers_with_it(
    autojump_clock: MockClock,
    fetch_version: int,
) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(leader=committed((0, 0, 2)))
    await it.work_until_alike()
    led.log = ModelLog()
    await it.work()
    assert (it.local().log_end_offset, it.local().log_start_offset) == (0, 0)
    assert it.local().high_watermark == 0
    await it.work_until_alike()


@pytest.mark.conformance("FT-17")
async def test_a_fence_met_while_asking_for_the_ends_gives_the_partition_up(
    autojump_clock: MockClock,
) -> None:
    it = following()
    led = it.follow(local=drawn((0, 0, 0)), leader=committed((0, 0, 5), start=3))

    def newer_epoch() -> None:
        if it.leader.list_offsets[-1] == "earliest":
            led.epoch = 1

    it.leader.on_list_offsets = newer_epoch
    await it.work()
    assert it.leader.list_offsets == ["latest", "earliest"]
    assert it.local().log_end_offset == 1
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.failed == {T0}


@pytest.mark.conformance("FT-18")
@both_ways
async def test_a_follower_below_the_leaders_start_begins_anew(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    it.follow(local=drawn((0, 0, 0)), leader=committed((0, 0, 4), start=2))
    await it.work()
    assert it.state().phase is FetchPhase.FETCHING
    assert (it.local().log_start_offset, it.local().records) == (2, [])
    assert it.state().lag == 3
    await it.work_until_alike()


@pytest.mark.conformance("FT-19")
async def test_a_leader_that_does_not_know_our_epoch_yet_is_asked_for_its_ends_again(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(local=drawn((0, 0, 0)), leader=committed((0, 0, 4), start=2))
    refusals = [ErrorCode.UNKNOWN_LEADER_EPOCH]

    def refuse_once() -> None:
        if refusals:
            raise KafkaError(refusals.pop())

    it.leader.on_list_offsets = refuse_once
    await it.work()
    assert it.state().phase is FetchPhase.FETCHING
    assert it.local().log_end_offset == 1
    await it.work_until_alike()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 80, (80, 0, 1), id="leader ends below us"),
        pytest.param(40, 150, (100, 50, 2), id="we end inside"),
        pytest.param(100, 150, (100, 50, 2), id="we end where it begins"),
        pytest.param(120, 150, (120, 30, 2), id="it begins above us"),
    ],
)
async def test_out_of_range_vectors(
    autojump_clock: MockClock, start: int, end: int, expected: tuple[int, int, int]
) -> None:
    offset, lag, lookups = expected
    it = following()
    it.follow(local=drawn((0, 0, 99)), leader=committed((0, 0, end - 1), start=start))

    def refuse(_tp: TopicPartition, data: PartitionData) -> None:
        data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    it.leader.change_data = refuse
    await it.work()
    assert (it.state().fetch_offset, it.state().lag) == (offset, lag)
    assert len(it.leader.list_offsets) == lookups
    assert it.local().log_end_offset == offset
    assert (it.state().last_fetched_epoch is None) == (offset == 120)


async def test_an_offset_found_for_a_partition_that_was_added_anew_meanwhile_is_dropped(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(local=drawn((0, 0, 0)), leader=committed((0, 0, 4), start=2))
    began = it.state()

    def add_anew() -> None:
        it.fetcher.partitions.remove([T0])
        it.add(T0, 0)

    it.leader.on_list_offsets = add_anew
    await it.work()
    assert it.replicas.truncations == []
    assert it.state() == began
    it.leader.on_list_offsets = lambda: None
    await it.work_until_alike()


@both_ways
async def test_a_negative_offset_makes_the_leader_say_where_to_begin(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    it.follow(leader=committed((0, 0, 4), start=2), init_offset=-1)
    await it.work()
    assert it.leader.list_offsets == ["latest", "earliest"]
    await it.work_until_alike()


async def test_records_are_appended_before_the_leader_is_asked_for_its_ends(
    autojump_clock: MockClock,
) -> None:
    """The receive buffer holds them only until the next answer."""
    it = following()
    it.follow(T0, local=drawn((0, 0, 0)), leader=committed((0, 0, 4), start=2))
    it.follow(T1, leader=committed((0, 0, 1)))
    await it.work()
    assert it.local(T1).records == it.leader.led[T1].log.records
    assert it.local(T0).log_end_offset == 2
    await it.work_until_alike(T0)
    assert not it.bugs
