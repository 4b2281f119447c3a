"""Growing, elections and reassignments by table: what is made, and what is refused with what."""

import random

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.controller.rules.election import ElectionRules
from replication.controller.rules.partitions import balanced, create_partitions, elect_leaders
from replication.controller.rules.reassignment_requests import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from replication.wire.elect_leaders import PREFERRED, UNCLEAN, ElectionTopic, ElectLeadersRequest
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.replication.controller.images import ORDERS, after, five_brokers, partition_of

PLAIN = ElectionRules()


def image_of(*partitions: PartitionRecord | PartitionChangeRecord) -> MetadataImage:
    """Return an image of five brokers, and of a topic with these partitions."""
    return after(
        MetadataImage(), [*five_brokers(), TopicRecord(name="orders", topic_id=ORDERS), *partitions]
    )


LED_BY_1 = PartitionRecord(
    topic_id=ORDERS,
    partition_id=0,
    replicas=[1, 2],
    isr=[1, 2],
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
)
LED_BY_2 = PartitionRecord(
    topic_id=ORDERS,
    partition_id=1,
    replicas=[1, 2],
    isr=[1, 2],
    leader=2,
    leader_epoch=0,
    partition_epoch=0,
)
TWO = image_of(LED_BY_1, LED_BY_2)


# CreatePartitions.


def grow(*asked: CreatePartitionsTopic, validate_only: bool = False) -> tuple[list[str], int]:
    """The errors, and how many partitions there are then."""
    decision = create_partitions(
        TWO,
        CreatePartitionsRequest(topics=list(asked), validate_only=validate_only),
        chance=random.Random(1),
    )
    errors = [ErrorCode(result.error_code).name for result in decision.answer.results]
    return errors, len(after(TWO, decision.records).topics["orders"].partitions)


def assigned(count: int, *replicas: tuple[int, ...]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas]
    return CreatePartitionsTopic(name="orders", count=count, assignments=assignments)


def to(count: int, name: str = "orders") -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=count, assignments=None)


@pytest.mark.parametrize(
    ("asked", "errors", "count"),
    [
        pytest.param([to(4)], ["NONE"], 4, id="two more"),
        pytest.param([to(2)], ["INVALID_PARTITIONS"], 2, id="as many as there are"),
        pytest.param([to(1)], ["INVALID_PARTITIONS"], 2, id="fewer"),
        pytest.param([to(3, "t")], ["UNKNOWN_TOPIC_OR_PARTITION"], 2, id="of no topic"),
        pytest.param([to(3), to(3)], ["INVALID_REQUEST"], 2, id="twice"),
        pytest.param(
            [to(3, "t"), to(3)], ["UNKNOWN_TOPIC_OR_PARTITION", "NONE"], 3, id="the other grows"
        ),
        pytest.param([assigned(3, (3, 2))], ["NONE"], 3, id="assigned"),
        pytest.param(
            [assigned(3, (3, 2), (2, 3))], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="too many"
        ),
        pytest.param([assigned(3)], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="without an assignment"),
        pytest.param([assigned(3, ())], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="to no broker"),
        pytest.param([assigned(3, (3,))], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="fewer replicas"),
        pytest.param([assigned(3, (3, 3))], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="one twice"),
        pytest.param([assigned(3, (3, 9))], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="a stranger"),
        pytest.param([assigned(3, (4, 5))], ["INVALID_REPLICA_ASSIGNMENT"], 2, id="none is up"),
    ],
)
def test_a_topic_grows(asked: list[CreatePartitionsTopic], errors: list[str], count: int) -> None:
    assert grow(*asked) == (errors, count)


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_request_adds_at_most_ten_thousand_partitions(validate_only: bool) -> None:
    policy = "POLICY_VIOLATION"
    for count in (10_003, 20_000_000, 2**31 - 1):
        assert grow(to(count), validate_only=validate_only) == ([policy], 2)
    assert grow(to(10_002, "t"), to(10_003)) == ([policy, policy], 2)
    assert grow(to(10_002), validate_only=True) == (["NONE"], 2)


