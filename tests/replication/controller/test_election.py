"""Elections by table, and against a twin that tries every outcome and keeps the lawful."""

import itertools
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.controller.rules.election import (
    Election,
    ElectionRules,
    Wish,
    after,
    change_record,
)
from replication.metadata.rules.image import PartitionRegistration
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import PartitionChangeRecord

RECOVERING = LeaderRecoveryState.RECOVERING
TOPIC = bytes(16)
ALONE = ElectionRules(min_insync_replicas=1)
BOTH = ElectionRules(min_insync_replicas=2)
WITHOUT_ELR = ElectionRules(eligible=False)


def partition(
    isr: tuple[int, ...],
    leader: int,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas,
        isr,
        leader,
        leader_epoch=4,
        partition_epoch=9,
        elr=elr,
        last_known_elr=last_known,
    )


def recovering(of: PartitionRegistration) -> PartitionRegistration:
    return attrs.evolve(of, leader_recovery_state=RECOVERING)


OFF = NO_LEADER


@pytest.mark.parametrize(
    ("before", "wish", "active", "rules", "then"),
    [
        pytest.param(
            partition((1, 2, 3), 1), Wish(isr=(2, 3)), {2, 3}, ALONE, partition((2, 3), 2),
            id="the leader leaves",
        ),
        pytest.param(
            partition((1, 2, 3), 1), Wish(isr=(1, 2)), {1, 2}, ALONE, partition((1, 2), 1),
            id="a follower leaves",
        ),
        pytest.param(
            partition((1, 3), 1), Wish(isr=(3,)), {2, 3}, ALONE, partition((3,), 3),
            id="2 is not in the ISR",
        ),
        pytest.param(
            partition((2, 3), 2), Wish(isr=(2,)), {1, 2}, BOTH, partition((2,), 2, (3,)),
            id="who leaves an ISR that becomes too small is eligible",
        ),
        pytest.param(
            partition((2,), 2, (3,)), Wish(isr=()), {1}, BOTH, partition((), OFF, (2, 3), (2,)),
            id="the ISR becomes empty, and who led is remembered",
        ),
        pytest.param(
            partition((), OFF, (2, 3), (2,)), Wish(), {2, 3}, ALONE, partition((2,), 2),
            id="the minimum became smaller without a leader: the next one commits alone",
        ),
        pytest.param(
            partition((2,), 2, (3,)), Wish(isr=(2, 1)), {1, 2}, BOTH, partition((2, 1), 2),
            id="an ISR that is large enough needs no eligible ones",
        ),
        pytest.param(
            partition((), OFF, (2, 3), (2,)), Wish(), {3}, BOTH, partition((3,), 3, (2,)),
            id="an eligible one comes back",
        ),
        pytest.param(
            partition((), OFF, (2, 3), (2,)), Wish(), {1}, BOTH, partition((), OFF, (2, 3), (2,)),
            id="another comes back",
        ),
        pytest.param(
            partition((), OFF, (2, 3), (2,)), Wish(lost_its_tail=2), set(), BOTH,
            partition((), OFF, (3,), (2,)), id="an eligible one was killed",
        ),
        pytest.param(
            partition((3,), 3, (2,)), Wish(lost_its_tail=2), {3}, BOTH, partition((3,), 3),
            id="an eligible one was killed while there is a leader",
        ),
        pytest.param(
            partition((2,), 2), Wish(isr=(), lost_its_tail=2), {1, 3}, ALONE,
            partition((), OFF, (), (2,)), id="the last one in sync was killed",
        ),
        pytest.param(
            partition((), OFF, (), (2,)), Wish(), {1, 3}, ALONE, partition((), OFF, (), (2,)),
            id="others than the last leader come back",
        ),
        pytest.param(
            partition((), OFF, (), (2,)), Wish(), {1, 2}, ALONE, recovering(partition((2,), 2)),
            id="the last leader comes back",
        ),
        pytest.param(
            partition((), OFF, (3,), (2,)), Wish(), {1, 2}, ALONE,
            partition((), OFF, (3,), (2,)), id="but one that is eligible is waited for",
        ),
        pytest.param(
            partition((), OFF, (3,), (2,)), Wish(), {1, 2},
            ElectionRules(min_insync_replicas=2, unclean=True), recovering(partition((1,), 1)),
            id="unless unclean is allowed",
        ),
        pytest.param(
            partition((), OFF, (), (3,)), Wish(), {1, 3}, ElectionRules(unclean=True),
            recovering(partition((3,), 3)), id="the last leader is rather taken than just anybody",
        ),
        pytest.param(
            partition((1,), OFF), Wish(isr=(), lost_its_tail=1), set(), ALONE,
            partition((), OFF, (), (1,)), id="left leaderless by a controller without KIP-966",
        ),
        pytest.param(
            partition((1,), 1), Wish(isr=()), {2, 3}, WITHOUT_ELR, partition((1,), OFF),
            id="without ELR the last one stays",
        ),
        pytest.param(
            partition((1,), OFF), Wish(), {2, 3}, WITHOUT_ELR, partition((1,), OFF),
            id="without ELR others come back",
        ),
        pytest.param(
            partition((1,), OFF), Wish(), {1}, WITHOUT_ELR, partition((1,), 1),
            id="without ELR it comes back",
        ),
        pytest.param(
            partition((1,), 1), Wish(isr=()), {2, 3}, ElectionRules(eligible=False, unclean=True),
            recovering(partition((2,), 2)), id="without ELR unclean is allowed",
        ),
        pytest.param(
            partition((3, 2), OFF), Wish(), {2, 3}, ElectionRules(eligible=False, unclean=True),
            partition((3, 2), 2), id="clean wins",
        ),
        pytest.param(
            partition((3, 2, 1), 3), Wish(), {1, 2, 3}, ALONE, partition((3, 2, 1), 3),
            id="no change for its own sake",
        ),
    ],
)  # fmt: skip
def test_the_next_leader(
    before: PartitionRegistration,
    wish: Wish,
    active: set[int],
    rules: ElectionRules,
    then: PartitionRegistration,
) -> None:
    assert after(before, wish, rules=rules, is_active=active.__contains__) == then


