"""The ISR: which replicas are in it, and how far that lets the leader commit."""

import pytest

from replication.errors import ErrorCode
from replication.leader.rules.isr import (
    NEVER_MS,
    AwaitMetadata,
    Commit,
    CommittedIsr,
    FollowerState,
    Ignore,
    IsrAnswer,
    IsrMember,
    IsrOutcome,
    IsrProposal,
    IsrState,
    PendingExpand,
    PendingShrink,
    Resubmit,
    Revert,
    committed_end,
    effective_min_isr,
    is_eligible,
    may_expand,
    out_of_sync,
    outcome_of,
)

LEADER = 1


def committed(*brokers: int) -> CommittedIsr:
    return CommittedIsr(frozenset(brokers))


def proposal(*brokers: int) -> IsrProposal:
    return IsrProposal(leader_epoch=3, partition_epoch=7, isr=tuple(map(IsrMember, brokers)))


def expanding(state: CommittedIsr, joining: int) -> PendingExpand:
    return PendingExpand(joining, proposal(*state.isr, joining), state)


def shrinking(state: CommittedIsr, *leaving: int) -> PendingShrink:
    return PendingShrink(frozenset(leaving), proposal(*state.isr - {*leaving}), state)


def follower(log_end_offset: int) -> FollowerState:
    return FollowerState(log_end_offset=log_end_offset)


def fetch(state: FollowerState, offset: int, *, leader_log_end: int, at_ms: int) -> None:
    state.on_fetch(
        fetch_offset=offset,
        log_start_offset=0,
        leader_log_end=leader_log_end,
        now_ms=at_ms,
        broker_epoch=-1,
    )


# The high watermark. Leader 1 ends at 20, replica 2 at 15, replica 3 at 10.


@pytest.mark.parametrize(
    ("state", "about_to_join", "expected"),
    [
        pytest.param(committed(1, 2, 3), set(), 10, id="the slowest member decides"),
        pytest.param(shrinking(committed(1, 2, 3), 3), set(), 10, id="a leaving one still counts"),
        pytest.param(committed(1, 2), set(), 15, id="one that has left does not"),
        pytest.param(committed(1, 2), {3}, 10, id="unless it is about to come back"),
        pytest.param(committed(1), set(), None, id="below the minimum it stands still"),
    ],
)
def test_high_watermark(state: IsrState, about_to_join: set[int], expected: int | None) -> None:
    end = committed_end(
        state,
        [(2, follower(15)), (3, follower(10))],
        leader_log_end=20,
        may_join=lambda broker, _: broker in about_to_join,
        min_isr=2,
    )
    assert end == expected


@pytest.mark.parametrize(("joining_end", "expected"), [(20, 15), (12, 12)])
def test_a_joining_follower_holds_the_high_watermark_at_once(
    joining_end: int, expected: int
) -> None:
    end = committed_end(
        expanding(committed(1, 2), 3),
        [(2, follower(15)), (3, follower(joining_end))],
        leader_log_end=20,
        may_join=lambda _broker, _state: False,
        min_isr=2,
    )
    assert end == expected


def test_a_member_that_never_fetched_pins_the_high_watermark() -> None:
    end = committed_end(
        committed(1, 2),
        [(2, FollowerState())],
        leader_log_end=20,
        may_join=lambda _broker, _state: False,
        min_isr=1,
    )
    assert end == -1


def test_the_minimum_isr_cannot_ask_for_more_replicas_than_there_are() -> None:
    assert effective_min_isr(min_insync_replicas=3, remote_replicas=1) == 2
    assert effective_min_isr(min_insync_replicas=2, remote_replicas=2) == 2


# Caught up, by time. Leader's log end in brackets, seconds: the drawing of isr.py.