def test_growth_may_only_be_tried() -> None:
    assert grow(to(5), validate_only=True) == (["NONE"], 2)


def test_new_partitions_have_as_many_replicas_as_the_first_is_to_have() -> None:
    moving = PartitionChangeRecord(
        topic_id=ORDERS,
        partition_id=0,
        replicas=[3, 1, 2],
        adding_replicas=[3],
        removing_replicas=[1, 2],
    )
    image = image_of(LED_BY_1, moving)
    decision = create_partitions(
        image, CreatePartitionsRequest(topics=[to(3)]), chance=random.Random(1)
    )
    new = [partition_of(after(image, decision.records), "orders", number) for number in (1, 2)]
    assert [len(each.replicas) for each in new] == [1, 1]
    assert all(each.isr == each.replicas == (each.leader,) for each in new)


def test_a_fenced_replica_of_a_new_partition_is_not_in_sync() -> None:
    decision = create_partitions(
        TWO, CreatePartitionsRequest(topics=[assigned(3, (4, 2))]), chance=random.Random(1)
    )
    new = partition_of(after(TWO, decision.records), "orders", 2)
    assert (new.replicas, new.isr, new.leader) == ((4, 2), (2,), 2)


# ElectLeaders.

OFFLINE = PartitionRecord(
    topic_id=ORDERS,
    partition_id=2,
    replicas=[4, 2],
    isr=[],
    leader=NO_LEADER,
    eligible_leader_replicas=[4],
    leader_epoch=0,
    partition_epoch=0,
)
NOBODY_UP = attrs.evolve(OFFLINE, partition_id=3, replicas=[4, 5])
PREFERRED_DOWN = PartitionRecord(
    topic_id=ORDERS,
    partition_id=4,
    replicas=[4, 2, 3],
    isr=[3, 2],
    leader=3,
    leader_epoch=0,
    partition_epoch=0,
)
ALL = image_of(LED_BY_1, LED_BY_2, OFFLINE, NOBODY_UP, PREFERRED_DOWN)


@pytest.mark.parametrize(
    ("number", "kind", "error", "leader"),
    [
        pytest.param(0, PREFERRED, "ELECTION_NOT_NEEDED", 1, id="it leads"),
        pytest.param(1, PREFERRED, "NONE", 1, id="it does not lead"),
        pytest.param(2, PREFERRED, "PREFERRED_LEADER_NOT_AVAILABLE", NO_LEADER, id="it is down"),
        pytest.param(4, PREFERRED, "PREFERRED_LEADER_NOT_AVAILABLE", 3, id="another leads"),
        pytest.param(1, UNCLEAN, "ELECTION_NOT_NEEDED", 2, id="unclean, and led"),
        pytest.param(2, UNCLEAN, "NONE", 2, id="unclean"),
        pytest.param(
            3, UNCLEAN, "ELIGIBLE_LEADERS_NOT_AVAILABLE", NO_LEADER, id="no replica is up"
        ),
        pytest.param(9, UNCLEAN, "UNKNOWN_TOPIC_OR_PARTITION", None, id="no such partition"),
    ],
)
def test_elect_leaders(number: int, kind: int, error: str, leader: int | None) -> None:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[ElectionTopic(topic="orders", partitions=[number])],
    )
    decision = elect_leaders(ALL, request, rules_of=lambda _: PLAIN)
    ((result,),) = [each.partition_result for each in decision.answer.replica_election_results]
    assert ErrorCode(result.error_code).name == error
    if leader is not None:
        then = partition_of(after(ALL, decision.records), "orders", number)
        assert then.leader == leader
        assert (then.leader_recovery_state == 1) == (number == 2 and error == "NONE")


def test_of_all_partitions_those_that_need_no_election_are_left_out() -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    decision = elect_leaders(ALL, request, rules_of=lambda _: PLAIN)
    (topic,) = decision.answer.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == [1, 2, 3, 4]
    assert [
        each.partition_id for each in decision.records if isinstance(each, PartitionChangeRecord)
    ] == [1]