@pytest.mark.parametrize(
    ("before", "active", "leader"),
    [
        (partition((1, 2, 3), 2), {1, 2, 3}, 1),
        (partition((2, 3), 2), {1, 2, 3}, 2),
        (partition((3,), OFF), {1, 3}, 3),
        (partition((), OFF, (1, 2), (2,)), {1, 2}, 1),
    ],
    ids=["it is in sync", "it is not", "no leader before", "it is eligible"],
)
def test_the_preferred_leader_is_elected_where_it_may_lead(
    before: PartitionRegistration, active: set[int], leader: int
) -> None:
    then = after(
        before,
        Wish(),
        rules=BOTH,
        is_active=active.__contains__,
        election=Election.PREFERRED,
    )
    assert then.leader == leader


def test_an_operator_may_start_an_unclean_election_against_the_topics_configuration() -> None:
    then = after(
        partition((), OFF, (), (2,)),
        Wish(),
        rules=BOTH,
        is_active={3}.__contains__,
        election=Election.UNCLEAN,
    )
    assert then == recovering(partition((3,), 3))


# The twin: every leader, ISR, ELR and last known leader there could be, and the laws by which
# all but one of them fall.


def lawful(
    before: PartitionRegistration,
    gone: int | None,
    lost: bool,
    active: set[int],
    rules: ElectionRules,
) -> Iterator[tuple[int, frozenset[int], frozenset[int], bool]]:
    replicas = before.replicas
    min_isr = min(rules.min_insync_replicas, len(replicas))
    stay = set(before.isr) - {gone}
    small = rules.eligible and len(stay) < min_isr
    hold_all = (set(before.isr) | set(before.elr)) - ({gone} if lost else set())
    leaders = [NO_LEADER, *replicas]
    subsets = [
        frozenset(each)
        for n in range(len(replicas) + 1)
        for each in itertools.combinations(replicas, n)
    ]
    for leader, isr, elr in itertools.product(leaders, subsets, subsets):
        electable = {each for each in (stay or (hold_all if small else set())) if each in active}
        trusted = leader in electable
        if leader != NO_LEADER and not (leader in active and leader in isr):
            continue  # a leader is a replica in sync
        if electable and not trusted:
            continue  # who may lead does
        if before.leader in electable and leader != before.leader:
            continue  # no change for its own sake
        if (
            trusted
            and leader != before.leader
            and leader != next(each for each in replicas if each in electable)
        ):
            continue  # the first in assignment order
        if trusted and isr != (frozenset(stay) or {leader}):
            continue  # the ISR has those that stayed, or the one elected while it was empty
        if leader != NO_LEADER and not trusted:
            last = not (stay or (small and hold_all)) and rules.eligible
            by_last = before.last_known_elr[0] if last and before.last_known_elr else None
            expected = (
                by_last
                if by_last in active
                else next((each for each in replicas if each in active), None)
                if rules.unclean
                else None
            )
            if leader != expected or isr != {leader} or elr:
                continue  # at a risk: only so, and alone
        if leader == NO_LEADER:
            last = not (stay or (small and hold_all)) and rules.eligible
            if (rules.unclean and active & set(replicas)) or (
                last and set(before.last_known_elr) & active
            ):
                continue  # a leader could have been elected
            if isr != (frozenset(stay) if rules.eligible else frozenset(stay or before.isr)):
                continue
        below = small and len(isr) < min_isr  # the minimum may have become smaller without a leader
        if (trusted or leader == NO_LEADER) and elr != (hold_all - isr if below else frozenset()):
            continue  # the ELR holds all, where the ISR is too small, and is not in it
        yield leader, isr, elr, leader != NO_LEADER and not trusted


