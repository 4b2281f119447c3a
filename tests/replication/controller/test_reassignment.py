"""Reassignments by table, and where any row of them leads."""

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.controller.rules.reassignment import begun, cancelled, completed, is_reassigned
from replication.metadata.rules.image import PartitionRegistration

AT_REST = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, leader_epoch=4, partition_epoch=9)


def moving(
    replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
) -> PartitionRegistration:
    return attrs.evolve(AT_REST, replicas=replicas, adding=adding, removing=removing)


@pytest.mark.parametrize(
    ("before", "target", "then"),
    [
        pytest.param(
            AT_REST, (4, 5, 6), moving((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), id="all of them"
        ),
        pytest.param(AT_REST, (1, 2, 4), moving((1, 2, 4, 3), (4,), (3,)), id="one of them"),
        pytest.param(AT_REST, (1, 2, 3, 4), moving((1, 2, 3, 4), (4,), ()), id="one more"),
        pytest.param(AT_REST, (2,), moving((2, 1, 3), (), (1, 3)), id="fewer"),
        pytest.param(AT_REST, (3, 1, 2), moving((3, 1, 2), (), ()), id="another order"),
        pytest.param(
            moving((1, 2, 4, 3), (4,), (3,)),
            (1, 2, 5),
            moving((1, 2, 5, 4, 3), (5, 4), (4, 3)),
            id="somewhere else after all",
        ),
        pytest.param(
            moving((1, 2, 4, 3), (4,), (3,)),
            (1, 2, 3, 4),
            moving((1, 2, 3, 4), (4,), ()),
            id="no replica is removed after all",
        ),
        pytest.param(
            moving((1, 2, 4, 3), (4,), (3,)),
            (1, 2, 3),
            moving((1, 2, 3, 4), (4,), (4,)),
            id="back",
        ),
    ],
)
def test_how_it_begins(
    before: PartitionRegistration, target: tuple[int, ...], then: PartitionRegistration
) -> None:
    assert begun(before, target) == then


@pytest.mark.parametrize(
    ("isr", "done"),
    [
        ((1, 2, 3), False),
        ((1, 2, 3, 4), False),
        ((4, 5), False),
        ((1, 2, 4, 5, 6), True),
        ((4, 5, 6), True),
    ],
    ids=repr,
)
def test_it_is_done_when_all_that_stay_are_in_sync(isr: tuple[int, ...], done: bool) -> None:
    under_way = attrs.evolve(begun(AT_REST, (4, 5, 6)), isr=isr)
    then = completed(under_way)
    assert is_reassigned(then) != done
    assert then == (attrs.evolve(AT_REST, replicas=(4, 5, 6), isr=(4, 5, 6)) if done else under_way)


targets = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(tuple)


@given(st.lists(targets, min_size=1, max_size=4))
def test_a_cancel_leads_back_to_the_beginning_however_often_the_target_was_changed(
    asked: list[tuple[int, ...]],
) -> None:
    partition = AT_REST
    for target in asked:
        partition = begun(partition, target)
        assert partition.replicas[: len(target)] == target
        assert set(partition.replicas) >= set(AT_REST.replicas)
        assert set(partition.replicas) - set(partition.removing) == set(target)
        assert len(set(partition.replicas)) == len(partition.replicas)
    back = cancelled(partition)
    assert set(back.replicas) == set(AT_REST.replicas)
    assert not is_reassigned(back)
    assert back.isr == AT_REST.isr


def test_a_cancel_drops_the_new_replicas_wherever_they_count() -> None:
    under_way = attrs.evolve(begun(AT_REST, (4, 5, 6)), isr=(1, 4), elr=(2, 5))
    back = cancelled(under_way)
    assert (back.isr, back.elr) == ((1,), (2,))


@given(targets, st.sets(st.integers(1, 6)))
def test_a_completed_reassignment_has_exactly_the_wanted_replicas(
    target: tuple[int, ...], in_sync: set[int]
) -> None:
    partition = begun(AT_REST, target)
    isr = tuple(each for each in partition.replicas if each in in_sync)
    then = completed(attrs.evolve(partition, isr=isr))
    if is_reassigned(partition):
        assert is_reassigned(then) == (not in_sync >= set(target))
    if not is_reassigned(then):
        assert then.replicas == target
        assert set(then.isr) <= set(target) or not is_reassigned(partition)
