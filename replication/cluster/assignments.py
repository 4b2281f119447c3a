"""Tells the controller in which log directory each replica lies (KIP-858, AssignmentsManager).

    RoleChanges ── assign ──> queued ── run ──> AssignReplicasToDirs ──> controller
                                 ^                      │
                                 └── no answer, or not yet for this one: again

Rule 1: what is newest about a replica is what is sent; an older word of it is forgotten.

Rule 2: a replica that the controller does not know (any more) needs no place.
"""

from collections.abc import Callable

import attrs
import trio

from replication.cluster.controller_channel import ControllerCalls
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net.seams import NodeClock
from replication.wire.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from storage.types import TopicId

RETRY_SECONDS = 0.05

Replica = tuple[TopicId, int]


@attrs.define(eq=False, kw_only=True)
class Assignments:
    """One for each broker; `run` sends what `assign` queues."""

    broker_id: int
    broker_epoch: Callable[[], int]
    channel: ControllerCalls
    clock: NodeClock
    timeout_ms: int
    _queued: dict[Replica, bytes] = attrs.field(factory=dict, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)

    def assign(self, topic_id: TopicId, partition: int, directory: bytes) -> None:
        self._queued[topic_id, partition] = directory
        self._work.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            if not self._queued:
                self._work = trio.Event()
            elif not await self._send(dict(self._queued)):
                await self.clock.sleep(RETRY_SECONDS)

    async def _send(self, queued: dict[Replica, bytes]) -> bool:
        """Whether the controller has answered for every replica."""
        try:
            response = await self.channel.call(self._request(queued), timeout_ms=self.timeout_ms)
        except PeerUnavailableError:
            return False
        assert isinstance(response, AssignReplicasToDirsResponse), "answers decode as asked"
        if response.error_code != ErrorCode.NONE:
            return False
        for directory in response.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    replica = topic.topic_id, each.partition_index
                    if self._queued.get(replica) == directory.id_:  # Rule 1
                        del self._queued[replica]
        return not any(self._queued.get(replica) == told for replica, told in queued.items())

    def _request(self, queued: dict[Replica, bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[TopicId, TopicData]] = {}
        for (topic_id, partition), directory in queued.items():
            topics = directories.setdefault(directory, {})
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions.append(PartitionData(partition_index=partition))
        return AssignReplicasToDirsRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch(),
            directories=[
                DirectoryData(id_=directory, topics=list(topics.values()))
                for directory, topics in directories.items()
            ],
        )
