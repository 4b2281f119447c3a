"""The state that a broker keeps for each partition of an internal topic that it leads.

    metadata: partition 7 of the topic is led by us, at epoch 3
        └─> a shard: reading the log ─> ready: answers, and writes ─> over: another epoch, a failure

Rule 1: a shard belongs to a topic id, a partition and a leader epoch. A new leader epoch reads
the log anew, also where we led before: another broker may have led in between.

Rule 2: nobody is answered out of a log that has not been read to its end.

Rule 3: a failure of the log ends the shard and nothing else. Requests are answered
NOT_COORDINATOR, and the next change of metadata begins again.

(TransactionStateManager and GroupCoordinatorService in Kafka have one of these each.)
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

from replication.coordinator.log import LogWriter
from replication.coordinator.rules.partitioner import partition_for
from replication.errors import ErrorCode, KafkaError, ProtocolError
from replication.metadata.rules import MetadataImage
from storage.errors import StorageError
from storage.types import LeaderEpoch, TopicId


@attrs.define(eq=False, kw_only=True)
class Shard:
    """`ready` once the log has been read."""

    number: int
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    writer: LogWriter
    ready: bool = False
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


S = TypeVar("S", bound=Shard)


@attrs.define(eq=False, kw_only=True)
class LedShards(Generic[S]):
    """The shards of one topic at this broker, by partition."""

    topic: str
    broker_id: int
    begin: Callable[[int, TopicId, LeaderEpoch], S]
    load: Callable[[S], Awaitable[None]]
    """Read the log, and make the shard ready."""
    ended: Callable[[S, str], None]
    """Called with a shard that has ended, when it is not among `shards` any more, and the cause."""
    on_bug: Callable[[BaseException], None]
    shards: dict[int, S] = attrs.field(factory=dict, init=False)
    nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _partitions: int = attrs.field(default=0, init=False)

    def apply_metadata(self, image: MetadataImage) -> None:
        """Take over what this broker leads from here on, and let go of the rest."""
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
                assert self.nursery is not None, "it runs before metadata is applied"
                shard = self.shards[number] = self.begin(number, topic_id, leader_epoch)
                self.nursery.start_soon(self._serve, shard)

    async def _serve(self, shard: S) -> None:
        """Read the log, and write to it until the shard has ended."""
        try:
            with shard.scope:
                await self.load(shard)
                await shard.writer.run()
        except (KafkaError, StorageError, ProtocolError, OSError) as error:
            self.end(shard, str(error))
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            self.end(shard, "a bug")
            self.on_bug(bug)

    def end(self, shard: S, cause: str) -> None:
        """End a shard, unless it has ended already."""
        if self.shards.get(shard.number) is not shard:
            return
        del self.shards[shard.number]
        shard.writer.close()
        if not shard.ready:
            shard.scope.cancel()
        self.ended(shard, cause)

    def goes_on(self, shard: S) -> bool:
        return self.shards.get(shard.number) is shard

    def serving(self, key: str) -> S:
        """Return the shard of `key`; KafkaError where it is not here, or not loaded yet."""
        number = partition_for(key, self._partitions) if self._partitions else -1
        shard = self.shards.get(number)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{key} is another broker's")
        if not shard.ready:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{key} is being loaded")
        return shard
