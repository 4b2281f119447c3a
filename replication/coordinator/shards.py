"""The state that a broker keeps for each partition of a coordinator's topic that it leads.

    metadata: this broker leads partition 7 of the topic, at epoch 3
        └─> a shard: reads the log ─> ready: answers and writes ─> ended: another epoch, a failure

Rule 1: a shard belongs to a topic id, a partition and a leader epoch. A new leader epoch reads
the log anew, also where this broker led before: another broker may have led in between.

Rule 2: no request is answered from a log that has not been read to its end.

Rule 3: a failure of the log ends the shard and nothing else. Requests are answered
NOT_COORDINATOR, and the next change of metadata begins a new shard.

(Kafka: TransactionStateManager, CoordinatorRuntime.)
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

from replication.coordinator.log import CoordinatorLog
from replication.coordinator.rules import partition_for
from replication.errors import ErrorCode, KafkaError, ProtocolError
from replication.metadata.rules.image import MetadataImage
from replication.net.seams import NodeClock
from replication.replica_manager import ReplicaManager
from storage.attributes import define
from storage.batch.compression import Codec
from storage.errors import StorageError
from storage.types import LeaderEpoch, TopicId, TopicPartition


@define(eq=False)
class Shard:
    """The state of one partition, for one leader epoch; `ready` once the log has been read."""

    topic_id: TopicId
    log: CoordinatorLog
    ready: bool = attrs.field(default=False, init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.log.leader_epoch


S = TypeVar("S", bound=Shard)


@define(eq=False, kw_only=True)
class LedShards(Generic[S]):
    """The shards of one topic at this broker, by the number of their partition."""

    topic: str
    broker_id: int
    replica_manager: ReplicaManager
    clock: NodeClock
    timeout_ms: int
    codec: Codec
    begin: Callable[[TopicId, CoordinatorLog], S]
    load: Callable[[S], Awaitable[None]]
    """Reads the log, and makes the shard ready."""
    ended: Callable[[S, str], None]
    """Called with a shard that has ended, which is no longer among `shards`, and the cause."""
    on_bug: Callable[[BaseException], None]
    shards: dict[int, S] = attrs.field(factory=dict, init=False)
    nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _partitions: int = attrs.field(default=0, init=False)

    def apply_metadata(self, image: MetadataImage) -> None:
        """Begin a shard for each partition that this broker leads from now on, and end the others."""
        topic = image.topics.get(self.topic)
        partitions = {} if topic is None else topic.partitions
        self._partitions = len(partitions)
        led = {
            number: (topic.topic_id, partition.leader_epoch)
            for number, partition in sorted(partitions.items())
            if topic is not None and partition.leader == self.broker_id
        }
        for number, shard in list(self.shards.items()):
            if led.get(number) != (shard.topic_id, shard.leader_epoch):
                self.end(shard, "another leader epoch")
        for number, (topic_id, leader_epoch) in led.items():
            if number not in self.shards:
                assert self.nursery is not None, "the coordinator runs before metadata is applied"
                log = self._log(TopicPartition(self.topic, number), leader_epoch)
                shard = self.shards[number] = self.begin(topic_id, log)
                self.nursery.start_soon(self._serve, shard)

    def _log(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> CoordinatorLog:
        return CoordinatorLog(
            partition=partition,
            leader_epoch=leader_epoch,
            replica_manager=self.replica_manager,
            clock=self.clock,
            timeout_ms=self.timeout_ms,
            codec=self.codec,
        )

    async def _serve(self, shard: S) -> None:
        """Read the log, and write to it until the shard has ended."""
        try:
            with shard.scope:
                await self.load(shard)
                await shard.log.run()
        except (KafkaError, StorageError, ProtocolError, OSError) as error:
            self.end(shard, str(error))
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            self.end(shard, "a bug")
            self.on_bug(bug)

    def end(self, shard: S, cause: str) -> None:
        """End a shard, unless it has ended already."""
        if not self.is_current(shard):
            return
        del self.shards[shard.partition.partition]
        shard.log.close()
        if not shard.ready:
            shard.scope.cancel()
        self.ended(shard, cause)

    def is_current(self, shard: S) -> bool:
        return self.shards.get(shard.partition.partition) is shard

    def serving(self, key: str) -> S:
        """Return the shard of `key`; raise KafkaError where it is elsewhere, or not loaded yet."""
        number = partition_for(key, self._partitions) if self._partitions else -1
        shard = self.shards.get(number)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"another broker leads {key}")
        if not shard.ready:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{key} is being loaded")
        return shard
