from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given

from replication.errors import ErrorCode, KafkaError
from replication.follower.rules.truncation import (
    OffsetReset,
    OffsetTruncationState,
    Reset,
    reset_above_leader,
    reset_offset,
    truncation_offset,
)
from replication.leader.rules.log_reader import diverging_end
from storage.types import LeaderEpoch, OffsetAndEpoch
from tests.replication.follower.model_log import ModelLog, common_prefix, drawn
from tests.replication.leader.histories import histories

At = OffsetAndEpoch
UNDEFINED = At(-1, -1)
done = partial(OffsetTruncationState, completed=True)
ask_again = partial(OffsetTruncationState, completed=False)


def lookup(answers: dict[LeaderEpoch, OffsetAndEpoch]) -> Callable[[LeaderEpoch], OffsetAndEpoch]:
    return lambda epoch: answers.get(epoch, UNDEFINED)


@pytest.mark.parametrize(
    ("leader", "local", "expected"),
    [
        pytest.param(UNDEFINED, {}, done(100), id="leader knows no epoch"),
        pytest.param(
            At(-1, 5), {5: At(150, 5)}, done(100), id="leader knows the epoch but not its end"
        ),
        pytest.param(At(155, -1), {5: At(150, 5)}, done(155), id="old leader names no epoch"),
        pytest.param(At(250, -1), {}, done(200), id="old leader is ahead of us"),
        pytest.param(At(156, 4), {}, done(156), id="all our epochs are older, leader ends first"),
        pytest.param(At(202, 4), {}, done(200), id="all our epochs are older, we end first"),
        pytest.param(
            At(156, 4),
            {4: At(120, 3)},
            ask_again(120),
            id="we never saw that epoch: ask again from the one before",
        ),
        pytest.param(At(156, 5), {5: At(200, 5)}, done(156), id="leader ends the epoch first"),
        pytest.param(At(190, 5), {5: At(180, 5)}, done(180), id="we end the epoch first"),
    ],
)
def test_truncation_offset(
    leader: OffsetAndEpoch,
    local: dict[LeaderEpoch, OffsetAndEpoch],
    expected: OffsetTruncationState,
) -> None:
    found = truncation_offset(leader=leader, fetch_offset=100, log_end=200, local_end=lookup(local))
    assert found == expected


def cut_once(leader: ModelLog, follower: ModelLog) -> OffsetTruncationState | None:
    """Fetch once; None once the leader finds no divergence."""
    latest = follower.latest_epoch
    if latest is None:
        return None
    fetch_offset = follower.log_end_offset
    try:
        answer = diverging_end(leader, fetch_offset=fetch_offset, last_fetched_epoch=latest)
    except KafkaError:
        return None  # out of range: leader epochs do not decide that
    if answer is None:
        return None
    cut = truncation_offset(
        leader=answer,
        fetch_offset=fetch_offset,
        log_end=follower.log_end_offset,
        local_end=follower.end_offset_for_epoch,
    )
    follower.truncate_to(cut.offset)
    return cut


def test_two_logs_meet_in_two_rounds() -> None:
    """The drawing at the head of truncation.py."""
    leader = drawn((0, 0, 4), (2, 5, 11), (6, 12, 29))
    follower = drawn((0, 0, 6), (3, 7, 9), (4, 10, 13))

    assert cut_once(leader, follower) == OffsetTruncationState(7, completed=False)
    assert cut_once(leader, follower) == OffsetTruncationState(5, completed=True)
    assert cut_once(leader, follower) is None
    assert follower.log_end_offset == 5


@given(histories())
def test_truncation_leaves_a_prefix_of_the_leaders_log(
    logs: tuple[ModelLog, ModelLog],
) -> None:
    leader, follower = logs
    rounds = len(follower.epochs) + 1
    while cut_once(leader, follower) is not None:
        rounds -= 1
        assert rounds >= 0, "each round costs the follower an epoch, or is the last"
    assert follower.records == leader.records[: len(follower.records)]


@given(histories())
def test_truncation_keeps_every_record_that_the_logs_share(
    logs: tuple[ModelLog, ModelLog],
) -> None:
    """Naive twin: comparing record by record cuts to exactly the same place."""
    leader, follower = logs
    shared = common_prefix(leader.records, follower.records)
    while cut_once(leader, follower) is not None:
        pass
    assert follower.records == shared


@given(histories())
def test_a_round_never_cuts_beyond_the_followers_end(logs: tuple[ModelLog, ModelLog]) -> None:
    leader, follower = logs
    end = follower.log_end_offset
    while (cut := cut_once(leader, follower)) is not None:
        assert cut.offset <= end
        end = follower.log_end_offset


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "reset", "fetch_offset", "lag"),
    [
        pytest.param(0, 80, Reset.TRUNCATE, 80, 0, id="leader ends below us"),
        pytest.param(40, 150, Reset.KEEP, 100, 50, id="we end inside the leader's log"),
        pytest.param(100, 150, Reset.KEEP, 100, 50, id="we end where the leader begins"),
        pytest.param(120, 150, Reset.START_OVER, 120, 30, id="the leader begins above us"),
        pytest.param(0, 100, Reset.KEEP, 100, 0, id="both end at the same offset"),
    ],
)
def test_out_of_range(
    leader_start: int, leader_end: int, reset: Reset, fetch_offset: int, lag: int
) -> None:
    local_end = 100
    found = reset_above_leader(leader_end=leader_end, local_end=local_end) or reset_offset(
        leader_start=leader_start, leader_end=leader_end, local_end=local_end
    )
    assert found == OffsetReset(reset=reset, fetch_offset=fetch_offset, lag=lag)


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        pytest.param(14, 4, None, id="the same epoch is at least as long in the leader's log"),
        pytest.param(13, 3, OffsetAndEpoch(5, 3), id="the epoch ends earlier in the leader's log"),
        pytest.param(9, 2, OffsetAndEpoch(3, 0), id="the leader's log has only an older epoch"),
        pytest.param(99, -1, None, id="the follower names no epoch"),
    ],
)
def test_logs_diverge_at_an_earlier_end_or_an_older_epoch(
    fetch_offset: int, last_fetched_epoch: LeaderEpoch, expected: OffsetAndEpoch | None
) -> None:
    leader = drawn((0, 0, 2), (3, 3, 4), (4, 5, 13))
    found = diverging_end(leader, fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch)
    assert found == expected


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch"),
    [pytest.param(14, 9, id="an unknown epoch"), pytest.param(1, 4, id="below the log start")],
)
def test_what_the_leader_cannot_compare_is_out_of_range(
    fetch_offset: int, last_fetched_epoch: LeaderEpoch
) -> None:
    leader = drawn((3, 2, 4), (4, 5, 13))
    with pytest.raises(KafkaError) as refused:
        diverging_end(leader, fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