@st.composite
def partitions(draw: st.DrawFn) -> PartitionRegistration:
    replicas = tuple(draw(st.permutations(range(1, draw(st.integers(1, 4)) + 1))))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    others = [each for each in replicas if each not in isr]
    elr = tuple(draw(st.lists(st.sampled_from(others), unique=True))) if others else ()
    elr = tuple(each for each in replicas if each in elr)
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    last = () if leader != NO_LEADER else tuple(draw(st.sampled_from([(), *zip(replicas)])))
    return partition(isr, leader, elr, last, replicas=replicas)


@given(
    partitions(),
    st.sets(st.integers(1, 4)),
    st.none() | st.integers(1, 4),
    st.booleans(),
    st.builds(
        ElectionRules,
        min_insync_replicas=st.integers(1, 4),
        unclean=st.booleans(),
        eligible=st.booleans(),
    ),
)
def test_elections_agree_with_their_twin(
    before: PartitionRegistration,
    active: set[int],
    gone: int | None,
    lost: bool,
    rules: ElectionRules,
) -> None:
    if not rules.eligible:
        before = attrs.evolve(
            before, isr=before.isr or before.replicas[:1], elr=(), last_known_elr=()
        )
    lost = lost and gone is not None
    active = {each for each in active if each != gone}
    isr = tuple(each for each in before.isr if each != gone)
    wish = Wish(isr=isr, lost_its_tail=gone if lost else None)
    then = after(before, wish, rules=rules, is_active=active.__contains__)
    at_risk = then.leader_recovery_state is RECOVERING
    outcome = then.leader, frozenset(then.isr), frozenset(then.elr), at_risk
    assert [outcome] == list(lawful(before, gone, lost, active, rules))
    record = change_record(before, then, topic_id=TOPIC, number=0)
    merged = before if record is None else before.merge(record)
    alike = attrs.evolve(merged, leader_epoch=4, partition_epoch=9)
    assert alike == then
    assert merged.leader_epoch - before.leader_epoch == (then.leader != before.leader)
    assert merged.partition_epoch - before.partition_epoch == (record is not None)


def test_an_unclean_leader_counts_as_recovering() -> None:
    before = partition((1,), 1)
    rules = ElectionRules(unclean=True, eligible=False)
    then = after(before, Wish(isr=()), rules=rules, is_active={2}.__contains__)
    assert change_record(before, then, topic_id=TOPIC, number=0) == PartitionChangeRecord(
        topic_id=TOPIC, partition_id=0, isr=[2], leader=2, leader_recovery_state=RECOVERING
    )


def test_no_change_needs_no_record() -> None:
    before = partition((1, 2), 1)
    then = after(before, Wish(), rules=ALONE, is_active={1, 2}.__contains__)
    assert change_record(before, then, topic_id=TOPIC, number=0) is None
