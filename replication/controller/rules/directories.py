"""The online log directories of brokers, and the directory of each replica (KIP-858).

    broker                                          controller
    registration: its directories ────────────────> known as online
    AssignReplicasToDirs: replica -> directory ───> known, where a broker has several
    heartbeat: a directory is offline ────────────> its replicas drop out of every ISR, and
                                                    their leaderships move

Rule 1: a replica in a directory that is not online neither leads nor is in sync. A directory that is
not known counts as online (DirectoryId.isOnline).

Rule 2: a broker with one directory registers it, and reports the directory of a replica only where
the controller knows another one: if that directory is lost, the broker is.
"""

from collections.abc import Iterable, Iterator

from replication.controller.rules.decisions import (
    Decision,
    PartitionChanges,
    RulesOf,
    elections_without_directories,
    is_current_incarnation,
)
from replication.controller.rules.election import Wish
from replication.errors import ErrorCode
from replication.metadata.rules.image import LOST, BrokerRegistration, MetadataImage
from replication.wire.assign_replicas_to_dirs import (
    AssignedPartitionResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    TopicResult,
)
from replication.wire.metadata_records import BrokerRegistrationChangeRecord, MetadataRecord
from storage.types import TopicId


def lose_directories(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf, *, offline: list[bytes]
) -> tuple[MetadataRecord, ...]:
    """Return the records for the directories in `offline` that are not known to be lost."""
    lost = frozenset(offline) & frozenset(broker.directories)
    online = [each for each in broker.directories if each not in lost]
    # Without any the record would leave them as they are.
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, log_dirs=online or [LOST]
    )
    return change, *elections_without_directories(image, broker.broker_id, lost, rules_of)


def assign_replicas(
    image: MetadataImage, request: AssignReplicasToDirsRequest, rules_of: RulesOf
) -> Decision[AssignReplicasToDirsResponse]:
    """Record the directories of replicas; a replica in a lost directory is lost with it."""
    broker_id = request.broker_id
    if not is_current_incarnation(image, broker_id, request.broker_epoch):
        return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    answer = AssignReplicasToDirsResponse()
    changes = PartitionChanges(image, rules_of)
    for directory in request.directories:
        result = DirectoryResult(id_=directory.id_)
        answer.directories.append(result)
        for topic in directory.topics:
            partitions = []
            for each in topic.partitions:
                error = _refusal(image, topic.topic_id, each.partition_index, broker_id)
                partitions.append(
                    AssignedPartitionResult(partition_index=each.partition_index, error_code=error)
                )
                if error is ErrorCode.NONE:
                    _assign(changes, topic.topic_id, each.partition_index, broker_id, directory.id_)
            result.topics.append(TopicResult(topic_id=topic.topic_id, partitions=partitions))
    named = [each.id_ for each in request.directories]
    elections = _elections_after(image, broker_id, changes.records, named, rules_of)
    return Decision(
        answer, (*changes.records, *elections), cause="replica in an offline log directory"
    )


def _assign(
    changes: PartitionChanges, topic_id: TopicId, number: int, broker_id: int, directory: bytes
) -> None:
    """Record the directory of one replica, where it is another than before."""
    topic = changes.image.topic_by_id(topic_id)
    partition = None if topic is None else changes.partition(topic, number)
    assert topic is not None, "one that is not there was refused"
    assert partition is not None, "one that is not there was refused"
    if partition.directory(broker_id) == directory:
        return
    known = dict(zip(partition.replicas, partition.directories_of(partition.replicas), strict=True))
    wanted = tuple((known | {broker_id: directory}).values())
    changes.make(topic, number, Wish(directories=wanted))


def _refusal(image: MetadataImage, topic_id: TopicId, index: int, broker_id: int) -> ErrorCode:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[index].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _elections_after(
    image: MetadataImage,
    broker_id: int,
    records: Iterable[MetadataRecord],
    named: Iterable[bytes],
    rules_of: RulesOf,
) -> Iterator[MetadataRecord]:
    """Yield elections for replicas whose directory was lost before it was known to hold them."""
    lost = set(named) - set(image.brokers[broker_id].directories)
    if lost:
        then = image.apply_all(records, offset=image.offset, leader_epoch=image.leader_epoch)
        yield from elections_without_directories(then, broker_id, frozenset(lost), rules_of)
