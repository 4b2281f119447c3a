"""A consumer group is what its records add up to."""

from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import ASSIGNORS
from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    ConsumerMemberState,
    GroupChange,
)
from replication.groups.rules.consumer_group.membership import commit_faults
from replication.groups.rules.consumer_group.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from replication.groups.rules.consumer_group.target import (
    metadata_hash,
    preferred_assignor,
    raise_epoch,
)
from storage.types import TopicPartition
from tests.replication.groups.consumer_group.members import Desk, image_of, of, topic_id


def put(desk: Desk, member: ConsumerMember) -> None:
    member = member.with_epochs_of(member.epochs, member.member_epoch)
    change = desk.begin()
    change.put(member.metadata_value(), member.member_id)
    change.put(member.current_value(), member.member_id)
    desk.keep(change)


@pytest.fixture
def desk() -> Desk:
    return Desk(image_of({"a": 4, "b": 2}))


@pytest.mark.conformance("CG-53", "CG-54", "CG-55", "CG-56", "CG-57", "CG-120", "CG-121")
def test_members_come_and_go_by_their_records(desk: Desk) -> None:
    assert desk.group.members == {}
    member = ConsumerMember(member_id="m", instance_id="i", topic_names=frozenset({"a"}))
    put(desk, member)
    assert desk.member("m") == member
    assert desk.group.static_member("i") == member
    changed = attrs.evolve(member, client_id="other", assignor="range")
    put(desk, changed)
    assert desk.member("m") == changed
    again = attrs.evolve(member, member_id="n")
    put(desk, again)
    assert desk.group.static_member("i") == again
    change = desk.begin()
    change.remove_member("m")
    desk.keep(change)
    assert desk.group.static_member("i") == again
    change = desk.begin()
    change.remove_member("n")
    change.remove_member("never")
    desk.keep(change)
    assert desk.group.static_member("i") is None
    assert desk.state() is ConsumerGroupState.EMPTY


@pytest.mark.conformance("CG-58", "CG-61", "CG-130", "CG-131")
def test_a_partition_is_owned_until_it_is_released(desk: Desk) -> None:
    member = ConsumerMember(
        member_id="m", member_epoch=3, assigned=of(a={1}), pending_revocation=of(a={2})
    )
    put(desk, member)
    a = topic_id("a")
    assert [desk.group.owner(a, number) for number in (1, 2, 3)] == ["m", "m", None]
    put(desk, attrs.evolve(member, assigned=of(a={1, 3}), pending_revocation={}))
    assert [desk.group.owner(a, number) for number in (1, 2, 3)] == ["m", None, "m"]
    change = desk.begin()
    change.delete(ConsumerGroupCurrentMemberAssignmentValue, "m")
    desk.keep(change)
    assert desk.member("m").member_epoch == -1
    assert desk.group.owner(a, 1) is None


@pytest.mark.conformance("CG-59", "CG-60")
def test_in_a_log_that_is_half_compacted_the_later_owner_counts(desk: Desk) -> None:
    put(desk, ConsumerMember(member_id="m", member_epoch=1, assigned=of(a={1})))
    put(desk, ConsumerMember(member_id="n", member_epoch=2, assigned=of(a={1})))
    put(desk, ConsumerMember(member_id="m", member_epoch=2, assigned=of(a={2})))
    assert desk.group.owner(topic_id("a"), 1) == "n"
    assert desk.group.owner(topic_id("a"), 2) == "m"


@pytest.mark.conformance("CG-63", "CG-102")
def test_the_state_of_a_group_follows_from_its_epochs(desk: Desk) -> None:
    assert desk.state() is ConsumerGroupState.EMPTY
    put(desk, ConsumerMember(member_id="m"))
    change = desk.begin()
    change.put(ConsumerGroupMetadataValue(epoch=1))
    desk.keep(change)
    assert desk.state() is ConsumerGroupState.ASSIGNING
    change = desk.begin()
    change.put(ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1))
    desk.keep(change)
    assert desk.state() is ConsumerGroupState.RECONCILING
    put(desk, ConsumerMember(member_id="m", member_epoch=1))
    assert desk.state() is ConsumerGroupState.STABLE
    waits = ConsumerMemberState.UNRELEASED_PARTITIONS
    put(desk, ConsumerMember(member_id="m", member_epoch=1, state=waits))
    assert desk.state() is ConsumerGroupState.RECONCILING


@pytest.mark.conformance("CG-64")
def test_the_assignor_is_the_one_that_most_members_ask_for(desk: Desk) -> None:
    names = list(ASSIGNORS)
    assert preferred_assignor(desk.group, names) == "uniform"
    for number, name in enumerate(
        ["range", "uniform", "range", None, "custom", "custom", "custom"]
    ):
        put(desk, ConsumerMember(member_id=str(number), assignor=name))
    assert preferred_assignor(desk.group, names) == "range"
    assert preferred_assignor(desk.group, ["uniform"]) == "uniform"


