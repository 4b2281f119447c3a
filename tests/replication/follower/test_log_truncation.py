"""Logs that parted from the leader's, brought back: by fetches that tell, and by asking first."""

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode, ProtocolError
from replication.events import LogTruncated
from replication.follower.leader_endpoint import EpochEnd
from replication.follower.log_truncation import maybe_truncate
from replication.follower.rules.fetch_state import FetchPhase
from replication.wire.fetch import PartitionData
from storage.types import OffsetAndEpoch, TopicPartition
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
from tests.replication.follower.model_log import ModelLog, drawn

# -- truncation ---------------------------------------------------------------


@pytest.mark.conformance("FT-10")
@both_ways
async def test_diverged_logs_become_alike_in_several_rounds(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    it.follow(
        local=drawn((0, 0, 1), (2, 2, 3), (4, 4, 5)),
        leader=committed((1, 0, 0), (3, 1, 2), (5, 3, 4)),
        leader_epoch=5,
    )
    await it.work_until_alike()
    assert it.local().epochs == it.leader.led[T0].log.epochs
    assert not it.bugs


@pytest.mark.conformance("FT-12")
@both_ways
async def test_a_log_without_epochs_is_cut_to_where_it_began(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    local = committed((0, 0, 2))
    local.epochs, local.high_watermark = [], 2
    it.follow(local=local, leader=committed((0, 0, 1)), leader_epoch=5)
    await it.work()
    assert it.replicas.truncations == [(T0, 2, True)]
    assert it.leader.epoch_requests == []
    assert (it.local().log_end_offset, it.state().fetch_offset) == (2, 2)
    assert it.state().is_ready_for_fetch(autojump_clock.current_time())


@pytest.mark.conformance("FT-13")
async def test_a_partition_removed_before_it_is_cut_stays_as_it_is(
    autojump_clock: MockClock,
) -> None:
    it = following()
    local = committed((0, 0, 2))
    local.epochs, local.high_watermark = [], 2
    it.follow(local=local, leader=committed((0, 0, 1)))
    it.fetcher.partitions.remove([T0])
    await maybe_truncate(it.fetcher.partitions)
    assert it.local().log_end_offset == 3
    assert it.fetcher.partitions.states.get(T0) is None


@pytest.mark.conformance("FT-14")
@both_ways
async def test_adding_again_at_the_same_epoch_truncates_nothing(
    autojump_clock: MockClock, fetch_version: int
) -> None:
    it = following(fetch_version=fetch_version)
    led = it.follow(
        local=committed((0, 0, 1), (5, 2, 4)),
        leader=committed((0, 0, 1), (5, 2, 2)),
        leader_epoch=5,
    )
    await it.work_until_alike()
    cuts = len(it.replicas.truncations)
    assert cuts == 1
    it.add(T0, 5, init_offset=1)
    led.log.append_as_leader(5, 8)
    led.log.high_watermark += 1
    await it.work_until_alike()
    assert len(it.replicas.truncations) == cuts


@pytest.mark.conformance("FT-15")
async def test_a_divergence_of_a_partition_that_left_cuts_nothing(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(
        local=drawn((0, 0, 2), (4, 3, 4)), leader=committed((0, 0, 2), (5, 3, 5)), leader_epoch=5
    )
    await it.work()
    assert it.replicas.truncations == [(T0, 3, True)]
    assert it.state().fetch_offset == 3

    removed = {}
    it.leader.on_fetch = lambda: removed.update(it.fetcher.partitions.remove([T0]))
    await it.work()
    assert removed[T0].fetch_offset == 3
    assert len(it.replicas.truncations) == 1
    assert it.local().log_end_offset == 3


@pytest.mark.conformance("FT-26")
@errors_of_one
@both_ways
async def test_a_cut_that_fails_costs_only_its_own_partition(
    autojump_clock: MockClock, fetch_version: int, error: Exception, bugs: int
) -> None:
    it = following(fetch_version=fetch_version)
    for tp in (T0, T1):
        it.follow(
            tp,
            local=drawn((0, 0, 1), (1, 2, 3)),
            leader=committed((0, 0, 1), (2, 2, 3)),
            leader_epoch=2,
        )

    def fail_t0(tp: TopicPartition) -> None:
        if tp == T0:
            raise error

    it.replicas.on_truncate = fail_t0
    await it.work_until_alike(T1)
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.failed == {T0}
    assert T1 not in it.failed
    assert len(it.bugs) == bugs


@pytest.mark.conformance("FT-27")
async def test_the_last_fetched_epoch_follows_the_log(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(
        local=drawn((0, 0, 1), (2, 2, 3), (4, 4, 5)),
        leader=committed((0, 0, 1), (2, 2, 3), (5, 4, 5)),
        leader_epoch=5,
    )
    assert it.state().last_fetched_epoch == 4
    await it.work()
    assert (it.state().last_fetched_epoch, it.state().fetch_offset) == (2, 4)
    await it.work_until_alike()
    assert it.state().last_fetched_epoch == 5


@pytest.mark.conformance("FT-28")
@pytest.mark.conformance("RF-10")
async def test_an_answer_that_tells_a_divergence_moves_nothing_else(
    autojump_clock: MockClock,
) -> None:
    it = following()
    local = drawn((0, 0, 2), (4, 3, 5))
    local.high_watermark = 1
    led = it.follow(local=local, leader=committed((0, 0, 2), (5, 3, 3)), leader_epoch=5)
    await it.work()
    assert it.replicas.truncations == [(T0, 3, True)]
    assert it.replicas.processed == []
    assert (it.local().log_end_offset, it.local().high_watermark) == (3, 1)
    await it.work_until_alike()
    assert it.local().high_watermark == led.log.high_watermark == 4
    assert len(it.replicas.truncations) == 1
    assert [e for e in it.events if isinstance(e, LogTruncated)] == [
        LogTruncated(
            partition=T0,
            from_offset=6,
            to_offset=3,
            high_watermark=1,
            cause="diverging epoch",
            leader_epoch=5,
        )
    ]


async def test_the_drawn_divergence_takes_two_cuts_and_then_records(
    autojump_clock: MockClock,
) -> None:
    """The vector at the head of truncation.py, through the fetcher."""
    it = following()
    it.follow(
        local=drawn((0, 0, 6), (3, 7, 9), (4, 10, 13)),
        leader=committed((0, 0, 4), (2, 5, 11), (6, 12, 29)),
        leader_epoch=6,
    )
    await it.work(3)
    assert [(cut.offset, cut.last) for cut in _asked(it)] == [(14, 4), (7, 0), (5, 0)]
    assert [(offset, done) for _, offset, done in it.replicas.truncations] == [
        (7, False),
        (5, True),
    ]
    await it.work_until_alike()


class _Asked:
    def __init__(self, offset: int, last: int) -> None:
        self.offset, self.last = offset, last


def _asked(it: Following) -> list[_Asked]:
    partitions = [fetch.topics[0].partitions[0] for fetch in it.leader.fetches]
    return [_Asked(asked.fetch_offset, asked.last_fetched_epoch) for asked in partitions]


# -- truncation before fetching -----------------------------------------------


@pytest.mark.conformance("FT-21")
@pytest.mark.conformance("FT-22")
@pytest.mark.parametrize("fenced", [True, False])
async def test_an_answer_about_an_epoch_that_is_over_is_not_acted_upon(
    autojump_clock: MockClock, *, fenced: bool
) -> None:
    it = following(fetch_version=LEGACY)
    led = it.follow(local=drawn((0, 0, 2)), leader=committed((0, 0, 0), (1, 1, 3)))

    def begin_anew() -> None:
        it.leader.on_epochs = lambda: None
        led.epoch = 1 if fenced else 0
        it.fetcher.partitions.remove([T0])
        it.add(T0, 1)

    it.leader.on_epochs = begin_anew
    await maybe_truncate(it.fetcher.partitions)
    assert it.replicas.truncations == []
    assert (it.state().phase, it.state().current_leader_epoch) == (FetchPhase.TRUNCATING, 1)
    assert T0 not in it.failed
    led.epoch = 1
    await it.work_until_alike()


@pytest.mark.conformance("FT-23")
@pytest.mark.conformance("RF-16")
async def test_a_partition_that_left_while_epochs_were_asked_for_is_let_be(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    for tp in (T0, T1):
        it.follow(tp, local=drawn((0, 0, 5)), leader=committed((0, 0, 1)))

    def leave() -> None:
        it.fetcher.partitions.remove([T0])

    it.leader.on_epochs = leave
    await maybe_truncate(it.fetcher.partitions)
    assert it.replicas.truncations == [(T1, 2, True)]
    assert it.fetcher.partitions.states.get(T0) is None
    assert it.local(T0).log_end_offset == 6


@pytest.mark.conformance("FT-24")
async def test_an_answer_about_a_partition_that_was_not_asked_for_is_refused(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    it.follow(local=drawn((0, 0, 2)), leader=committed((0, 0, 0)))
    it.leader.epoch_answers = {T1: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(0, 0))}
    with pytest.raises(ProtocolError, match="unasked"):
        await it.work()


@pytest.mark.conformance("RF-2")
@pytest.mark.conformance("RF-4")
@pytest.mark.conformance("RF-15")
async def test_epochs_are_asked_for_once_and_only_where_there_are_any(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    partitions = [TopicPartition("t", at) for at in range(3)]
    for tp in partitions:
        it.follow(tp, local=committed((0, 0, 1)), leader=committed((0, 0, 1)))
    it.local(partitions[2]).epochs = []
    await it.work()
    assert [set(asked) for asked in it.leader.epoch_requests] == [set(partitions[:2])]
    assert len(it.leader.fetches) == 1
    now = autojump_clock.current_time()
    assert all(it.state(tp).is_ready_for_fetch(now) for tp in partitions)
    await it.work(2)
    assert (len(it.leader.epoch_requests), len(it.leader.fetches)) == (1, 3)
    assert len(it.replicas.truncations) == 3


@pytest.mark.conformance("RF-5")
async def test_epochs_are_never_asked_for_where_a_fetch_can_tell(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(local=drawn((0, 0, 3)), leader=committed((0, 0, 1)))
    await it.work(2)
    assert it.leader.epoch_requests == []
    assert len(it.leader.fetches) == 2


def _log_of_200(*starts: tuple[int, int]) -> ModelLog:
    """End 200, high watermark 100; `starts` are (epoch, first offset)."""
    ends = [start - 1 for _, start in starts[1:]] + [199]
    log = drawn(*((epoch, start, end) for (epoch, start), end in zip(starts, ends, strict=True)))
    log.high_watermark = 100
    return log


@pytest.mark.parametrize(
    ("starts", "answer", "cut"),
    [
        pytest.param([(5, 0)], (5, 156), 156, id="RF-6", marks=pytest.mark.conformance("RF-6")),
        pytest.param([(3, 0)], (4, 156), 156, id="RF-7", marks=pytest.mark.conformance("RF-7")),
        pytest.param(
            [(3, 0)], (4, 202), 200, id="RF-7 ahead", marks=pytest.mark.conformance("RF-7")
        ),
        pytest.param([(5, 0)], (-1, 155), 155, id="an old leader names no epoch"),
        pytest.param([(5, 0)], (5, -1), 100, id="RF-13", marks=pytest.mark.conformance("RF-13")),
    ],
)
async def test_how_far_an_answer_about_epochs_cuts(
    autojump_clock: MockClock, starts: list[tuple[int, int]], answer: tuple[int, int], cut: int
) -> None:
    it = following(fetch_version=LEGACY)
    epoch, end = answer
    it.follow(local=_log_of_200(*starts), leader=committed((0, 0, 250)))
    it.leader.epoch_answers = {T0: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(end, epoch))}
    await maybe_truncate(it.fetcher.partitions)
    assert it.replicas.truncations == [(T0, cut, True)]
    assert it.state().fetch_offset == cut
    assert len(it.leader.epoch_requests) == 1


@pytest.mark.conformance("RF-8")
async def test_an_epoch_we_never_saw_is_asked_about_a_second_time(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    it.follow(local=_log_of_200((3, 0), (5, 120)), leader=committed((3, 0, 250)))
    it.leader.epoch_answers = {T0: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(156, 4))}
    await it.work()
    assert it.replicas.truncations == [(T0, 120, False)]
    assert it.state().phase is FetchPhase.TRUNCATING
    assert it.leader.fetches == []
    it.leader.epoch_answers = {T0: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(101, 3))}
    await it.work()
    assert it.replicas.truncations[1:] == [(T0, 101, True)]
    assert [asked[T0].leader_epoch for asked in it.leader.epoch_requests] == [5, 3]
    assert len(it.leader.fetches) == 1
    await it.work()
    assert (len(it.leader.epoch_requests), len(it.leader.fetches)) == (2, 2)


@pytest.mark.conformance("RF-9")
async def test_divergences_at_epochs_we_never_saw_cut_a_little_further_each_time(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(local=_log_of_200((1, 0), (2, 120), (4, 130), (5, 150)), leader=ModelLog())
    answers = iter([(4, 140), (3, 130), (1, 100)])

    def diverge(_tp: TopicPartition, data: PartitionData) -> None:
        epoch, end = next(answers)
        data.error_code = ErrorCode.NONE
        data.diverging_epoch = type(data.diverging_epoch)(epoch=epoch, end_offset=end)

    it.leader.change_data = diverge
    await it.work(3)
    assert it.replicas.truncations == [(T0, 140, True), (T0, 130, False), (T0, 100, True)]
    assert it.state().phase is FetchPhase.FETCHING
    assert it.leader.epoch_requests == []


@pytest.mark.conformance("RF-14")
async def test_a_leader_that_cannot_answer_about_epochs_is_asked_for_ever(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    for tp in (T0, T1):
        it.follow(tp, local=_log_of_200((5, 0)), leader=committed((5, 0, 250)))
    it.leader.epoch_answers = {
        T0: EpochEnd(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        T1: EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR),
    }
    await it.work(4)
    assert it.replicas.truncations == []
    assert len(it.leader.epoch_requests) == 4
    assert autojump_clock.current_time() == 4, "with a backoff after each"
    it.leader.epoch_answers[T0] = EpochEnd(ErrorCode.NONE, OffsetAndEpoch(156, 5))
    await it.work()
    assert it.replicas.truncations == [(T0, 156, True)]
