"""A target assignment is written for the members whose share changes: Kafka's
TargetAssignmentBuilderTest.
"""

import pytest

from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import ConsumerMember
from replication.groups.rules.consumer_group.membership import fence, replace
from replication.groups.rules.consumer_group.records import ConsumerGroupMetadataValue
from replication.groups.rules.consumer_group.target import assign
from tests.replication.groups.consumer_group.members import Desk, image_of, of

MEMBER, EPOCH = 7, 6
"""The keys of a member's target assignment, and of the assignment epoch."""


@pytest.fixture
def desk() -> Desk:
    return Desk(image_of({"a": 6}))


def group_with(desk: Desk, *, epoch: int = 20, **targets: Assignment) -> None:
    """Put a group at this epoch, whose members read `a` and have these targets."""
    change = desk.begin()
    change.put(ConsumerGroupMetadataValue(epoch=epoch))
    for member_id, target in targets.items():
        member = ConsumerMember(member_id=member_id, topic_names=frozenset("a"))
        change.put(member.metadata_value(), member_id)
        if target:
            change.put_target(member_id, target)
    desk.keep(change)


def assigned(desk: Desk, assignor: str = "uniform") -> list[int]:
    """Return the keys that the target assignment of the group epoch writes."""
    change = desk.begin()
    assign(change, desk.image, [assignor])
    desk.keep(change)
    assert desk.group.assignment_epoch == desk.group.epoch
    return desk.keys


@pytest.mark.conformance("CG-45")
def test_a_group_without_members_has_an_assignment_epoch(desk: Desk) -> None:
    group_with(desk)
    assert assigned(desk) == [EPOCH]


@pytest.mark.conformance("CG-46")
def test_an_assignment_that_is_the_same_is_not_written(desk: Desk) -> None:
    group_with(desk, m=of(a={0, 1, 2}), n=of(a={3, 4, 5}))
    assert assigned(desk) == [EPOCH]


@pytest.mark.conformance("CG-47")
def test_members_may_swap_their_partitions(desk: Desk) -> None:
    group_with(desk, m=of(a={3, 4, 5}), n=of(a={0, 1, 2}))
    assert assigned(desk, "range") == [MEMBER, MEMBER, EPOCH]
    assert desk.group.target == {"m": of(a={0, 1, 2}), "n": of(a={3, 4, 5})}


@pytest.mark.conformance("CG-48")
def test_a_new_member_takes_from_the_others(desk: Desk) -> None:
    group_with(desk, m=of(a={0, 1, 2}), n=of(a={3, 4, 5}), new={})
    assert assigned(desk) == [MEMBER, MEMBER, MEMBER, EPOCH]
    assert {member: len(each[b"a" + b"." * 15]) for member, each in desk.group.target.items()} == {
        "m": 2,
        "n": 2,
        "new": 2,
    }


@pytest.mark.conformance("CG-49")
def test_a_member_that_reads_something_else_gives_up_its_share(desk: Desk) -> None:
    desk.image = image_of({"a": 6, "b": 2})
    group_with(desk, m=of(a={0, 1, 2}), n=of(a={3, 4, 5}))
    change = desk.begin()
    change.put(ConsumerMember(member_id="n", topic_names=frozenset("b")).metadata_value(), "n")
    desk.keep(change)
    assert assigned(desk) == [MEMBER, MEMBER, EPOCH]
    assert desk.group.target == {"m": of(a=range(6)), "n": of(b={0, 1})}


@pytest.mark.conformance("CG-50")
def test_only_the_shares_that_change_are_written(desk: Desk) -> None:
    group_with(desk, m=of(a={0, 1}), n=of(a={2, 3}), o=of(a={4}))
    assert assigned(desk) == [MEMBER, EPOCH]
    assert desk.group.target["o"] == of(a={4, 5})


@pytest.mark.conformance("CG-51")
def test_the_share_of_a_member_that_is_gone_goes_to_the_others(desk: Desk) -> None:
    group_with(desk, m=of(a={0, 1}), n=of(a={2, 3}), o=of(a={4, 5}))
    change = desk.begin()
    fence(change, ["o"], desk.image)
    desk.keep(change)
    assert assigned(desk) == [MEMBER, MEMBER, EPOCH]
    assert set(desk.group.target) == {"m", "n"}


@pytest.mark.conformance("CG-52")
def test_a_static_member_that_is_replaced_keeps_its_share(desk: Desk) -> None:
    group_with(desk, m=of(a={0, 1, 2}), n=of(a={3, 4, 5}))
    change = desk.begin()
    replace(change, desk.member("n"), "n2")
    desk.keep(change)
    assert assigned(desk) == [EPOCH]
    assert desk.group.target == {"m": of(a={0, 1, 2}), "n2": of(a={3, 4, 5})}


def test_members_that_join_together_are_assigned_together(desk: Desk) -> None:
    desk.assignment_interval_ms = 1000
    assert desk.join("m", "a").assigned == of(a=range(6))
    made_ms = desk.group.assigned_ms
    desk.wall_ms += 999
    beat = desk.join("n", "a")
    assert (beat.member_epoch, beat.assigned) == (1, {})
    assert (desk.group.epoch, desk.group.assignment_epoch) == (2, 1)
    desk.wall_ms += 1
    desk.beat("m", has=of(a=range(6)))
    assert (desk.group.assignment_epoch, desk.group.assigned_ms) == (2, made_ms + 1000)
    assert desk.replayed() == desk.group


def test_a_clock_that_goes_back_holds_up_no_assignment(desk: Desk) -> None:
    desk.assignment_interval_ms = 1000
    desk.join("m", "a")
    desk.wall_ms -= 500
    desk.join("n", "a")
    assert (desk.group.epoch, desk.group.assignment_epoch) == (2, 2)
