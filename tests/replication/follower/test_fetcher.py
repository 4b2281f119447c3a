"""As AbstractFetcherThreadTest: one fetcher, round by round, on virtual time."""

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import FollowerFetching, PartitionFailed
from replication.follower.rules.fetch_state import FetchPhase
from replication.wire.fetch import PartitionData
from storage.errors import StorageError, UnsupportedFormatError
from storage.types import TopicPartition
from tests.replication.follower.following import (
    LEGACY,
    T0,
    T1,
    Following,
    both_ways,
    committed,
    errors_of_one,
    following,
)
from tests.replication.follower.model_log import ModelLog, Toy, drawn, encode

# -- fetching -----------------------------------------------------------------


@pytest.mark.conformance("FT-3")
@both_ways
async def test_simple_fetch(autojump_clock: MockClock, fetch_version: int) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(leader=committed((0, 0, 1)))
    await it.work()
    assert (it.local().log_end_offset, it.local().high_watermark) == (2, 2)
    assert it.local().records == led.log.records
    assert (it.state().fetch_offset, it.state().lag) == (2, 0)


@both_ways
async def test_many_fetches_follow_a_leader_that_goes_on_writing(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(leader=committed((0, 0, 4)))
    for value in range(10):
        led.log.append_as_leader(0, value, value)
        led.log.high_watermark = led.log.log_end_offset - 1
        await it.work()
    await it.work_until_alike()
    assert not it.bugs


@pytest.mark.conformance("FT-4")
async def test_a_leader_that_cannot_be_reached_is_left_alone_for_a_backoff(
    autojump_clock: MockClock,
) -> None:
    it = following(backoff_ms=250)
    it.follow(leader=committed((0, 0, 1)))

    def unreachable() -> None:
        raise PeerUnavailableError("no route")

    it.leader.on_fetch = unreachable
    began = autojump_clock.current_time()
    await it.work()
    assert autojump_clock.current_time() == began
    await it.work()
    assert autojump_clock.current_time() >= began + 0.25
    assert len(it.leader.fetches) == 1
    await it.work()
    assert len(it.leader.fetches) == 2


async def test_a_partition_added_while_nothing_is_ready_is_fetched_at_once(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(T0, leader=committed((0, 0, 1)))

    def fail(_tp: TopicPartition, data: PartitionData) -> None:
        data.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    it.leader.change_data = fail
    await it.work()
    assert it.state().is_delayed(autojump_clock.current_time())
    it.leader.change_data = lambda _tp, _data: None
    it.follow(T1, leader=committed((0, 0, 1)))
    await it.work()
    assert it.local(T1).log_end_offset == 2
    assert autojump_clock.current_time() == 0


async def test_what_is_delayed_does_not_keep_the_others_waiting(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(T0, leader=committed((0, 0, 5)))
    it.follow(T1, leader=committed((0, 0, 5)))

    def fail_t0(tp: TopicPartition, data: PartitionData) -> None:
        if tp == T0:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    it.leader.change_data = fail_t0
    await it.work(4)
    assert it.local(T0).log_end_offset == 0
    assert it.local(T1).log_end_offset == 6
    assert [topic.partitions[0].partition for topic in it.leader.fetches[1].topics] == [1]


async def test_the_partitions_that_had_data_go_to_the_end_of_the_queue(
    autojump_clock: MockClock,
) -> None:
    it = following()
    for tp in (T0, T1):
        it.follow(tp, leader=committed((0, 0, 1)), local=committed((0, 0, 1)))
    await it.work()
    assert it.fetcher.partitions.states.partitions() == [T0, T1]
    it.leader.led[T0].log.append_as_leader(0, 7)
    await it.work()
    assert it.fetcher.partitions.states.partitions() == [T1, T0]
    await it.work()
    assert it.fetcher.partitions.states.partitions() == [T1, T0]


@pytest.mark.conformance("FT-20")
@both_ways
async def test_corrupt_records_are_fetched_again(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    it.follow(leader=committed((0, 0, 1)))

    def corrupt(_tp: TopicPartition, data: PartitionData) -> None:
        assert isinstance(data.records, memoryview)
        data.records[5] ^= 0xFF

    it.leader.change_data = corrupt
    await it.work()
    assert it.local().log_end_offset == 0
    assert T0 not in it.failed
    it.leader.change_data = lambda _tp, _data: None
    await it.work(2)
    assert it.local().log_end_offset == 2
    assert not it.bugs


@pytest.mark.parametrize("magic", [0, 1])
async def test_a_leader_with_an_older_format_is_given_up_with_one_clear_line(
    autojump_clock: MockClock, magic: int
) -> None:
    it = following()
    it.follow(T0, leader=committed((0, 0, 5)))
    it.follow(T1, leader=committed((0, 0, 5)))
    older = UnsupportedFormatError(f"the leader has a batch of magic {magic} at offset 0")

    def refuse(tp: TopicPartition) -> None:
        if tp == T0:
            raise older

    it.replicas.on_append = refuse
    await it.work(5)
    assert it.failed == {T0}
    failures = [event for event in it.events if isinstance(event, PartitionFailed)]
    assert [(each.partition, each.cause) for each in failures] == [
        (T0, f"UnsupportedFormatError: {older}")
    ]
    asked = [
        tuple(each.partition for each in fetch.topics[0].partitions) for fetch in it.leader.fetches
    ]
    assert asked == [(0, 1), (1,), (1,), (1,), (1,)], "the leader shrinks its ISR without a fetch"
    assert it.local(T1).log_end_offset == 6
    assert not it.bugs


async def test_what_was_fetched_is_appended_in_the_epoch_in_which_it_was_followed(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(T0, leader=committed((0, 0, 2)), epoch=0)
    await it.work()
    assert set(it.replicas.followed_in) == {0}


@pytest.mark.conformance("FT-25")
@errors_of_one
@both_ways
async def test_an_append_that_fails_costs_only_its_own_partition(
    autojump_clock: MockClock, fetch_version: int, error: Exception, bugs: int
) -> None:
    it = following(fetch_version=fetch_version)
    for tp in (T0, T1):
        it.follow(tp, leader=committed((0, 0, 5)))

    def fail_t0(tp: TopicPartition) -> None:
        if tp == T0:
            raise error

    it.replicas.on_append = fail_t0
    await it.work(2)
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.failed == {T0}
    assert it.state(T1).phase is FetchPhase.FETCHING
    assert it.local(T1).log_end_offset == 4
    assert len(it.bugs) == bugs
    assert any(isinstance(event, PartitionFailed) for event in it.events)

    it.leader.led[T0].epoch = 1
    it.add(T0, 1)
    assert it.state(T0).phase is FetchPhase.TRUNCATING
    assert T0 not in it.failed


@pytest.mark.conformance("RF-11")
async def test_the_first_answer_makes_the_lag_known_even_without_records(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(local=drawn((4, 0, 0)), leader=drawn((4, 0, 0)), leader_epoch=4)
    assert it.state().lag is None
    await it.work()
    assert (it.state().lag, it.state().last_fetched_epoch) == (0, 4)


@pytest.mark.conformance("RF-21")
@pytest.mark.parametrize("moves", [True, False])
async def test_waiting_consumers_are_woken_once_a_round_by_high_watermarks_that_moved(
    autojump_clock: MockClock, *, moves: bool
) -> None:
    it = following()
    for tp in (T0, T1):
        it.follow(tp, leader=committed((0, 0, 1)) if moves else drawn((0, 0, 1)))
    it.replicas.on_append = lambda _tp: _assert_nothing_reported(it)
    await it.work()
    assert it.replicas.completed_fetches == ([[T0, T1]] if moves else [])
    it.replicas.completed_fetches.clear()
    await it.work()
    assert it.replicas.completed_fetches == []


def _assert_nothing_reported(it: Following) -> None:
    assert it.replicas.completed_fetches == []


# -- leader epochs ------------------------------------------------------------


@pytest.mark.conformance("FT-6")
@both_ways
async def test_an_older_epoch_than_the_leaders_is_given_up(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    it.follow(leader=committed((0, 0, 1)), leader_epoch=1, epoch=0)
    await it.work()
    assert it.local() == ModelLog()
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.failed == {T0}


@pytest.mark.conformance("FT-7")
@both_ways
async def test_a_leader_that_moves_to_a_newer_epoch_fences_the_follower(
    autojump_clock: MockClock,
    fetch_version: int,
) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(leader=committed((0, 0, 5)))
    await it.work()
    led.epoch = 1
    await it.work()
    assert it.local().log_end_offset == 2
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.failed == {T0}


@pytest.mark.conformance("FT-9")
async def test_a_leader_that_has_not_heard_of_our_epoch_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    it = following(backoff_ms=0)
    led = it.follow(local=committed((1, 0, 0)), leader=committed((1, 0, 3)), leader_epoch=1)
    led.epoch = 0
    await it.work()
    assert it.local().log_end_offset == 1
    assert it.state().phase is FetchPhase.FETCHING
    led.epoch = 1
    await it.work()
    assert it.local().log_end_offset == 3


async def test_a_fence_that_our_own_epoch_has_overtaken_is_skipped(
    autojump_clock: MockClock,
) -> None:
    it = following()
    led = it.follow(leader=committed((0, 0, 5)))
    await it.work()

    def overtake() -> None:
        it.leader.on_fetch = lambda: None
        led.epoch = 1
        it.add(T0, 1)

    it.leader.on_fetch = overtake
    await it.work()
    assert it.state().current_leader_epoch == 1
    assert T0 not in it.failed
    await it.work_until_alike()


# -- what the request says ----------------------------------------------------


@pytest.mark.conformance("RF-20")
async def test_what_a_request_says_of_each_partition(autojump_clock: MockClock) -> None:
    it = following(sessions=True, fetch_version=17)
    it.leader.topic_ids = {"t": b"t" * 16}
    it.follow(T0, local=committed((0, 0, 3), start=1), leader=committed((0, 0, 3), start=1))
    it.follow(T1, leader=committed((0, 0, 0)), local=committed((0, 0, 0)))
    await it.work()
    request = it.leader.fetches[0]
    (asked, _) = request.topics[0].partitions
    assert (asked.fetch_offset, asked.log_start_offset, asked.last_fetched_epoch) == (4, 1, 0)
    assert asked.partition_max_bytes == 1024 * 1024
    assert (request.min_bytes, request.max_wait_ms) == (1, 500)
    assert request.replica_state.replica_id == 2

    it.fetcher.partitions.remove([T1])
    await it.work()
    request = it.leader.fetches[1]
    assert request.topics == []
    assert [topic.partitions for topic in request.forgotten_topics_data] == [[1]]


async def test_a_throttled_partition_is_left_out_until_it_is_in_sync(
    autojump_clock: MockClock,
) -> None:
    it = following()
    throttled = {T0}
    it.fetcher.is_throttled = throttled.__contains__
    it.follow(T0, leader=committed((0, 0, 1)))
    it.follow(T1, leader=committed((0, 0, 1)))
    await it.work(2)
    assert (it.local(T0).log_end_offset, it.local(T1).log_end_offset) == (0, 2)
    throttled.clear()
    await it.work()
    assert it.state(T0).is_replica_in_sync
    throttled.add(T0)
    it.leader.led[T0].log.append_as_leader(0, 5)
    await it.work()
    assert it.local(T0).log_end_offset == 3


async def test_a_log_that_cannot_be_read_is_asked_for_again_after_a_backoff(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(leader=committed((0, 0, 1)), local=committed((0, 0, 0)))
    it.replicas.offline = {T0}
    await it.work()
    assert it.leader.fetches == []
    assert autojump_clock.current_time() == 1
    it.replicas.offline = set()
    await it.work()
    assert it.local().log_end_offset == 2


def test_a_followers_log_refuses_what_is_not_its_next_record() -> None:
    """The fake behaves: a twin that accepts anything would prove nothing."""
    log = drawn((0, 0, 3))
    with pytest.raises(StorageError):
        log.append_as_follower(encode([Toy(2, 0)]))


async def test_a_follower_says_when_it_fetches_and_from_where(autojump_clock: MockClock) -> None:
    it = following(fetch_version=LEGACY)
    it.follow(local=drawn((0, 0, 3)), leader=committed((0, 0, 1)))
    assert it.events == []
    await it.work()
    assert it.events[-1] == FollowerFetching(partition=T0, leader=1, leader_epoch=0, fetch_offset=2)
