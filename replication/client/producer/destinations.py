"""Destinations of records: the topics that a producer sends to, and their partitions.

    given          the partition that the sender names
    a partitioner  of the program's own
    by key         murmur2(key) without its sign, modulo the number of partitions: the same for every
                   client, so that records of one key stay in one partition
    sticky         without a key: one partition until a batch of it is full, then another (KIP-480,
                   KIP-794): fewer and fuller batches than one record here and the next one there

The next sticky partition is drawn: the fewer batches wait for it, the likelier it is, so that
a slow broker is not handed what it cannot take.

A topic must be known before anything can be sent to it. Its metadata is kept fresh while records
are sent to it (`metadata.max.idle.ms`).

(org.apache.kafka.common.utils.Utils.murmur2, BuiltInPartitioner.)
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

import attrs

from replication.client.arguments import as_topic
from replication.client.errors import IllegalStateError, KafkaTimeoutError
from replication.client.metadata import Metadata
from replication.client.producer.config import ProducerConfig
from replication.net.seams import NodeClock
from storage.attributes import define
from storage.types import TopicPartition

Partitioner: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""Returns the partition for a key, of all partitions and of those with a leader."""

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF
_WITHOUT_SIGN: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data`, unsigned (Kafka's is the same number, signed)."""
    length = len(data)
    whole = length & ~3
    value = _SEED ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=4096)
def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of all records of `key` (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & _WITHOUT_SIGN) % partition_count


@define(eq=False)
class StickyPartitioner:
    """The partition for a topic's records without a key, changed after `batch_bytes`."""

    batch_bytes: int
    draw: Callable[[int], int]
    """Returns a random number from 0 to below the one given."""
    partition: int | None = attrs.field(default=None, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    def choose(self, waiting: Callable[[], Sequence[tuple[int, int]]]) -> int:
        """Return the partition for the next record.

        `waiting` is called for a new choice: it returns each partition that may be chosen, with
        the number of batches that wait for it.
        """
        if self.partition is None:
            self.partition, self._bytes = draw_partition(waiting(), self.draw), 0
        return self.partition

    def appended(self, size: int, *, batch_is_full: bool) -> None:
        """Count `size` bytes for the partition; between batches another one may take over.

        A batch that is not full would be sent half empty: then the partition stays, up to twice
        as many bytes (BuiltInPartitioner.updatePartitionInfo).
        """
        self._bytes += size
        if self._bytes >= (self.batch_bytes if batch_is_full else 2 * self.batch_bytes):
            self.partition = None


def draw_partition(waiting: Sequence[tuple[int, int]], draw: Callable[[int], int]) -> int:
    """Draw a partition; its probability falls linearly with the batches that wait for it."""
    most = max(batches for _, batches in waiting)
    weights = list(accumulate(most + 1 - batches for _, batches in waiting))
    drawn = draw(weights[-1])
    return next(
        partition for (partition, _), weight in zip(waiting, weights, strict=True) if drawn < weight
    )


@define(eq=False)
class Destination:
    """A topic that records are sent to."""

    topic: str
    sticky: StickyPartitioner
    partitions: tuple[TopicPartition, ...] = ()
    view_version: int = -1
    """The version of the cluster view from which the partitions are."""
    used_at: float = 0.0


@define(eq=False, kw_only=True)
class Destinations:
    """The topics that one producer sends to, and the choice of a partition for each record."""

    config: ProducerConfig
    clock: NodeClock
    draw: Callable[[int], int]
    waiting_batches: Callable[[TopicPartition], int]
    partitioner: Partitioner | None = None
    metadata: Metadata = attrs.field(init=False)
    _topics: dict[str, Destination] = attrs.field(factory=dict, init=False)

    def in_use(self) -> list[str]:
        """Return the topics whose metadata is kept fresh."""
        oldest = self.clock.now() - self.config.metadata_max_idle_ms / 1000
        for topic in [topic for topic, each in self._topics.items() if each.used_at < oldest]:
            del self._topics[topic]
        return [*self._topics]

    def known(self, topic: str, partition: int | None = None) -> Destination | None:
        """Return the destination if it is known now; None if it has to be waited for."""
        found = self._topics.get(topic)
        if found is None or found.view_version != self.metadata.view.version:
            return None
        if partition is not None and partition >= len(found.partitions):
            return None
        return found

    async def find(self, topic: str, partition: int | None = None) -> Destination:
        """Wait until the topic and the partition are known; both may be new.

        KafkaTimeoutError after `max.block.ms`, or the error of an invalid or forbidden topic.
        """
        found = self._topics.get(topic)
        if found is None:
            as_topic(topic)
            sticky = StickyPartitioner(max(self.config.batch_size, 1), self.draw)
            found = self._topics[topic] = Destination(topic, sticky)
        found.used_at = self.clock.now()
        numbers = self.metadata.view.partitions_of(topic)
        if numbers is None or _lacks(numbers, partition):
            numbers = await self._wait_for(topic, partition)
        if len(numbers) != len(found.partitions):
            found.partitions = tuple(TopicPartition(topic, number) for number in numbers)
        found.view_version = self.metadata.view.version
        return found

    async def _wait_for(self, topic: str, partition: int | None) -> list[int]:
        numbers: list[int] | None = None
        with self.clock.move_on_after(self.config.max_block_ms / 1000):
            while numbers is None or _lacks(numbers, partition):
                self.metadata.request_update()
                await self.metadata.wait_for_news()
                self.metadata.raise_for_topics([topic])
                numbers = self.metadata.view.partitions_of(topic)
            return numbers
        raise KafkaTimeoutError(
            f"{'topic' if numbers is None else f'partition {partition} of topic'} {topic}"
            f" was not known within {self.config.max_block_ms} ms"
        ) from self.metadata.last_error

    def choose(
        self, destination: Destination, key: bytes | None, given: int | None
    ) -> TopicPartition:
        """Return the partition for one record; IllegalStateError if there is no such partition."""
        partitions = destination.partitions
        if given is not None:
            if not 0 <= given < len(partitions):
                raise IllegalStateError(f"topic {destination.topic} has no partition {given}")
            return partitions[given]
        if self.partitioner is not None:
            led = [each.partition for each in self._led(partitions)]
            return partitions[self.partitioner(key, range(len(partitions)), led)]
        if key is not None and not self.config.partitioner_ignore_keys:
            return partitions[partition_of_key(key, len(partitions))]
        return partitions[destination.sticky.choose(lambda: self._waiting(partitions))]

    def _waiting(self, partitions: Sequence[TopicPartition]) -> list[tuple[int, int]]:
        adaptive = self.config.partitioner_adaptive_partitioning_enable
        return [
            (each.partition, self.waiting_batches(each) if adaptive else 0)
            for each in self._led(partitions) or partitions
        ]

    def _led(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        leader = self.metadata.view.leader
        return [each for each in partitions if leader(each).node is not None]


def _lacks(numbers: Sequence[int], partition: int | None) -> bool:
    return partition is not None and partition >= len(numbers)
