"""AlterPartition by table: who is refused, for what, and which reason comes first."""

import attrs
import pytest

from replication.controller.rules.election import ElectionRules
from replication.controller.rules.isr_changes import alter_partition
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.alter_partition import (
    RECOVERED,
    RECOVERING,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerIdAndEpoch,
    PartitionAnswer,
)
from replication.wire.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.replication.controller.images import ORDERS, after, five_brokers, partition_of

EPOCHS = {broker_id: broker_id * 10 for broker_id in (1, 2, 3, 4, 5)}

# Broker 6 is unknown. Broker 1 leads the partition at leader epoch 1 and partition epoch 1, with
# ISR 1, 2.
IMAGE = after(
    MetadataImage(),
    [
        *five_brokers(),
        TopicRecord(name="orders", topic_id=ORDERS),
        PartitionRecord(
            topic_id=ORDERS,
            partition_id=0,
            replicas=[3, 1, 2, 4, 5, 6],
            isr=[1, 2],
            leader=2,
            leader_epoch=0,
            partition_epoch=0,
        ),
        PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=1),
    ],
)
RECOVERING_IMAGE = after(
    IMAGE,
    [
        PartitionChangeRecord(
            topic_id=ORDERS, partition_id=0, isr=[1], leader_recovery_state=LeaderRecoveryState(1)
        )
    ],
)


def members(*broker_ids: int) -> list[BrokerIdAndEpoch]:
    return [
        BrokerIdAndEpoch(broker_id=each, broker_epoch=EPOCHS.get(each, -1)) for each in broker_ids
    ]


ASKED = AlterPartitionData(leader_epoch=1, partition_epoch=1, new_isr_with_epochs=members(1, 2, 3))


def ask(
    *data: AlterPartitionData,
    image: MetadataImage = IMAGE,
    broker_id: int = 1,
    broker_epoch: int = 10,
    topic_id: bytes = ORDERS,
) -> tuple[AlterPartitionResponse, list[PartitionAnswer], MetadataImage]:
    decision = alter_partition(
        image,
        AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=[AlterPartitionTopic(topic_id=topic_id, partitions=list(data))],
        ),
        rules_of=lambda _: ElectionRules(),
    )
    answers = [each for topic in decision.answer.topics for each in topic.partitions]
    offset = image.offset + len(decision.records)
    after = image.apply_all(decision.records, offset=offset, leader_epoch=0)
    return decision.answer, answers, after


def test_an_isr_grows_in_assignment_order_and_the_partition_epoch_with_it() -> None:
    _, (answer,), after = ask(ASKED)
    assert answer == PartitionAnswer(leader_id=1, leader_epoch=1, isr=[3, 1, 2], partition_epoch=2)
    partition = partition_of(after, "orders")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((3, 1, 2), 1, 2)


def test_a_request_for_the_present_isr_changes_nothing() -> None:
    same = attrs.evolve(ASKED, new_isr_with_epochs=members(2, 1))
    _, (answer,), after = ask(same)
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 1)
    assert answer.isr == [1, 2]
    assert after.topics["orders"] is IMAGE.topics["orders"]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        pytest.param({"partition_index": 7}, "UNKNOWN_TOPIC_OR_PARTITION", id="no such partition"),
        pytest.param({"leader_epoch": 2}, "NOT_CONTROLLER", id="leader epoch ahead of us"),
        pytest.param({"partition_epoch": 2}, "NOT_CONTROLLER", id="partition epoch ahead of us"),
        pytest.param(
            {"leader_epoch": 0, "partition_epoch": 2}, "NOT_CONTROLLER", id="ahead before behind"
        ),
        pytest.param({"leader_epoch": 0}, "FENCED_LEADER_EPOCH", id="a former leader epoch"),
        pytest.param(
            {"leader_epoch": 0, "partition_epoch": 0},
            "FENCED_LEADER_EPOCH",
            id="leader epoch first",
        ),
        pytest.param({"partition_epoch": 0}, "INVALID_UPDATE_VERSION", id="an older state"),
        pytest.param(
            {"partition_epoch": 0, "new_isr_with_epochs": members(2)},
            "INVALID_UPDATE_VERSION",
            id="state before contents",
        ),
        pytest.param({"new_isr_with_epochs": members(2, 3)}, "INVALID_REQUEST", id="no leader"),
        pytest.param({"new_isr_with_epochs": []}, "INVALID_REQUEST", id="no member"),
        pytest.param({"new_isr_with_epochs": members(1, 7)}, "INVALID_REQUEST", id="a stranger"),
        pytest.param({"new_isr_with_epochs": members(1, 1)}, "INVALID_REQUEST", id="twice"),
        pytest.param({"leader_recovery_state": 9}, "INVALID_REQUEST", id="an unknown state"),
        pytest.param(
            {"leader_recovery_state": RECOVERING, "new_isr_with_epochs": members(1)},
            "INVALID_REQUEST",
            id="recovering after it had recovered",
        ),
        pytest.param({"new_isr_with_epochs": members(1, 4)}, "INELIGIBLE_REPLICA", id="fenced"),
        pytest.param({"new_isr_with_epochs": members(1, 5)}, "INELIGIBLE_REPLICA", id="leaving"),
        pytest.param(
            {"new_isr_with_epochs": members(1, 6)}, "INELIGIBLE_REPLICA", id="not registered"
        ),
        pytest.param(
            {
                "new_isr_with_epochs": [
                    *members(1, 2),
                    BrokerIdAndEpoch(broker_id=3, broker_epoch=29),
                ]
            },
            "INELIGIBLE_REPLICA",
            id="a former self",
        ),
    ],
)
def test_what_is_refused(changed: dict[str, object], error: str) -> None:
    data = attrs.evolve(ASKED, **changed)  # type: ignore[arg-type]
    _, (answer,), after = ask(data)
    assert ErrorCode(answer.error_code).name == error
    assert after.topics["orders"] is IMAGE.topics["orders"]


