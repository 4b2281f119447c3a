"""The reports to the controller about the log directory of each replica (KIP-858, AssignmentsManager).

    RoleChanges ── assign ──> the queue ──> AssignReplicasToDirs ──> controller

Rule 1: only the newest report about a replica is sent.

Rule 2: the report about a replica that the controller does not know, or no longer knows, is
dropped.
"""

from replication.broker.controller_queue import ControllerQueue
from replication.wire.assign_replicas_to_dirs import (
    AssignedPartitionData,
    AssignedTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
)
from storage.attributes import define
from storage.types import TopicId

Replica = tuple[TopicId, int]


@define(eq=False, kw_only=True)
class Assignments(ControllerQueue[Replica, bytes]):
    """The reports of one broker; the queue holds the id of the directory of each replica."""

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
