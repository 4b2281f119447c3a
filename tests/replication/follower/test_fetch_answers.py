"""Answers that come too late, that refuse, or that fit no session."""

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.events import FetchRefused
from replication.wire.fetch import FetchResponse, PartitionData
from storage.types import TopicPartition
from tests.replication.follower.following import LEGACY, T0, T1, committed, following
from tests.replication.follower.model_log import Toy, drawn

# -- answers that come too late, or not at all --------------------------------


@pytest.mark.parametrize("fetch_version", [12, LEGACY])
async def test_an_answer_to_a_partition_that_moved_meanwhile_is_skipped(
    autojump_clock: MockClock,
    fetch_version: int,
) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(leader=committed((0, 0, 3)))
    await it.work()

    def begin_anew() -> None:
        it.leader.on_fetch = lambda: None
        it.fetcher.partitions.remove([T0])
        it.local().start_over_at(0)
        it.local().append([Toy(0, 0)])
        it.add(T0, 0)

    it.leader.on_fetch = begin_anew
    await it.work()
    assert it.local().log_end_offset == 1
    await it.work_until_alike()
    assert it.local().records == led.log.records
    assert not it.bugs


async def test_a_divergence_of_an_earlier_leader_epoch_truncates_nothing(
    autojump_clock: MockClock,
) -> None:
    """The follower has led meanwhile, and what it had then is committed now (KAFKA-18991)."""
    it = following()
    led = it.follow(
        local=drawn((0, 0, 1), (1, 2, 3)), leader=drawn((0, 0, 1), (2, 2, 5)), leader_epoch=2
    )

    def two_leader_epochs_pass(_tp: TopicPartition, data: PartitionData) -> None:
        it.leader.change_data = lambda _tp, _data: None
        assert data.diverging_epoch.end_offset == 2
        led.log, led.epoch = committed((0, 0, 1), (1, 2, 3)), 4
        it.local().high_watermark = 4
        it.add(T0, 4)

    it.leader.change_data = two_leader_epochs_pass
    await it.work()
    assert it.local().log_end_offset == 4
    assert it.alike()


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        12345,
    ],
)
async def test_what_the_leader_may_get_over_is_asked_again_after_a_backoff(
    autojump_clock: MockClock, error: int
) -> None:
    it = following()
    it.follow(leader=committed((0, 0, 1)))
    refusals = [error]

    def refuse_once(_tp: TopicPartition, data: PartitionData) -> None:
        if refusals:
            data.error_code = refusals.pop()

    it.leader.change_data = refuse_once
    await it.work()
    assert it.state().delayed_until == autojump_clock.current_time() + 1
    (event,) = [event for event in it.events if isinstance(event, FetchRefused)]
    assert (event.partition, event.error) == (T0, ErrorCode.of(error).name)
    assert T0 not in it.failed
    await it.work(2)
    assert autojump_clock.current_time() == 1
    assert it.local().log_end_offset == 2


@pytest.mark.parametrize("fetch_version", [12, 17])
async def test_a_session_refused_is_opened_anew_at_once(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(sessions=True, fetch_version=fetch_version)
    it.leader.topic_ids = {"t": b"t" * 16}
    it.follow(leader=committed((0, 0, 3)))
    await it.work()
    refusals = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]

    def refuse_once(response: FetchResponse) -> None:
        if refusals:
            response.error_code = refusals.pop()

    it.leader.change_response = refuse_once
    await it.work(2)
    assert [fetch.session_epoch for fetch in it.leader.fetches] == [0, 1, 0]
    assert autojump_clock.current_time() == 0
    await it.work_until_alike()


async def test_a_leader_that_refuses_every_session_is_given_a_pause(
    autojump_clock: MockClock,
) -> None:
    it = following(sessions=True)
    it.follow(leader=committed((0, 0, 3)))

    def refuse(response: FetchResponse) -> None:
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR

    it.leader.change_response = refuse
    await it.work(5)
    assert autojump_clock.current_time() == 4
    assert not it.state().is_delayed(autojump_clock.current_time())


async def test_a_session_that_mixed_names_and_ids_delays_every_partition(
    autojump_clock: MockClock,
) -> None:
    it = following(sessions=True)
    it.follow(leader=committed((0, 0, 3)))

    def refuse(response: FetchResponse) -> None:
        response.error_code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    it.leader.change_response = refuse
    await it.work()
    assert it.state().is_delayed(autojump_clock.current_time())


@pytest.mark.parametrize("fetch_version", [7, LEGACY, 12, 13, 17])
async def test_logs_become_alike_in_a_session(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(sessions=True, fetch_version=fetch_version)
    it.leader.topic_ids = {"t": b"t" * 16}
    for tp in (T0, T1):
        it.follow(
            tp,
            local=drawn((0, 0, 1), (2, 2, 3), (4, 4, 5)),
            leader=committed((1, 0, 0), (3, 1, 2), (5, 3, 4)),
            leader_epoch=5,
        )
    for tp in (T0, T1):
        await it.work_until_alike(tp)
    assert set(it.leader.fetch_versions) == {fetch_version}
    it.leader.led[T1].log.append_as_leader(5, 1)
    await it.work(2)
    assert it.local(T1).log_end_offset == 6
    assert it.leader.fetches[-1].session_epoch == len(it.leader.fetches) - 1
    assert not it.bugs


async def test_topic_ids_are_used_only_when_every_topic_has_one(autojump_clock: MockClock) -> None:
    it = following(fetch_version=17)
    it.follow(leader=committed((0, 0, 3)))
    await it.work()
    it.leader.topic_ids = {"t": b"t" * 16}
    it.fetcher.partitions.remove([T0])
    it.add()
    await it.work()
    assert it.leader.fetch_versions == [12, 17]
    assert it.local().log_end_offset == 4
