"""The controller's decisions about log directories, without a node."""

import attrs

from replication.controller.rules.brokers import BrokerSessions, heartbeat
from replication.controller.rules.decisions import PartitionChanges, elections_with
from replication.controller.rules.directories import assign_replicas
from replication.controller.rules.election import ElectionRules, Wish
from replication.errors import ErrorCode
from replication.metadata.rules.image import (
    UNASSIGNED,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from replication.wire.assign_replicas_to_dirs import (
    AssignedPartitionData,
    AssignedTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
)
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest
from replication.wire.broker_registration import Endpoint
from storage.types import TopicId, TopicPartition

TOPIC_ID, NO_TOPIC = b"the topic's id  ", b"no topic's id   "
DISK_A, DISK_B = b"directory a     ", b"directory b     "
EPOCH = 100
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def rules_of(_: TopicImage) -> ElectionRules:
    return ElectionRules(eligible=False)


def broker(broker_id: int, *directories: bytes) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=EPOCH,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", "h", 9092),),
        fenced=False,
        directories=directories,
    )


def image(*, isr: tuple[int, ...] = (1, 2)) -> MetadataImage:
    """b1 leads t-0 and t-1; it keeps t-0 on one disk and t-1 on the other."""

    def partition(directory: bytes) -> PartitionRegistration:
        return PartitionRegistration(
            replicas=(1, 2),
            isr=isr,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(directory, UNASSIGNED),
        )

    topic = TopicImage("t", TOPIC_ID, {0: partition(DISK_A), 1: partition(DISK_B)})
    return MetadataImage(
        offset=EPOCH,
        leader_epoch=0,
        brokers={1: broker(1, DISK_A, DISK_B), 2: broker(2)},
        topics={"t": topic},
        topic_names_by_id={TOPIC_ID: "t"},
    )


def after_heartbeat(before: MetadataImage, *offline: bytes) -> MetadataImage:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=EPOCH,
        current_metadata_offset=EPOCH,
        offline_log_dirs=list(offline),
    )
    decision = heartbeat(before, request, sessions=BrokerSessions(9000), rules_of=rules_of)
    assert decision.answer.error_code == ErrorCode.NONE
    return before.apply_all(decision.records, offset=before.offset, leader_epoch=0)


def partition(then: MetadataImage, name: TopicPartition) -> PartitionRegistration:
    found = then.partition(name)
    assert found is not None
    return found


def assign(
    before: MetadataImage,
    directory: bytes,
    *partitions: int,
    topic_id: TopicId = TOPIC_ID,
    broker_id: int = 1,
    epoch: int = EPOCH,
) -> tuple[MetadataImage, AssignReplicasToDirsResponse]:
    topic = AssignedTopicData(
        topic_id=topic_id,
        partitions=[AssignedPartitionData(partition_index=index) for index in partitions],
    )
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        directories=[DirectoryData(id_=directory, topics=[topic])],
    )
    decision = assign_replicas(before, request, rules_of)
    after = before.apply_all(decision.records, offset=before.offset, leader_epoch=0)
    return after, decision.answer


def errors(answer: AssignReplicasToDirsResponse) -> list[int]:
    return [
        each.error_code
        for directory in answer.directories
        for topic in directory.topics
        for each in topic.partitions
    ]


def test_what_lies_in_a_lost_directory_is_led_by_another_and_the_rest_is_not() -> None:
    then = after_heartbeat(image(), DISK_A)
    assert then.brokers[1].directories == (DISK_B,)
    assert (partition(then, T0).leader, partition(then, T0).isr) == (2, (2,))
    assert (partition(then, T1).leader, partition(then, T1).isr) == (1, (1, 2))
    assert after_heartbeat(then, DISK_A) == then  # said again, it is no news


def test_a_partition_without_other_replicas_in_sync_has_no_leader() -> None:
    then = after_heartbeat(image(isr=(1,)), DISK_A)
    assert (partition(then, T0).leader, partition(then, T0).isr) == (-1, (1,))
    # Its broker is alive, and that is not enough.
    assert list(elections_with(then, 1, rules_of)) == []
    whole = attrs.evolve(then, brokers={**then.brokers, 1: broker(1, DISK_A, DISK_B)})
    (change,) = elections_with(whole, 1, rules_of)
    assert (change.partition_id, change.leader) == (0, 1)


def test_no_decision_gives_the_lead_to_a_lost_replica() -> None:
    then = after_heartbeat(image(isr=(1,)), DISK_A)
    assert PartitionChanges(then, rules_of).make(then.topics["t"], 0, Wish(isr=(1,))) is None


def test_an_unknown_directory_is_no_news() -> None:
    assert after_heartbeat(image(), b"unknown         ") == image()


def test_the_directory_of_a_replica_is_recorded() -> None:
    then, answer = assign(image(), DISK_B, 0, 1)
    assert errors(answer) == [ErrorCode.NONE, ErrorCode.NONE]
    assert partition(then, T0).directory(1) == DISK_B
    assert partition(then, T0).directory(2) is None
    assert partition(then, T0).partition_epoch == 1
    assert then.partition(T1) == image().partition(T1)


def test_a_replica_in_a_directory_that_was_lost_before_is_lost_with_it() -> None:
    before = after_heartbeat(image(), DISK_A)
    then, _ = assign(before, DISK_A, 1)
    assert (partition(then, T1).leader, partition(then, T1).isr) == (2, (2,))


def test_assignments_of_unknown_replicas_are_refused() -> None:
    assert errors(assign(image(), DISK_A, 0, 9)[1]) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert errors(assign(image(), DISK_A, 0, topic_id=NO_TOPIC)[1]) == [ErrorCode.UNKNOWN_TOPIC_ID]
    strangers = attrs.evolve(image(), brokers={**image().brokers, 3: broker(3, DISK_A, DISK_B)})
    assert errors(assign(strangers, DISK_A, 0, broker_id=3)[1]) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    before = image()
    then, answer = assign(before, DISK_B, 0, epoch=EPOCH - 1)
    assert (answer.error_code, then) == (ErrorCode.STALE_BROKER_EPOCH, before)
