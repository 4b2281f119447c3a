"""Classic members in a consumer group, and groups that change their protocol: the cases of Kafka's
GroupMetadataManagerTest about online migration. The file is long because each case is short.
"""

from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.classic_members import heartbeat, join, leave, sync
from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerMemberState,
    GroupChange,
)
from replication.groups.rules.consumer_group.membership import (
    ConsumerGroupSettings,
    MigrationPolicy,
    Refusal,
)
from replication.groups.rules.consumer_group.migration import fence_or_downgrade, upgrade
from replication.groups.rules.effects import JoinResult
from replication.groups.rules.group import Group, GroupState, Member, Protocol
from replication.groups.rules.joining import Join
from replication.groups.rules.records import parse as parse_classic
from replication.wire.consumer_protocol import (
    Assignment as Embedded,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.replication.groups.consumer_group.members import Desk, image_of, of, topic_id


def embedded(assigned: Assignment, **more: Any) -> bytes:
    return encode_assignment(Embedded(assigned_partitions=named(assigned), **more))


def named(assigned: Assignment) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=each.rstrip(b".").decode(), partitions=sorted(numbers))
        for each, numbers in assigned.items()
    ]


def protocol(*topics: str, name: str = "range", owned: Assignment | None = None) -> Protocol:
    """A protocol of a member that reads these topics, and has `owned`."""
    subscription = Subscription(topics=list(topics), owned_partitions=named(owned or {}))
    return Protocol(name, encode_subscription(subscription))


@attrs.define(eq=False)
class MixedDesk(Desk):
    """A group with members of both kinds; a downgrade leaves the classic group in `classic`."""

    classic: Group | None = None
    cause: str = ""

    def keep(self, change: GroupChange) -> None:
        super().keep(change)
        self.classic, self.cause = change.downgraded, change.rebalance_cause

    def join_classic(
        self, member_id: str, *protocols: Protocol, **how: Any
    ) -> JoinResult | Refusal:
        asked: dict[str, Any] = {
            "new_member_id": "new",
            "group_instance_id": None,
            "client_id": "client",
            "client_host": "/host",
            "session_timeout_ms": 400,
            "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer",
            "protocols": protocols or (protocol("a"),),
        }
        change = self.begin()
        request = Join(ticket=0, member_id=member_id, **(asked | how))
        answer = join(change, request, self.conditions())
        if isinstance(answer, JoinResult):
            self.keep(change)
        return answer

    def joined(self, member_id: str, *protocols: Protocol, **how: Any) -> JoinResult:
        answer = self.join_classic(member_id, *protocols, **how)
        assert isinstance(answer, JoinResult), answer
        assert answer.error is ErrorCode.NONE
        return answer

    def refused(self, member_id: str, *protocols: Protocol, **how: Any) -> ErrorCode:
        before = self.group.copy()
        answer = self.join_classic(member_id, *protocols, **how)
        assert isinstance(answer, Refusal)
        assert self.group == before
        return answer.error

    def synced(self, member_id: str, generation: int | None = None, **how: Any) -> Assignment:
        result = sync(
            self.group,
            self.image,
            member_id=member_id,
            generation=self.member(member_id).member_epoch if generation is None else generation,
            **(
                {"group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range"}
                | how
            ),
        )
        assert result.error is ErrorCode.NONE, result
        topics = decode_assignment(result.assignment).assigned_partitions
        return {topic_id(each.topic): frozenset(each.partitions) for each in topics}

    def sync_error(self, member_id: str, generation: int, **how: Any) -> ErrorCode:
        asked = {"group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range"}
        return sync(
            self.group, self.image, member_id=member_id, generation=generation, **(asked | how)
        ).error

    def heard(self, member_id: str, generation: int | None = None, **how: Any) -> ErrorCode:
        epoch = self.member(member_id).member_epoch if generation is None else generation
        asked = {"group_instance_id": None} | how
        return heartbeat(self.group, member_id=member_id, generation=epoch, **asked)

    def leave(self, *leaving: tuple[str, str | None]) -> list[ErrorCode]:
        change = self.begin()
        errors = leave(change, leaving, self.conditions())
        self.keep(change)
        return errors

    def upgraded(self, classic: Group) -> Refusal | None:
        change = GroupChange(ConsumerGroup("g"))
        refusal = upgrade(change, classic, self.conditions())
        if refusal is None:
            self.keep(change)
        return refusal


