"""Heartbeats of members: the cases of Kafka's GroupMetadataManagerTest."""

from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.group import ConsumerGroupState, ConsumerMemberState
from replication.groups.rules.consumer_group.heartbeat import fault_in, note_topics
from replication.groups.rules.consumer_group.membership import (
    ConsumerGroupSettings,
    Refusal,
    fence,
)
from replication.groups.rules.consumer_group.patterns import resolve
from replication.groups.rules.consumer_group.records import ClassicMemberMetadata
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from tests.replication.groups.consumer_group.members import Desk, image_of, of

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 1,
    "subscribed_topic_names": ["a"],
    "topic_partitions": [],
}


@pytest.fixture
def desk() -> Desk:
    return Desk(image_of({"a": 6, "b": 3}))


def resolve_patterns(desk: Desk) -> None:
    change = desk.begin()
    found = resolve(desk.group.subscribed_patterns(), desk.image.topics, version=1, timestamp=2)
    note_topics(change, found, desk.image)
    desk.keep(change)


@pytest.mark.conformance("CG-78", "CG-80")
@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        (1, {"member_id": ""} | JOIN, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": ""} | JOIN, None),
        (0, {"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "", "member_epoch": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"group_id": " "} | JOIN, ErrorCode.INVALID_REQUEST),
        (1, {"instance_id": ""} | JOIN, ErrorCode.INVALID_REQUEST),
        (1, {"rack_id": ""} | JOIN, ErrorCode.INVALID_REQUEST),
        (1, JOIN | {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (1, JOIN | {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (1, JOIN | {"topic_partitions": [HeartbeatTopicPartitions()]}, ErrorCode.INVALID_REQUEST),
        (1, JOIN | {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (1, JOIN | {"subscribed_topic_names": None, "subscribed_topic_regex": ""}, None),
        (1, {"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -2, "instance_id": "i"}, None),
        (1, {"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": 1}, None),
        (1, {"member_epoch": 1, "server_assignor": "bar"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (1, {"member_epoch": 1, "server_assignor": "range"}, None),
    ],
)
def test_a_request_is_checked_before_the_group(
    version: int, fields: dict[str, object], error: ErrorCode | None
) -> None:
    said = {"group_id": "g", "member_id": "m"} | fields
    fault = fault_in(ConsumerGroupHeartbeatRequest(**said), version, ["uniform", "range"])  # type: ignore[arg-type] # of the request
    assert (None if fault is None else fault.error) is error


@pytest.mark.conformance("CG-82")
def test_an_unknown_member_must_join(desk: Desk) -> None:
    desk.join("m", "a")
    assert desk.error("n", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.error("n", -1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conformance("CG-84")
def test_the_first_member_gets_everything(desk: Desk) -> None:
    beat = desk.join("m", "a", "b", "none")
    assert (beat.member_epoch, beat.assigned) == (1, of(a=range(6), b=range(3)))
    assert desk.keys == [5, 3, 7, 6, 8]
    assert (desk.group.epoch, desk.group.assignment_epoch) == (1, 1)
    assert desk.state() is ConsumerGroupState.STABLE
    assert desk.beat("m", has=beat.assigned).assigned is None
    assert desk.keys == []


@pytest.mark.conformance("CG-83")
def test_a_member_with_another_epoch_is_fenced(desk: Desk) -> None:
    desk.join("m", "a")
    desk.join("n", "a")
    desk.beat("m", has=of(a=range(6)))
    desk.beat("m", has=desk.member("m").assigned)
    member = desk.member("m")
    assert (member.member_epoch, member.previous_member_epoch) == (2, 1)
    assert desk.error("m", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert desk.error("m", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    too_much = [HeartbeatTopicPartitions(topic_id=b"b" + b"." * 15, partitions=[0])]
    assert desk.error("m", 1, topic_partitions=too_much) is ErrorCode.FENCED_MEMBER_EPOCH
    answer = desk.ask("m", 1, topic_partitions=[])
    assert not isinstance(answer, Refusal), "the response with epoch 2 may have been lost"
    answer = desk.ask("m", 0, **JOIN)
    assert not isinstance(answer, Refusal), "a member that was fenced may join again"
    assert (answer.member_epoch, answer.assigned) == (2, desk.member("m").assigned)


@pytest.mark.conformance("CG-85")
def test_another_subscription_is_assigned_anew(desk: Desk) -> None:
    desk.join("m", "a")
    beat = desk.beat("m", has=of(a=range(6)), subscribed_topic_names=["a", "b"])
    assert (beat.member_epoch, beat.assigned) == (2, of(a=range(6), b=range(3)))
    assert desk.keys == [5, 3, 7, 6, 8]


def test_another_rack_or_client_is_noted_and_changes_no_assignment(desk: Desk) -> None:
    desk.join("m", "a")
    desk.beat("m", rack_id="r")
    assert desk.keys == [5]
    assert (desk.member("m").rack_id, desk.group.epoch) == ("r", 1)


@pytest.mark.conformance("CG-86", "CG-100")
def test_one_member_revokes_before_another_receives(desk: Desk) -> None:
    desk.join("m", "a")
    joined = desk.join("n", "a")
    assert (joined.member_epoch, joined.assigned) == (2, {})
    assert desk.member("n").state is ConsumerMemberState.UNRELEASED_PARTITIONS
    asked = desk.beat("m", has=of(a=range(6)))
    assert asked.member_epoch == 1, "it keeps its epoch until it has revoked"
    assert asked.assigned is not None
    assert desk.member("m").state is ConsumerMemberState.UNREVOKED_PARTITIONS
    assert desk.beat("n", has={}).assigned is None
    assert desk.state() is ConsumerGroupState.RECONCILING
    released = desk.beat("m", has=asked.assigned)
    assert (released.member_epoch, released.assigned) == (2, None)
    received = desk.beat("n", has={})
    assert received.assigned is not None
    assert desk.state() is ConsumerGroupState.STABLE
    assert {
        len(numbers) for each in (asked, received) for numbers in (each.assigned or {}).values()
    } == {3}


@pytest.mark.conformance("CG-87")
def test_a_member_that_leaves_raises_the_epoch(desk: Desk) -> None:
    desk.join("m", "a")
    desk.join("n", "b")
    desk.ask("n", -1)
    assert desk.keys == [8, 7, 5, 3]
    assert desk.group.epoch == 3
    assert desk.state() is ConsumerGroupState.ASSIGNING
    desk.beat("m")
    assert desk.keys[-2:] == [6, 8]
    assert desk.group.assignment_epoch == 3


@pytest.mark.conformance("CG-88", "CG-89", "CG-91")
def test_a_static_member_that_comes_back_finds_its_partitions(desk: Desk) -> None:
    desk.join("m", "a")
    desk.ask("m", -1)
    first = desk.join("s1", "a", instance_id="i")
    epoch = desk.group.epoch
    away = desk.ask("s1", -2, instance_id="i")
    assert not isinstance(away, Refusal)
    assert (away.member_epoch, desk.group.epoch, desk.keys) == (-2, epoch, [8])
    assert desk.member("s1").assigned == first.assigned
    back = desk.join("s2", "a", instance_id="i")
    assert back.assigned == first.assigned
    assert desk.keys[:6] == [8, 7, 5, 5, 7, 8]
    assert (desk.group.epoch, list(desk.group.members)) == (epoch, ["s2"])
    assert desk.replayed() == desk.group


@pytest.mark.conformance("CG-90")
def test_a_static_member_may_come_back_with_other_topics(desk: Desk) -> None:
    desk.join("s1", "a", instance_id="i")
    desk.ask("s1", -2, instance_id="i")
    epoch = desk.group.epoch
    back = desk.join("s2", "a", "b", instance_id="i")
    assert (back.assigned, desk.group.epoch) == (of(a=range(6), b=range(3)), epoch + 1)


@pytest.mark.conformance("CG-92")
def test_a_static_member_that_leaves_for_good_raises_the_epoch(desk: Desk) -> None:
    desk.join("s", "a", instance_id="i")
    desk.ask("s", -1, instance_id="i")
    assert (desk.group.members, desk.group.epoch) == ({}, 2)


@pytest.mark.conformance("CG-93", "CG-94", "CG-95", "CG-96", "CG-97", "CG-98")
def test_an_instance_id_has_one_owner(desk: Desk) -> None:
    desk.join("s", "a", instance_id="i")
    for member_id, epoch, instance_id, error in (
        ("t", 0, "i", ErrorCode.UNRELEASED_INSTANCE_ID),
        ("t", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s", 1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("t", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("t", -2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s", -1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("s", 9, "i", ErrorCode.FENCED_MEMBER_EPOCH),
    ):
        fields = JOIN if epoch == 0 else {}
        assert desk.error(member_id, epoch, instance_id=instance_id, **fields) is error


def test_a_classic_static_member_is_replaced_without_having_left(desk: Desk) -> None:
    desk.join("s", "a", instance_id="i")
    change = desk.begin()
    classic = attrs.evolve(desk.member("s"), classic=ClassicMemberMetadata(session_timeout_ms=9))
    change.put(classic.metadata_value(), "s")
    desk.keep(change)
    desk.join("t", "a", instance_id="i")
    assert desk.member("t").classic is None


@pytest.mark.conformance("CG-99")
def test_a_full_request_is_answered_in_full(desk: Desk) -> None:
    assigned = desk.join("m", "a").assigned
    again = desk.beat("m", has=assigned or {}, rebalance_timeout_ms=5, subscribed_topic_names=["a"])
    assert again.assigned == assigned
    assert desk.beat("m", has=assigned or {}).assigned is None


@pytest.mark.conformance("CG-101")
def test_a_full_group_takes_no_other_member() -> None:
    desk = Desk(image_of({"a": 1}), ConsumerGroupSettings(max_size=1))
    desk.join("m", "a")
    assert desk.error("n", 0, **JOIN) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.error("", 0, **JOIN) is ErrorCode.GROUP_MAX_SIZE_REACHED
    desk.beat("m")


@pytest.mark.conformance("CG-67", "CG-104", "CG-105")
def test_topics_that_change_are_noticed_by_the_next_heartbeat(desk: Desk) -> None:
    desk.join("m", "a")
    desk.image = image_of({"a": 8, "b": 3})
    assert desk.beat("m", image_changed=False).assigned is None
    change = desk.begin()
    assert change.records == []
    grown = desk.beat("m", has=of(a=range(6)))
    assert (grown.assigned, grown.member_epoch) == (of(a=range(8)), 2)
    desk.image = image_of({"b": 3})
    assert desk.beat("m", has=of(a=range(8))).assigned == {}
    assert desk.beat("m", has={}).member_epoch == 3


def test_a_pattern_is_resolved_after_it_was_asked_for(desk: Desk) -> None:
    beat = desk.join("m", subscribed_topic_regex="[ac].*")
    assert beat.assigned == {}
    resolve_patterns(desk)
    assert desk.keys == [16, 3]
    assert desk.beat("m", has={}).assigned == of(a=range(6))
    resolve_patterns(desk)
    assert desk.keys == [16], "the same topics raise no epoch"
    epoch = desk.group.epoch
    desk.join("n", subscribed_topic_regex="[ac].*")
    assert desk.group.epoch == epoch + 1, "the pattern is known already"
    desk.ask("n", -1)
    assert 16 not in desk.keys
    desk.beat("m", subscribed_topic_regex="b")
    assert desk.keys[:2] == [5, 16]
    assert desk.group.patterns == {}
    resolve_patterns(desk)
    desk.beat("m", has=of(a=range(6)))
    desk.beat("m", has={})
    assert desk.member("m").assigned == of(b=range(3))
    desk.ask("m", -1)
    assert desk.keys == [8, 7, 5, 16, 3]
    assert desk.replayed() == desk.group


def test_an_invalid_pattern_is_refused(desk: Desk) -> None:
    assert (
        desk.error("m", 0, **JOIN, subscribed_topic_regex="(?=a)")
        is ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    desk.join("m", subscribed_topic_regex="a")
    error = desk.error("m", 1, subscribed_topic_regex="a**")
    assert error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_member_in_a_state_of_a_later_version_is_fenced(desk: Desk) -> None:
    desk.join("m", "a")
    change = desk.begin()
    unknown = attrs.evolve(desk.member("m"), state=ConsumerMemberState.UNKNOWN)
    change.put(unknown.current_value(), "m")
    desk.keep(change)
    assert desk.error("m", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert desk.beat("m", has={}).assigned is None
    assert desk.member("m").state is ConsumerMemberState.STABLE


@pytest.mark.conformance("CG-109", "CG-111")
def test_members_that_are_too_late_are_fenced_together(desk: Desk) -> None:
    for member_id in "mno":
        desk.join(member_id, "a", instance_id=f"i{member_id}")
    change = desk.begin()
    fence(change, ["m", "n"], desk.image)
    desk.keep(change)
    assert list(desk.group.members) == ["o"]
    assert desk.keys == [8, 7, 5] * 2 + [3]
    assert desk.error("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