def test_a_follower_cannot_change_the_isr() -> None:
    _, (answer,), _ = ask(ASKED, broker_id=2, broker_epoch=20)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    # But one that was deposed learns the new leader epoch first.
    former = attrs.evolve(ASKED, leader_epoch=0)
    _, (answer,), _ = ask(former, broker_id=2, broker_epoch=20)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 9), (1, 11), (9, 10)])
def test_a_former_incarnation_is_refused_as_a_whole(broker_id: int, broker_epoch: int) -> None:
    response, answers, _ = ask(ASKED, broker_id=broker_id, broker_epoch=broker_epoch)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert answers == []


def test_an_unknown_topic_id() -> None:
    _, (answer,), _ = ask(ASKED, topic_id=bytes(16))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_without_epochs_members_are_taken_by_number() -> None:
    older = attrs.evolve(ASKED, new_isr_with_epochs=[], new_isr=[1, 2, 3])
    _, (answer,), _ = ask(older)
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [3, 1, 2])


def test_the_second_change_of_a_partition_starts_from_the_first() -> None:
    second = attrs.evolve(ASKED, partition_epoch=2, new_isr_with_epochs=members(1))
    _, answers, after = ask(ASKED, ASKED, second)
    codes = [ErrorCode(each.error_code).name for each in answers]
    assert codes == ["NONE", "INVALID_UPDATE_VERSION", "NONE"]
    partition = partition_of(after, "orders")
    assert (partition.isr, partition.partition_epoch) == ((1,), 3)


def test_an_unclean_leader_recovers_once_and_then_others_may_join() -> None:
    at_two = attrs.evolve(ASKED, partition_epoch=2)
    alone = attrs.evolve(at_two, new_isr_with_epochs=members(1))
    still = attrs.evolve(alone, leader_recovery_state=RECOVERING)
    _, (answer,), after = ask(still, image=RECOVERING_IMAGE)
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 2)
    early = attrs.evolve(at_two, leader_recovery_state=RECOVERING)
    _, (answer,), _ = ask(early, image=RECOVERING_IMAGE)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    _, (answer,), after = ask(alone, image=RECOVERING_IMAGE)
    assert (answer.error_code, answer.leader_recovery_state) == (ErrorCode.NONE, RECOVERED)
    partition = partition_of(after, "orders")
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED


def moving(*replicas: int, adding: tuple[int, ...], removing: tuple[int, ...]) -> MetadataImage:
    change = PartitionChangeRecord(
        topic_id=ORDERS,
        partition_id=0,
        replicas=list(replicas),
        adding_replicas=list(adding),
        removing_replicas=list(removing),
    )
    return IMAGE.apply_all([change], offset=9, leader_epoch=0)


def test_the_isr_that_completes_a_reassignment_is_answered_without_removed_replicas() -> None:
    image = moving(3, 1, 2, adding=(3,), removing=(2,))
    _, (answer,), after = ask(attrs.evolve(ASKED, partition_epoch=2), image=image)
    assert answer == PartitionAnswer(leader_id=1, leader_epoch=2, isr=[3, 1], partition_epoch=3)
    partition = partition_of(after, "orders")
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 1), (), ())


def test_a_removed_leader_gets_new_leader_elected() -> None:
    """It is the one refusal that changes something."""
    image = moving(3, 2, 1, adding=(3,), removing=(1,))
    _, (answer,), after = ask(attrs.evolve(ASKED, partition_epoch=2), image=image)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = partition_of(after, "orders")
    assert (partition.replicas, partition.isr) == ((3, 2), (3, 2))
    assert (partition.leader, partition.leader_epoch) == (3, 2)


def test_an_isr_without_a_wanted_replica_completes_no_reassignment() -> None:
    image = moving(3, 1, 2, adding=(3,), removing=(2,))
    alone = attrs.evolve(ASKED, partition_epoch=2, new_isr_with_epochs=members(1))
    _, (answer,), after = ask(alone, image=image)
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1])
    partition = partition_of(after, "orders")
    assert (partition.adding, partition.removing) == ((3,), (2,))