@pytest.mark.conformance("CG-65", "CG-66", "CG-74")
def test_the_topics_of_a_group_are_those_of_its_members(desk: Desk) -> None:
    put(desk, ConsumerMember(member_id="m", topic_names=frozenset({"a"}), topic_regex="b.*"))
    put(desk, ConsumerMember(member_id="n", topic_names=frozenset({"c"})))
    assert desk.group.subscribed_topics() == {"a", "c"}
    change = desk.begin()
    change.put(ConsumerGroupRegularExpressionValue(topics=["b", "bb"]), "b.*")
    desk.keep(change)
    assert desk.group.subscribed_topics() == {"a", "b", "bb", "c"}
    assert desk.group.readers_of("b.*") == 1
    put(desk, ConsumerMember(member_id="m", topic_names=frozenset({"a"})))
    assert desk.group.subscribed_topics() == {"a", "c"}


@pytest.mark.conformance("CG-106")
def test_the_hash_of_topics_notices_what_an_assignment_depends_on() -> None:
    image = image_of({"a": 2, "b": 1})
    known = metadata_hash(["a"], image)
    assert metadata_hash([], image) == metadata_hash(["none"], image) == 0
    assert known == metadata_hash(["a", "none"], image_of({"a": 2}))
    for other in (image_of({"a": 3}), image_of({"a": 2}, rack="r"), image_of({"c": 2})):
        assert metadata_hash(["a"], other) != known
    assert -(2**63) <= known < 2**63


@pytest.mark.conformance("CG-124", "CG-125")
def test_the_topics_that_kafka_4_0_has_written_are_deleted_with_the_next_epoch(desk: Desk) -> None:
    change = desk.begin()
    change.put(ConsumerGroupPartitionMetadataValue())
    desk.keep(change)
    assert desk.group == attrs.evolve(ConsumerGroup("g"), has_partition_metadata=True)
    change = desk.begin()
    raise_epoch(change, desk.image)
    desk.keep(change)
    assert desk.keys == [3, 4]
    assert not desk.group.has_partition_metadata


@pytest.mark.conformance(
    "CG-122", "CG-123", "CG-126", "CG-127", "CG-128", "CG-129", "CG-117", "CG-118"
)
def test_another_coordinator_reads_the_same_group_until_it_is_deleted(desk: Desk) -> None:
    desk.join("m", "a")
    desk.join("n", "a", "b", instance_id="i")
    desk.beat("m", has=of(a={0}))
    assert desk.replayed() == desk.group
    change = desk.begin()
    for member_id in list(change.group.members):
        change.remove_member(member_id)
    change.delete_group()
    desk.keep(change)
    assert desk.replayed() is None


def test_tombstones_of_an_unknown_group_change_nothing(desk: Desk) -> None:
    change = GroupChange(ConsumerGroup("g"))
    change.delete(ConsumerGroupTargetAssignmentMemberValue, "m")
    change.delete(ConsumerGroupMemberMetadataValue, "m")
    change.delete(ConsumerGroupTargetAssignmentMetadataValue)
    desk.keep(change)
    assert desk.replayed() is None


def faults(desk: Desk, member_id: str, epoch: int, **how: Any) -> Any:
    partition = TopicPartition("a", 0)
    found = commit_faults(
        desk.group, [partition], desk.image, member_id=member_id, member_epoch=epoch, **how
    )
    return found.get(partition) if isinstance(found, dict) else found


@pytest.mark.conformance("CG-68", "CG-69", "CG-71")
def test_a_commit_names_a_member_and_its_epoch(desk: Desk) -> None:
    assert faults(desk, "", -1) is ErrorCode.NONE
    assert faults(desk, "m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    put(desk, ConsumerMember(member_id="m", member_epoch=5))
    classic = ClassicMemberMetadata(session_timeout_ms=1)
    put(desk, ConsumerMember(member_id="c", member_epoch=5, classic=classic))
    for member_id, epoch, expected in (
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 5, ErrorCode.NONE),
        ("m", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 6, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 4, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert faults(desk, member_id, epoch) is expected
    assert faults(desk, "m", 5, from_old_client=True) is ErrorCode.UNSUPPORTED_VERSION
    assert faults(desk, "c", 5, from_old_client=True) is ErrorCode.NONE


def test_a_late_commit_counts_for_what_the_member_had_then(desk: Desk) -> None:
    member = ConsumerMember(member_id="m", assigned=of(a={0})).having(of(a={0}), 3)
    put(desk, attrs.evolve(member, member_epoch=5, pending_revocation={}))
    assert desk.replayed() == desk.group
    assert faults(desk, "m", 3) is ErrorCode.NONE
    assert faults(desk, "m", 4) is ErrorCode.NONE
    assert faults(desk, "m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    put(desk, attrs.evolve(member, member_epoch=5, assigned={}, pending_revocation=of(a={0})))
    assert faults(desk, "m", 4) is ErrorCode.NONE, "what it has yet to give up is still its own"
