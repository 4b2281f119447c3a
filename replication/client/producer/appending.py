"""Two ways by which records reach the accumulator: without any wait, and after a wait for room.

    send_soon ─┬─ the topic of the last record, no key, room in its batch ──> `Filling` appends
               └─ anything else ──> a partition is chosen, `Room` is waited for, then appended;
                                    the batch that the record went to is filled from then on

Rule: `Filling` takes a record only if all checks of the longer way would end as for the last
record: the batch is open (a batch that was sent, given up or closed is not), the metadata is the
same, and the topic stays with the partition.
"""

from collections.abc import Callable

import attrs
import trio

from replication.client.cluster_view import ClusterView
from replication.client.errors import KafkaTimeoutError
from replication.client.producer.accumulator import RecordAccumulator
from replication.client.producer.batch import Delivery, ProducerBatch, record_size
from replication.client.producer.destinations import Destination
from replication.net.seams import NodeClock
from storage.attributes import define
from storage.batch.record_batch import NO_SEQUENCE
from storage.types import NO_OFFSET


@define(eq=False)
class Filling:
    """The batch to which the last record without a key went."""

    accumulator: RecordAccumulator
    view: ClusterView
    largest: int
    """The size of the largest record, whatever room its batch has."""
    since_yield: int = attrs.field(default=0, init=False)
    """The bytes that were appended here since other tasks could run."""
    _topic: str | None = attrs.field(default=None, init=False)
    _batch: ProducerBatch = attrs.field(init=False)
    _destination: Destination = attrs.field(init=False)

    def fill(self, destination: Destination, batch: ProducerBatch) -> None:
        """Append the next records to `batch`, to which a record without a key has gone."""
        self._topic, self._destination, self._batch = destination.topic, destination, batch

    def append(self, topic: str, timestamp_ms: int, value: bytes | None) -> Delivery | None:
        """Append a record without a key; None if it has to go the longer way."""
        if topic != self._topic:
            return None
        batch, destination, accumulator = self._batch, self._destination, self.accumulator
        size = record_size(None, value, ())
        batch_size = batch.size + size
        if (
            batch.is_closed
            or batch_size >= accumulator.batch_size  # the record that fills a batch closes it
            or size > self.largest
            or accumulator.waiting_for_room
            or accumulator.used + size > accumulator.buffer_memory
            or destination.view_version != self.view.version
            or destination.sticky.partition != batch.partition.partition
        ):
            self._topic = None
            return None
        records = batch.records
        records.append((NO_OFFSET, timestamp_ms, None, value, (), NO_SEQUENCE))
        batch.size = batch_size
        accumulator.used += size
        self.since_yield += size
        destination.sticky.appended(size, batch_is_full=False)
        return Delivery(batch, len(records) - 1)


@define(eq=False)
class Room:
    """The queue of senders that wait while `buffer.memory` is full, first come, first served."""

    accumulator: RecordAccumulator
    clock: NodeClock
    on_wait: Callable[[], None] = lambda: None
    _line: trio.Lock = attrs.field(factory=trio.Lock)
    _freed: trio.Event = attrs.field(factory=trio.Event)

    def freed(self) -> None:
        self._freed.set()

    async def wait(self, size: int, *, timeout_ms: float) -> None:
        self.accumulator.waiting_for_room += 1
        self.on_wait()
        try:
            with self.clock.move_on_after(timeout_ms / 1000):
                async with self._line:
                    while not self.accumulator.has_room(size):
                        self._freed = trio.Event()
                        await self._freed.wait()
                return
        finally:
            self.accumulator.waiting_for_room -= 1
        raise KafkaTimeoutError(
            f"no room for {size} bytes within {timeout_ms:.0f} ms: {self.accumulator.used} of"
            f" {self.accumulator.buffer_memory} are on their way"
        )