@pytest.fixture
def desk() -> MixedDesk:
    return MixedDesk(image_of({"a": 6, "b": 3}))


def classic_group(**assigned: bytes) -> Group:
    """A stable classic group of generation 5, whose members read `a`."""
    group = Group("g", GroupState.STABLE, 0, "consumer", "range", 5)
    for member_id, assignment in assigned.items():
        group.add(
            Member(
                member_id=member_id,
                group_instance_id=None,
                client_id="client",
                client_host="/host",
                rebalance_timeout_ms=1000,
                session_timeout_ms=400,
                protocol_type="consumer",
                protocols=(protocol("a"),),
                assignment=assignment,
            )
        )
    return group


# Upgrade.


def test_a_classic_group_lives_on_as_a_consumer_group(desk: MixedDesk) -> None:
    classic = classic_group(m=embedded(of(a={0, 1, 2})), n=embedded(of(a={3, 4, 5})), late=b"")
    assert desk.upgraded(classic) is None
    assert desk.keys == [5, 5, 5, 3, 7, 7, 7, 6, 8, 8, 8]
    group = desk.group
    assert (group.epoch, group.assignment_epoch) == (5, 5)
    assert desk.member("m").assigned == group.target["m"] == of(a={0, 1, 2})
    assert desk.member("late").assigned == {}
    assert [each.member_epoch for each in group.members.values()] == [5, 5, 5]
    known = desk.member("m").classic
    assert known is not None
    assert (known.session_timeout_ms, known.supported_protocols[0].name) == (400, "range")
    assert desk.replayed() == group
    beat = desk.join("c", "a")
    assert (beat.member_epoch, desk.group.epoch) == (6, 6)
    assert desk.heard("m") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_upgrades_its_group_has_a_new_target(desk: MixedDesk) -> None:
    """Nobody had been given anything yet, and the target of the upgraded group stayed empty."""
    classic = Group("g", GroupState.COMPLETING_REBALANCE, 0, "consumer", "range", 5)
    [former] = classic_group(m=b"").members.values()
    classic.add(attrs.evolve(former, group_instance_id="one"))
    assert desk.upgraded(classic) is None
    beat = desk.join("c", "a", instance_id="one")
    assert (beat.member_epoch, beat.assigned) == (6, of(a={0, 1, 2, 3, 4, 5}))


@pytest.mark.parametrize(
    ("classic", "settings"),
    [
        (classic_group(m=b""), {"migration": MigrationPolicy.DISABLED}),
        (classic_group(m=b""), {"migration": MigrationPolicy.DOWNGRADE}),
        (classic_group(m=b"", n=b""), {"max_size": 1}),
        (classic_group(m=embedded({}, user_data=b"mine")), {}),
        (classic_group(m=b"\0"), {}),
    ],
    ids=["disabled", "only downgrades", "too many members", "user data", "malformed"],
)
def test_a_group_that_cannot_be_upgraded_stays(
    desk: MixedDesk, classic: Group, settings: dict[str, Any]
) -> None:
    desk.settings = ConsumerGroupSettings(**settings)
    refusal = desk.upgraded(classic)
    assert refusal is not None
    assert refusal.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.group.members == {}


def test_a_group_of_another_protocol_is_not_upgraded(desk: MixedDesk) -> None:
    connect = classic_group(m=b"")
    connect.protocol_type = "connect"
    assert desk.upgraded(connect) is not None


# Requests of classic members.


@pytest.mark.conformance("CG-134")
def test_a_classic_member_joins(desk: MixedDesk) -> None:
    desk.join("c", "a")
    answer = desk.joined("m")
    assert (answer.member_id, answer.generation) == ("m", 2)
    assert (answer.protocol_type, answer.protocol_name, answer.members) == ("consumer", "range", ())
    member = desk.member("m")
    assert member.classic is not None
    assert member.topic_names == {"a"}
    assert desk.synced("m") == {}
    assert desk.heard("m") is ErrorCode.NONE, "the other member has yet to release"
    desk.beat("c", has=of(a=range(6)))
    desk.beat("c", has=desk.member("c").assigned)
    assert desk.heard("m") is ErrorCode.REBALANCE_IN_PROGRESS, "they are free now"
    assert desk.joined("m", protocol("a", owned={})).generation == 2
    assert len(desk.synced("m")[topic_id("a")]) == 3
    assert desk.heard("m") is ErrorCode.NONE
    assert desk.replayed() == desk.group


