"""The steps of one member towards its target: the cases of Kafka's CurrentAssignmentBuilderTest."""

from typing import Any

import attrs
import pytest

from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import ConsumerMember, ConsumerMemberState
from replication.groups.rules.consumer_group.reconciliation import reconcile
from tests.replication.groups.consumer_group.members import of, topic_id

STABLE, UNREVOKED, UNRELEASED = (
    ConsumerMemberState.STABLE,
    ConsumerMemberState.UNREVOKED_PARTITIONS,
    ConsumerMemberState.UNRELEASED_PARTITIONS,
)
HAS = of(a={1, 2, 3}, b={4, 5, 6})


def member(
    state: ConsumerMemberState, assigned: Assignment, *, pending: Assignment | None = None
) -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        member_epoch=10,
        previous_member_epoch=10,
        state=state,
        assigned=assigned,
        pending_revocation=pending or {},
    )


def step(
    before: ConsumerMember,
    target: Assignment,
    *,
    epoch: int = 11,
    others: Assignment | None = None,
    owned: Assignment | None = None,
) -> ConsumerMember | None:
    moved = reconcile(
        before,
        target_epoch=epoch,
        target=target,
        is_owned=lambda topic, number: number in (others or {}).get(topic, frozenset()),
        owned=owned,
        subscribed=[*target, *before.assigned],
    )
    return moved if moved is None or moved is before else attrs.evolve(moved, epochs={})


def after(
    state: ConsumerMemberState, epoch: int, assigned: Assignment, pending: Assignment | None = None
) -> ConsumerMember:
    return attrs.evolve(
        member(state, assigned, pending=pending), member_epoch=epoch, previous_member_epoch=10
    )


@pytest.mark.conformance("CG-31", "CG-32", "CG-33", "CG-34", "CG-35")
def test_a_stable_member_begins() -> None:
    stable = member(STABLE, HAS)
    assert step(stable, HAS, epoch=10) is stable
    assert step(stable, HAS) == after(STABLE, 11, HAS)
    more = of(a={1, 2, 3, 4}, b={4, 5, 6, 7})
    assert step(stable, more) == after(STABLE, 11, more)
    less = of(a={2, 3}, b={5, 6})
    assert step(stable, less) == after(UNREVOKED, 10, less, of(a={1}, b={4}))
    assert step(stable, more, others=of(a={4}, b={7})) == after(UNRELEASED, 11, HAS)
    other = of(a={2, 3}, b={5, 6, 7})
    assert step(stable, other, others=of(b={7}), owned=less) == after(UNRELEASED, 11, less)


@pytest.mark.conformance("CG-36", "CG-37", "CG-38", "CG-39")
def test_a_member_revokes_before_it_receives() -> None:
    less = of(a={2, 3}, b={5, 6})
    revoking = member(UNREVOKED, less, pending=of(a={1}, b={4}))
    assert step(revoking, less, owned=less) == after(STABLE, 11, less)
    assert step(revoking, less, owned=None) is revoking
    assert step(revoking, less, owned=of(a={1, 2, 3}, b={5, 6})) is revoking
    assert step(revoking, less, owned=of(a={2, 3}, b={4, 5, 6})) is revoking
    lesser = of(a={3}, b={6})
    assert step(revoking, lesser, epoch=12, owned=less) == after(
        UNREVOKED, 10, lesser, of(a={2}, b={5})
    )
    more = of(a={2, 3, 4}, b={5, 6, 7})
    assert step(revoking, more, owned=less, others=of(a={4})) == after(
        UNRELEASED, 11, of(a={2, 3}, b={5, 6, 7})
    )


@pytest.mark.conformance("CG-40", "CG-41", "CG-42", "CG-43")
def test_a_member_waits_for_what_others_release() -> None:
    waiting = member(UNRELEASED, of(a={2, 3}))
    target = of(a={2, 3, 4})
    assert step(waiting, of(a={2, 3})) == after(STABLE, 11, of(a={2, 3}))
    assert step(waiting, target) == after(STABLE, 11, target)
    assert step(waiting, target, epoch=10, others=of(a={4})) == after(UNRELEASED, 10, of(a={2, 3}))
    assert step(waiting, of(a={3})) == after(UNREVOKED, 10, of(a={3}), of(a={2}))


@pytest.mark.conformance("CG-44")
def test_a_member_in_a_state_of_a_later_version_begins_anew() -> None:
    unknown = member(ConsumerMemberState.of(99), of(a={1}))
    assert step(unknown, of(a={1}), owned=None) is None
    assert step(unknown, of(a={1}), owned=of(a={1})) is None
    assert step(unknown, of(a={1}), owned={}) == after(STABLE, 11, of(a={1}))
    assert topic_id("a") in HAS


def test_a_partition_keeps_the_epoch_at_which_it_was_given() -> None:
    stable = ConsumerMember(member_id="m").having(of(a={1, 2}), 10)
    target = of(a={2, 3})

    def moved(before: ConsumerMember, target: Assignment, **how: Any) -> ConsumerMember:
        after = reconcile(
            before, target=target, is_owned=lambda *_: False, subscribed=[*target], **how
        )
        assert after is not None
        return after

    revoking = moved(stable, target, target_epoch=12, owned=None)
    assert revoking.epochs == {topic_id("a"): {1: 10, 2: 10}}
    settled = moved(revoking, target, target_epoch=12, owned=of(a={2}))
    assert settled.epochs == {topic_id("a"): {2: 10, 3: 12}}
    given_back = moved(revoking, of(a={1, 2}), target_epoch=13, owned=of(a={2}))
    assert given_back.epochs == {topic_id("a"): {1: 13, 2: 10}}, "it was revoked in between"


def test_a_member_gives_up_at_once_what_it_no_longer_reads() -> None:
    stable = ConsumerMember(member_id="m").having(of(a={1}, b={2}), 10)

    def step(before: ConsumerMember, owned: Assignment | None) -> ConsumerMember | None:
        return reconcile(
            before,
            target_epoch=10,
            target=of(a={1}, b={2}),
            is_owned=lambda *_: True,
            owned=owned,
            subscribed=[topic_id("a")],
            subscription_changed=True,
        )

    revoking = step(stable, None)
    assert revoking is not None
    assert (revoking.state, revoking.member_epoch) == (UNREVOKED, 10)
    assert (revoking.assigned, revoking.pending_revocation) == (of(a={1}), of(b={2}))
    given_up = step(stable, of(a={1}))
    assert given_up is not None
    assert (given_up.state, given_up.assigned, given_up.pending_revocation) == (
        STABLE,
        of(a={1}),
        {},
    )
    assert step(revoking, None) == revoking
