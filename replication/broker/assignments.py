"""Tells the controller in which log directory each replica lies (KIP-858, AssignmentsManager).

    RoleChanges ── assign ──> the queue ──> AssignReplicasToDirs ──> controller

Rule 1: what is newest about a replica is what is sent; an older word of it is forgotten.

Rule 2: a replica that the controller does not know (any more) needs no place.
"""

import attrs

from replication.broker.controller_queue import ControllerQueue
from replication.wire.assign_replicas_to_dirs import (
    AssignedPartitionData,
    AssignedTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
)
from storage.types import TopicId

Replica = tuple[TopicId, int]


@attrs.define(eq=False, kw_only=True)
class Assignments(ControllerQueue[Replica, bytes]):
    """One for each broker; the queue holds the directory's id for each replica."""

    def assign(self, topic_id: TopicId, partition: int, directory: bytes) -> None:
        self._put((topic_id, partition), directory)

    def _settle(self, queued: dict[Replica, bytes], response: AssignReplicasToDirsResponse) -> bool:
        for directory in response.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    self._remove((topic.topic_id, each.partition_index), directory.id_)  # Rule 1
        return not any(self._queued.get(each) == directory for each, directory in queued.items())

    def _request(self, queued: dict[Replica, bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[TopicId, AssignedTopicData]] = {}
        for (topic_id, partition), directory in queued.items():
            topics = directories.setdefault(directory, {})
            topic = topics.setdefault(topic_id, AssignedTopicData(topic_id=topic_id))
            topic.partitions.append(AssignedPartitionData(partition_index=partition))
        return AssignReplicasToDirsRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch(),
            directories=[
                DirectoryData(id_=directory, topics=list(topics.values()))
                for directory, topics in directories.items()
            ],
        )