def test_a_newcomer_must_know_its_id(desk: MixedDesk) -> None:
    desk.join("c", "a")
    answer = desk.join_classic("", must_know_its_id=True)
    assert isinstance(answer, JoinResult)
    assert (answer.error, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "new")
    assert set(desk.group.members) == {"c"}
    assert desk.joined("").member_id == "new"


@pytest.mark.conformance("CG-135")
def test_a_static_classic_member_joins(desk: MixedDesk) -> None:
    desk.join("c", "a")
    assert desk.joined("", group_instance_id="i").member_id == "new"
    assert desk.group.static_member("i") == desk.member("new")
    assert desk.refused("other", group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.refused("new", group_instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conformance("CG-136")
def test_a_static_classic_member_comes_back(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.joined("m", group_instance_id=None)
    desk.joined("", group_instance_id="i", new_member_id="i1")
    target = desk.group.target["i1"]
    answer = desk.joined("", group_instance_id="i", new_member_id="i2")
    assert (answer.member_id, answer.generation) == ("i2", 3)
    assert "i1" not in desk.group.members
    assert desk.group.target["i2"] == target
    assert desk.group.epoch == 3, "its subscription is the same"


def test_static_members_change_their_protocol(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.joined("", group_instance_id="i", new_member_id="i1")
    beat = desk.join("i2", "a", instance_id="i")
    assert beat.member_id == "i2"
    assert desk.member("i2").classic is None
    assert desk.joined("", group_instance_id="i", new_member_id="i3").generation == 2
    assert desk.member("i3").classic is not None
    assert desk.classic is None, "there is a consumer left"


@pytest.mark.conformance("CG-77")
def test_the_last_consumer_comes_back_as_a_classic_member(desk: MixedDesk) -> None:
    desk.join("i1", "a", instance_id="i")
    desk.joined("m")
    desk.beat("i1", has=of(a=range(6)))
    desk.beat("i1", has=desk.member("i1").assigned)
    desk.joined("m", protocol("a", owned={}))
    assert {each.state for each in desk.group.members.values()} == {ConsumerMemberState.STABLE}
    target = dict(desk.group.target)
    has = desk.member("i1").assigned
    rejoining = protocol("a", owned=has)
    desk.joined("", rejoining, group_instance_id="i", new_member_id="i2")
    assert desk.classic is not None
    assert "nobody knows that it leads" in desk.cause, "who leads looks for new partitions"
    assert set(desk.classic.members) == {"m", "i2"}
    assert desk.classic.generation == 2
    given = decode_assignment(desk.classic.members["i2"].assignment)
    assert given.assigned_partitions == named(target["i1"])
    assert desk.replayed() is None
    written = parse_classic(*desk.log[-1])
    assert written is not None
    assert written.value == desk.classic.value()


def test_the_last_consumer_comes_back_and_reads_other_topics(desk: MixedDesk) -> None:
    desk.join("i1", "a", instance_id="i")
    desk.joined("m")
    desk.joined("", protocol("a", "b"), group_instance_id="i", new_member_id="i2")
    assert desk.classic is not None
    assert "stale assignment" in desk.cause


@pytest.mark.conformance("CG-137")
def test_an_eager_member_gives_up_everything_when_it_joins(desk: MixedDesk) -> None:
    desk.upgraded(classic_group(m=embedded(of(a=range(6)))))
    desk.join("c", "a")
    assert desk.heard("m") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.joined("m").generation == 6, "an eager member has nothing when it joins"
    assert len(desk.synced("m")[topic_id("a")]) == 3
    desk.beat("c", has={})
    assert len(desk.member("c").assigned[topic_id("a")]) == 3


@pytest.mark.conformance("CG-138")
def test_a_cooperative_member_joins_twice(desk: MixedDesk) -> None:
    desk.upgraded(classic_group(m=embedded(of(a=range(6)))))
    desk.join("c", "a")
    answer = desk.joined("m", protocol("a", owned=of(a=range(6))))
    assert answer.generation == 5, "it has yet to revoke"
    kept = desk.synced("m")
    assert len(kept[topic_id("a")]) == 3
    assert desk.heard("m") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.joined("m", protocol("a", owned=kept)).generation == 6
    assert desk.synced("m") == kept
    assert desk.heard("m") is ErrorCode.NONE
    desk.beat("c", has={})
    assert len(desk.member("c").assigned[topic_id("a")]) == 3


def test_a_classic_member_that_cannot_join_changes_nothing(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.joined("m")
    other = protocol("a", name="sticky")
    assert desk.refused("n", other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.refused("n", protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.refused("n", protocols=()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.refused("n", Protocol("range", b"\0")) is ErrorCode.UNKNOWN_SERVER_ERROR
    desk.settings = ConsumerGroupSettings(max_size=2)
    assert desk.refused("n") is ErrorCode.GROUP_MAX_SIZE_REACHED
    desk.settings = ConsumerGroupSettings(migration=MigrationPolicy.DISABLED)
    assert desk.refused("m") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_classic_members_are_checked(desk: MixedDesk) -> None:
    desk.join("c", "a")
    epoch = desk.joined("", group_instance_id="i").generation
    static = {"group_instance_id": "i"}
    for error, member_id, generation, how in (
        (ErrorCode.UNKNOWN_MEMBER_ID, "x", epoch, {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, "c", 1, {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, "new", epoch, {"group_instance_id": "j"}),
        (ErrorCode.FENCED_INSTANCE_ID, "x", epoch, static),
        (ErrorCode.ILLEGAL_GENERATION, "new", epoch + 1, static),
    ):
        assert desk.heard(member_id, generation, **how) is error
        assert desk.sync_error(member_id, generation, **how) is error
    for how in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert desk.sync_error("new", epoch, **how) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    desk.join("d", "a")
    assert desk.sync_error("new", epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heard("new") is ErrorCode.REBALANCE_IN_PROGRESS


# Leaving, and downgrade.


@pytest.mark.conformance("CG-132")
def test_the_group_is_classic_when_its_last_consumer_leaves(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.joined("m", protocol("a", "b"))
    desk.joined("", group_instance_id="i", new_member_id="n")
    epoch, target = desk.group.epoch, dict(desk.group.target)
    desk.ask("c", -1)
    assert desk.classic is not None
    assert desk.cause.endswith("for member leaving.")
    classic = desk.classic
    assert (classic.state, classic.generation, classic.protocol_name) == (
        GroupState.STABLE,
        epoch,
        "range",
    )
    assert set(classic.members) == {"m", "n"}
    assert classic.static_member_id("i") == "n"
    assert classic.is_subscribed("b")
    for member_id, member in classic.members.items():
        given = decode_assignment(member.assignment).assigned_partitions
        assert sorted(map(repr, given)) == sorted(map(repr, named(target[member_id])))
    assert desk.replayed() is None


@pytest.mark.parametrize(
    "settings",
    [{"migration": MigrationPolicy.UPGRADE}, {"classic_max_size": 0}],
    ids=["downgrades are disabled", "too many members"],
)
def test_a_group_that_cannot_be_downgraded_loses_its_last_consumer(
    desk: MixedDesk, settings: dict[str, Any]
) -> None:
    desk.settings = ConsumerGroupSettings(**settings)
    desk.join("c", "a")
    desk.joined("m")
    desk.ask("c", -1)
    assert desk.classic is None
    assert (set(desk.group.members), desk.group.epoch) == ({"m"}, 3)


def test_members_of_both_kinds_leave_by_one_request(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.join("d", "a", instance_id="j")
    desk.joined("m")
    desk.joined("", group_instance_id="i")
    errors = desk.leave(("m", None), ("x", None), ("", "i"), ("x", "j"), ("", "k"))
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(desk.group.members) == {"c", "d"}
    assert desk.group.epoch == 5
    assert desk.leave(("x", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.group.epoch == 5, "nobody has left"


@pytest.mark.conformance("CG-62")
def test_a_member_waits_only_for_partitions_of_others(desk: MixedDesk) -> None:
    desk.join("c", "a")
    desk.joined("m")
    assert desk.member("m").state is ConsumerMemberState.UNRELEASED_PARTITIONS
    assert desk.heard("m") is ErrorCode.NONE
    change = desk.begin()
    fence_or_downgrade(change, {"x"} & set(desk.group.members), desk.conditions())
    desk.beat("c", has=of(a=range(6)))
    assert desk.heard("m") is ErrorCode.NONE
    desk.beat("c", has=desk.member("c").assigned)
    assert desk.heard("m") is ErrorCode.REBALANCE_IN_PROGRESS