def test_a_partition_named_twice_is_elected_once() -> None:
    request = ElectLeadersRequest(
        topic_partitions=[ElectionTopic(topic="orders", partitions=[1, 1])]
    )
    decision = elect_leaders(TWO, request, rules_of=lambda _: PLAIN)
    (topic,) = decision.answer.replica_election_results
    errors = [ErrorCode(each.error_code).name for each in topic.partition_result]
    assert errors == ["NONE", "ELECTION_NOT_NEEDED"]
    assert len(decision.records) == 1


def test_an_unknown_kind_of_election() -> None:
    request = ElectLeadersRequest(election_type=7, topic_partitions=None)
    decision = elect_leaders(TWO, request, rules_of=lambda _: PLAIN)
    assert decision.answer.error_code == ErrorCode.INVALID_REQUEST
    assert not decision.records


# Balance.


@given(
    st.lists(
        st.tuples(st.permutations((1, 2, 3, 4)), st.sampled_from((NO_LEADER, 1, 2, 3))), max_size=12
    ),
    st.integers(0, 100),
)
def test_leaders_are_balanced_where_too_many_are_astray(
    drawn: list[tuple[list[int], int]], percentage: int
) -> None:
    image = image_of(
        *(
            PartitionRecord(
                topic_id=ORDERS,
                partition_id=number,
                replicas=list(replicas[:3]),
                isr=[each for each in replicas[:3] if each != 4],
                leader=leader if leader in replicas[:3] else replicas[1],
                leader_epoch=0,
                partition_epoch=0,
            )
            for number, (replicas, leader) in enumerate(drawn)
            if replicas[1] != 4
        )
    )
    records = balanced(image, rules_of=lambda _: PLAIN, imbalance_percentage=percentage)
    then = after(image, records)
    partitions = image.topics["orders"].partitions
    for number, before in partitions.items():
        first = before.replicas[0]
        mine = [each for each in partitions.values() if each.replicas[0] == first]
        astray = [each for each in mine if each.leader != first]
        too_many = len(astray) / len(mine) > percentage / 100
        moves = first != 4 and too_many
        assert partition_of(then, "orders", number).leader == (first if moves else before.leader)


# Reassignments.


def reassign(
    image: MetadataImage,
    replicas: list[int] | None,
    *,
    rules: ElectionRules = PLAIN,
    number: int = 0,
    change_factor: bool = True,
) -> tuple[str, PartitionRegistration]:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="orders",
                partitions=[ReassignablePartition(partition_index=number, replicas=replicas)],
            )
        ],
        allow_replication_factor_change=change_factor,
    )
    decision = alter_partition_reassignments(image, request, rules_of=lambda _: rules)
    (topic,) = decision.answer.responses
    (answer,) = topic.partitions
    return ErrorCode(answer.error_code).name, partition_of(after(image, decision.records), "orders")


def test_new_replicas_are_added_in_the_same_leader_epoch() -> None:
    error, then = reassign(TWO, [3, 2])
    assert error == "NONE"
    assert (then.replicas, then.adding, then.removing) == ((3, 2, 1), (3,), (1,))
    assert (then.isr, then.leader, then.leader_epoch, then.partition_epoch) == ((1, 2), 1, 0, 1)


def test_a_reassignment_without_new_replicas_completes_at_once_in_a_new_leader_epoch() -> None:
    error, then = reassign(TWO, [2])
    assert error == "NONE"
    assert (then.replicas, then.isr, then.leader) == ((2,), (2,), 2)
    assert (then.adding, then.removing) == ((), ())
    error, then = reassign(TWO, [1])
    assert (then.replicas, then.leader, then.leader_epoch) == ((1,), 1, 1)
    error, then = reassign(TWO, [2, 1])
    assert (then.replicas, then.leader, then.leader_epoch) == ((2, 1), 1, 0)


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        pytest.param([], "INVALID_REPLICA_ASSIGNMENT", id="no replica"),
        pytest.param([1, 1], "INVALID_REPLICA_ASSIGNMENT", id="one twice"),
        pytest.param([1, 9], "INVALID_REPLICA_ASSIGNMENT", id="a stranger"),
        pytest.param(None, "NO_REASSIGNMENT_IN_PROGRESS", id="nothing to cancel"),
    ],
)
def test_what_is_refused(replicas: list[int] | None, error: str) -> None:
    assert reassign(TWO, replicas) == (error, partition_of(TWO, "orders"))