@pytest.mark.parametrize(
    ("in_isr", "elected_ms"),
    [pytest.param(True, 90_000, id="member"), pytest.param(False, NEVER_MS, id="outsider")],
)
def test_a_follower_is_caught_up_as_of_the_fetch_that_reached_the_end(
    in_isr: bool, elected_ms: int
) -> None:
    state = FollowerState()
    state.on_new_leader_epoch(in_isr=in_isr, reelected=False, leader_log_end=10, now_ms=90_000)
    fetch(state, 0, leader_log_end=10, at_ms=100_000)
    assert state.last_caught_up_ms == elected_ms
    fetch(state, 10, leader_log_end=15, at_ms=105_000)
    assert state.last_caught_up_ms == 100_000
    fetch(state, 15, leader_log_end=15, at_ms=106_000)
    assert state.last_caught_up_ms == 106_000

    def caught_up(*, leader_log_end: int, now_ms: int) -> bool:
        return state.caught_up(leader_log_end=leader_log_end, now_ms=now_ms, max_lag_ms=30_000)

    assert caught_up(leader_log_end=15, now_ms=10**9)
    assert caught_up(leader_log_end=16, now_ms=136_000)
    assert not caught_up(leader_log_end=16, now_ms=136_001)


@pytest.mark.parametrize("in_isr", [True, False])
def test_a_leader_that_succeeds_itself_keeps_where_its_followers_stood(in_isr: bool) -> None:
    state = FollowerState()
    fetch(state, 8, leader_log_end=10, at_ms=50)
    state.on_new_leader_epoch(in_isr=in_isr, reelected=True, leader_log_end=12, now_ms=100)
    assert (state.log_end_offset, state.broker_epoch) == (8, -1)
    assert state.last_fetch_leader_log_end == 12
    assert state.last_fetch_ms == state.last_caught_up_ms == (100 if in_isr else NEVER_MS)


def test_a_new_leader_forgets_what_it_knew_of_its_followers() -> None:
    state = FollowerState()
    fetch(state, 8, leader_log_end=10, at_ms=50)
    state.on_new_leader_epoch(in_isr=True, reelected=False, leader_log_end=12, now_ms=100)
    assert (state.log_start_offset, state.log_end_offset) == (-1, -1)
    assert state.broker_epoch is None
    assert state.last_caught_up_ms == 100


# Leaving: Kafka's IsrExpirationTest, lag 100 ms, leader's log end 20.


def leaving(state: FollowerState | None, *, now_ms: int) -> set[int]:
    followers = {} if state is None else {2: state}
    return set(
        out_of_sync(
            committed(1, 2),
            followers,
            leader=LEADER,
            leader_log_end=20,
            now_ms=now_ms,
            max_lag_ms=100,
        )
    )


@pytest.mark.conformance("ISR-1")
def test_a_stuck_follower_leaves() -> None:
    state = FollowerState()
    fetch(state, 0, leader_log_end=0, at_ms=0)
    fetch(state, 19, leader_log_end=20, at_ms=0)
    assert leaving(state, now_ms=0) == set()
    assert leaving(state, now_ms=150) == {2}


@pytest.mark.conformance("ISR-2")
def test_a_follower_that_never_fetches_leaves() -> None:
    state = FollowerState()
    state.on_new_leader_epoch(in_isr=True, reelected=False, leader_log_end=20, now_ms=0)
    assert leaving(state, now_ms=0) == set()
    assert leaving(state, now_ms=150) == {2}


@pytest.mark.conformance("ISR-3")
def test_a_slow_follower_leaves_and_is_back_when_it_reaches_the_end() -> None:
    state = FollowerState(last_caught_up_ms=0)
    fetch(state, 18, leader_log_end=20, at_ms=0)
    assert leaving(state, now_ms=0) == set()
    fetch(state, 19, leader_log_end=20, at_ms=75)
    assert leaving(state, now_ms=75) == set()
    assert leaving(state, now_ms=150) == {2}
    fetch(state, 20, leader_log_end=20, at_ms=150)
    assert leaving(state, now_ms=150) == set()


@pytest.mark.conformance("ISR-4")
def test_a_silent_follower_at_the_leaders_end_stays() -> None:
    state = FollowerState()
    fetch(state, 20, leader_log_end=20, at_ms=0)
    assert leaving(state, now_ms=150) == set()


