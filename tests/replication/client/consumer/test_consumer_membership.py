"""The heartbeats of a member of the new protocol, and the effects of their responses."""

from typing import Any

from replication.client.consumer.group.rules.consumer_membership import (
    ConsumerMembership,
    ConsumerMembershipState as State,
)
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

T, U = b"t" * 16, b"u" * 16
NAMES = frozenset({"t"})


def new(**fields: Any) -> ConsumerMembership:
    member = ConsumerMembership(group_id="g", member_id="m", rebalance_timeout_ms=9_000, **fields)
    member.subscribe(NAMES, None)
    return member


def answer(epoch: int, target: dict[bytes, set[int]] | None = None) -> Any:
    topics = [
        HeartbeatTopicPartitions(topic_id=topic, partitions=sorted(each))
        for topic, each in (target or {}).items()
    ]
    return ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=None if target is None else HeartbeatAssignment(topic_partitions=topics),
    )


def beat(
    member: ConsumerMembership, epoch: int, target: dict[bytes, set[int]] | None = None
) -> ConsumerGroupHeartbeatRequest:
    """Send a heartbeat that is answered with that epoch and that target."""
    request = member.heartbeat()
    member.on_response(request, answer(epoch, target), 1_000)
    return request


def said(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def joined(target: dict[bytes, set[int]], **fields: Any) -> ConsumerMembership:
    member = new(**fields)
    beat(member, 1, target)
    if target:
        member.reconciled(dict(member.target))
        beat(member, 1)
    assert member.state is State.STABLE
    return member


def test_a_join_says_everything_and_what_follows_only_what_has_changed() -> None:
    member = new(rack_id="r", server_assignor="range")
    assert (member.state, member.due_ms, member.generation_id) == (State.JOINING, 0, -1)
    join = beat(member, 1, {})
    assert join == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rack_id="r",
        rebalance_timeout_ms=9_000,
        subscribed_topic_names=["t"],
        server_assignor="range",
        topic_partitions=[],
    )
    assert (member.state, member.due_ms, member.generation_id) == (State.STABLE, 6_000, 1)
    assert beat(member, 1) == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=1
    )


def test_what_is_revoked_is_left_out_once_the_program_has_given_it_up() -> None:
    member = joined({T: {0, 1}})
    beat(member, 1, {T: {0}})
    assert member.state is State.RECONCILING
    assert said(beat(member, 1)) is None, "it says nothing of it yet"
    member.reconciled({T: frozenset({0})})
    assert member.due_ms == 0, "others wait for it"
    assert said(beat(member, 2)) == {T: [0]}
    assert (member.state, member.member_epoch) == (State.STABLE, 2)


def test_a_target_that_changes_meanwhile_is_reconciled_next() -> None:
    member = joined({T: {0, 1}})
    beat(member, 1, {T: {0}})
    under_way = member.heartbeat()
    member.reconciled({T: frozenset({0})})
    member.on_response(under_way, answer(1, {T: {0}, U: {0}}), 1_000)
    assert (member.state, member.due_ms) == (State.RECONCILING, 0)
    assert said(beat(member, 2)) == {T: [0]}
    assert member.state is State.RECONCILING


def test_a_heartbeat_without_an_answer_is_followed_by_one_that_says_everything() -> None:
    member = joined({T: {0}})
    lost = member.heartbeat()
    assert member.due_ms is None, "one at a time"
    member.on_failure(lost, 2_000, 100)
    assert [member.due_ms, member.failures] == [2_100, 1]
    again = beat(member, 1)
    assert (said(again), again.rebalance_timeout_ms) == ({T: [0]}, 9_000)
    assert (again.subscribed_topic_names, again.member_epoch) == (["t"], 1)
    assert member.failures == 0


def test_a_fenced_member_joins_again_after_it_has_given_everything_up() -> None:
    member = joined({T: {0}})
    late = member.heartbeat()
    member.reset("fenced")
    assert (member.state, member.due_ms, member.generation_id) == (State.LOST, None, -1)
    assert (member.is_lost, member.may_commit) == (True, False)
    member.on_response(late, answer(1, {T: {0, 1}}), 1_000)
    member.reconciled({T: frozenset({0})})
    assert (member.state, member.target, member.owned) == (State.LOST, {}, {})
    member.gave_up()
    assert beat(member, 4, {}).member_epoch == 0


def test_members_leave_by_minus_one_and_static_ones_by_minus_two() -> None:
    assert new(group_instance_id="i").leave() is not None, "its join may be under way"
    member, static = joined({}), joined({}, group_instance_id="i")
    leaving, resting = member.leave(), static.leave(stays_out=False)
    assert leaving is not None
    assert resting is not None
    assert (leaving.member_epoch, resting.member_epoch, resting.instance_id) == (-1, -2, "i")
    assert (member.state, static.state) == (State.OUT, State.LOST)
    assert member.leave() is None
    member.subscribe(NAMES, None)
    assert member.state is State.JOINING


def test_another_subscription_is_said_at_once() -> None:
    member = joined({})
    member.subscribe(frozenset({"t", "u"}), None)
    assert (member.due_ms, beat(member, 2).subscribed_topic_names) == (0, ["t", "u"])
    member.subscribe(frozenset(), "x.*")
    changed = beat(member, 3)
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == ([], "x.*")
    member.subscribe(NAMES, None)
    assert beat(member, 4).subscribed_topic_regex == "", "the pattern is taken back"
    assert beat(member, 4).subscribed_topic_regex is None


def test_an_instance_id_may_be_held_by_a_join_that_got_no_answer() -> None:
    member = new(group_instance_id="i")
    assert [member.may_hold_instance_id] == [False]
    member.on_failure(member.heartbeat(), 1_000, 100)
    assert member.may_hold_instance_id
    beat(member, 1, {})
    assert [member.may_hold_instance_id] == [False]
    fenced = joined({}, group_instance_id="i")
    fenced.reset("fenced")
    assert fenced.may_hold_instance_id, "the coordinator may still have it"


def test_a_member_that_failed_stays_out_until_it_leaves() -> None:
    member = joined({T: {0}})
    member.fail()
    member.subscribe(frozenset({"u"}), None)
    assert (member.state, member.due_ms, member.is_lost) == (State.FATAL, None, True)
    assert member.leave() is None
    member.subscribe(NAMES, None)
    assert member.state is State.JOINING