def test_a_partition_that_is_not_there_is_not_reassigned() -> None:
    assert reassign(TWO, [1], number=7)[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_number_of_replicas_may_be_kept_as_it_is() -> None:
    assert reassign(TWO, [1, 2, 3], change_factor=False)[0] == "INVALID_REPLICATION_FACTOR"
    assert reassign(TWO, [1, 3], change_factor=False)[0] == "NONE"
    moving = image_of(
        LED_BY_1,
        PartitionChangeRecord(
            topic_id=ORDERS,
            partition_id=0,
            replicas=[3, 1, 2],
            adding_replicas=[3],
            removing_replicas=[1, 2],
        ),
    )
    assert reassign(moving, [2, 3], change_factor=False)[0] == "INVALID_REPLICATION_FACTOR"
    assert reassign(moving, [2], change_factor=False)[0] == "NONE"


def moving_to_3(isr: tuple[int, ...], leader: int) -> MetadataImage:
    return image_of(
        LED_BY_1,
        PartitionChangeRecord(
            topic_id=ORDERS,
            partition_id=0,
            replicas=[3, 1, 2],
            adding_replicas=[3],
            removing_replicas=[1, 2],
            isr=list(isr),
            leader=leader,
        ),
    )


def test_a_cancel_removes_the_new_replicas() -> None:
    error, then = reassign(moving_to_3((1, 2), 1), None)
    assert error == "NONE"
    assert (then.replicas, then.isr, then.leader) == ((1, 2), (1, 2), 1)
    assert (then.adding, then.removing) == ((), ())


@pytest.mark.parametrize("eligible", [True, False])
def test_a_cancel_that_would_be_unclean_is_refused_unless_that_is_allowed(eligible: bool) -> None:
    only_3 = moving_to_3((3,), 3)
    rules = ElectionRules(eligible=eligible)
    assert reassign(only_3, None, rules=rules) == (
        "INVALID_REPLICA_ASSIGNMENT",
        partition_of(only_3, "orders"),
    )
    rules = ElectionRules(eligible=eligible, unclean=True)
    error, then = reassign(only_3, None, rules=rules)
    assert error == "NONE"
    assert (then.replicas, then.isr, then.leader) == ((1, 2), (1,), 1)
    assert then.leader_recovery_state == 1


def test_a_cancel_may_rely_on_eligible_replicas() -> None:
    image = after(
        moving_to_3((3,), 3),
        (PartitionChangeRecord(topic_id=ORDERS, partition_id=0, eligible_leader_replicas=[2]),),
    )
    error, then = reassign(image, None, rules=ElectionRules(min_insync_replicas=2))
    assert error == "NONE"
    assert (then.replicas, then.isr, then.leader, then.elr) == ((1, 2), (2,), 2, ())
    assert then.leader_recovery_state == 0


def test_what_moves_is_listed() -> None:
    image = moving_to_3((1, 2), 1)
    for topics in (
        None,
        [
            ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0, 5]),
            ListPartitionReassignmentsTopics(name="t", partition_indexes=[0]),
        ],
    ):
        request = ListPartitionReassignmentsRequest(topics=topics)
        (topic,) = list_partition_reassignments(image, request).answer.topics
        (moving,) = topic.partitions
        assert (moving.partition_index, moving.replicas) == (0, [3, 1, 2])
        assert (moving.adding_replicas, moving.removing_replicas) == ([3], [1, 2])
    none = ListPartitionReassignmentsRequest(topics=None)
    assert list_partition_reassignments(TWO, none).answer.topics == []
