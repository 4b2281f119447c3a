"""Elections by table, and against a twin that tries every candidate and keeps the lawful."""

import pytest
from hypothesis import given, strategies as st

from replication.election import Election, ElectionCause, change_record, elect
from replication.metadata import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRegistration,
)

CLEAN, UNCLEAN, OFFLINE = ElectionCause.CLEAN, ElectionCause.UNCLEAN, ElectionCause.OFFLINE
TOPIC = bytes(16)


def partition(
    isr: tuple[int, ...], leader: int, replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionRegistration:
    return PartitionRegistration(replicas, isr, leader, leader_epoch=4, partition_epoch=9)


@pytest.mark.parametrize(
    ("isr", "leader", "active", "leaving", "unclean", "outcome"),
    [
        pytest.param(
            (1, 2, 3), 1, {1, 2, 3}, 1, False, Election(2, (2, 3), CLEAN), id="the leader leaves"
        ),
        pytest.param(
            (1, 2, 3), 1, {1, 2, 3}, 3, False, Election(1, (1, 2)), id="a follower leaves"
        ),
        pytest.param(
            (1, 3), 1, {2, 3}, 1, False, Election(3, (3,), CLEAN), id="2 is not in the ISR"
        ),
        pytest.param(
            (1,), 1, {2, 3}, 1, False, Election(NO_LEADER, (1,), OFFLINE), id="the last one stays"
        ),
        pytest.param(
            (1,), 1, {2, 3}, 1, True, Election(2, (2,), UNCLEAN), id="unless unclean is allowed"
        ),
        pytest.param(
            (1,), 1, set(), 1, True, Election(NO_LEADER, (1,), OFFLINE), id="and somebody is there"
        ),
        pytest.param(
            (1,), NO_LEADER, {1}, None, False, Election(1, (1,), CLEAN), id="it comes back"
        ),
        pytest.param(
            (1,), NO_LEADER, {2, 3}, None, False, Election(NO_LEADER, (1,)), id="others came back"
        ),
        pytest.param(
            (3, 2), NO_LEADER, {2, 3}, None, True, Election(2, (3, 2), CLEAN), id="clean wins"
        ),
        pytest.param(
            (3, 2, 1),
            3,
            {1, 2, 3},
            None,
            False,
            Election(3, (3, 2, 1)),
            id="no change for its own sake",
        ),
    ],
)
def test_who_leads_next(
    *,
    isr: tuple[int, ...],
    leader: int,
    active: set[int],
    leaving: int | None,
    unclean: bool,
    outcome: Election,
) -> None:
    elected = elect(
        partition(isr, leader), is_active=active.__contains__, leaving=leaving, unclean=unclean
    )
    assert elected == outcome


def naive(
    before: PartitionRegistration, active: set[int], leaving: int | None, unclean: bool
) -> tuple[int, set[int]]:
    """Say what the leader and the ISR must be, by the words of the rules alone."""
    able = active - {leaving}
    in_sync = set(before.isr) - {leaving}
    isr = in_sync or set(before.isr)
    candidates = [replica for replica in before.replicas if replica in in_sync & able]
    if before.leader in candidates:
        return before.leader, isr
    if candidates:
        return candidates[0], isr
    outside = [replica for replica in before.replicas if replica in able]
    if unclean and outside:
        return outside[0], {outside[0]}
    return NO_LEADER, isr


@st.composite
def partitions(draw: st.DrawFn) -> PartitionRegistration:
    replicas = tuple(draw(st.permutations(range(1, draw(st.integers(1, 5)) + 1))))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    return partition(isr, leader, replicas)


@given(
    partitions(),
    st.sets(st.integers(1, 5)),
    st.none() | st.integers(1, 5),
    st.booleans(),
)
def test_elections_agree_with_their_twin(
    before: PartitionRegistration, active: set[int], leaving: int | None, unclean: bool
) -> None:
    elected = elect(before, is_active=active.__contains__, leaving=leaving, unclean=unclean)
    assert (elected.leader, set(elected.isr)) == naive(before, active, leaving, unclean)
    assert (elected.cause is None) == (elected.leader == before.leader)
    record = change_record(before, elected, topic_id=TOPIC, number=0)
    after = before if record is None else before.merge(record)
    assert (after.leader, after.isr) == (elected.leader, elected.isr)
    assert after.leader_epoch - before.leader_epoch == (elected.leader != before.leader)
    assert after.isr
    assert after.leader in (NO_LEADER, *after.isr)


def test_an_unclean_leader_counts_as_recovering() -> None:
    before = partition((1,), 1)
    elected = elect(before, is_active={2}.__contains__, leaving=1, unclean=True)
    record = change_record(before, elected, topic_id=TOPIC, number=0)
    assert record == PartitionChangeRecord(
        TOPIC, 0, isr=(2,), leader=2, leader_recovery_state=LeaderRecoveryState.RECOVERING
    )


def test_no_change_needs_no_record() -> None:
    before = partition((1, 2), 1)
    elected = elect(before, is_active={1, 2}.__contains__)
    assert change_record(before, elected, topic_id=TOPIC, number=0) is None