def test_a_member_without_any_state_leaves_and_the_leader_never_does() -> None:
    assert leaving(None, now_ms=0) == {2}


def test_no_member_leaves_while_a_change_is_pending() -> None:
    state = shrinking(committed(1, 2, 3), 3)
    gone = out_of_sync(state, {}, leader=1, leader_log_end=20, now_ms=0, max_lag_ms=100)
    assert gone == frozenset()


# Joining.


@pytest.mark.parametrize(
    ("log_end", "joins"),
    [
        pytest.param(7, False, id="behind the high watermark"),
        pytest.param(11, False, id="before this leader epoch (KAFKA-7128)"),
        pytest.param(12, True, id="at its start"),
        pytest.param(-1, False, id="never fetched"),
    ],
)
def test_a_follower_joins_from_the_start_of_the_leader_epoch_on(log_end: int, joins: bool) -> None:
    found = may_expand(
        follower(log_end), high_watermark=10, leader_epoch_start=12, leader_log_start=0
    )
    assert found is joins


@pytest.mark.parametrize(
    ("log_start", "joins"),
    [
        pytest.param(4, False, id="with records that the leader has deleted"),
        pytest.param(5, True, id="as the leader's log"),
        pytest.param(6, True, id="later than that"),
        pytest.param(-1, True, id="unknown, below Fetch v5"),
    ],
)
def test_a_follower_joins_once_its_log_begins_where_the_leaders_does(
    log_start: int, joins: bool
) -> None:
    state = FollowerState(log_end_offset=12, log_start_offset=log_start)
    found = may_expand(state, high_watermark=10, leader_epoch_start=12, leader_log_start=5)
    assert found is joins


@pytest.mark.parametrize(
    ("fetched", "registered", "may_lead", "eligible"),
    [
        pytest.param(5, 5, True, True, id="the process that fetched is registered"),
        pytest.param(-1, 5, True, True, id="fetches too old to say"),
        pytest.param(4, 5, True, False, id="another process registered since (KIP-903)"),
        pytest.param(None, 5, True, False, id="never fetched"),
        pytest.param(5, None, True, False, id="not registered"),
        pytest.param(5, 5, False, False, id="fenced or shutting down (KIP-841)"),
    ],
)
def test_eligibility_for_the_isr(
    fetched: int | None, registered: int | None, may_lead: bool, eligible: bool
) -> None:
    assert (
        is_eligible(fetched_epoch=fetched, registered_epoch=registered, may_lead=may_lead)
        is eligible
    )


# The controller's answers.

_BEHIND = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            IsrAnswer(leader_epoch=3, partition_epoch=8, isr=frozenset({1, 2})),
            Commit(frozenset({1, 2}), 8),
        ),
        (
            IsrAnswer(leader_epoch=3, partition_epoch=7, isr=frozenset({1})),
            Commit(frozenset({1}), 7),
        ),
        (IsrAnswer(leader_epoch=3, partition_epoch=6, isr=frozenset({1})), Ignore()),
        (IsrAnswer(leader_epoch=4, partition_epoch=8, isr=frozenset({1})), Ignore()),
        (IsrAnswer(error=ErrorCode.OPERATION_NOT_ATTEMPTED), Revert()),
        (IsrAnswer(error=ErrorCode.INELIGIBLE_REPLICA), Revert()),
        *((IsrAnswer(error=error), AwaitMetadata()) for error in _BEHIND),
        (IsrAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR), Resubmit()),
        (IsrAnswer(error=ErrorCode.NETWORK_EXCEPTION), Resubmit()),
    ],
    ids=lambda value: value.error.name if isinstance(value, IsrAnswer) else type(value).__name__,
)
def test_what_a_leader_does_about_the_controllers_answer(
    answer: IsrAnswer, expected: IsrOutcome
) -> None:
    assert outcome_of(answer, leader_epoch=3, partition_epoch=7) == expected
