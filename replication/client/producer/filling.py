"""The batch that fills: where the next record goes that has no key, as the last one did.

    send_soon ─┬─ the same topic, no key, and room in that batch ──> into it
               └─ anything else ──> chosen, waited for and appended as ever; what it went to fills

Rule: a record goes here only where all that is asked on the longer way has the same answer as
for the last one: the batch is open, which no batch is that was sent, given up or closed with
its producer; the cluster has not been heard of anew; the topic stays with the partition.
"""

import attrs

from replication.client.cluster_view import ClusterView
from replication.client.producer.accumulator import RecordAccumulator
from replication.client.producer.batch import ProducerBatch, record_size
from replication.client.producer.delivery import Delivery
from replication.client.producer.destinations import Destination
from storage.batch.record_batch import NO_SEQUENCE
from storage.types import NO_OFFSET


@attrs.define(eq=False)
class Filling:
    accumulator: RecordAccumulator
    view: ClusterView
    largest: int
    """No record may be larger, whatever its batch has room for."""
    since_yield: int = attrs.field(default=0, init=False)
    """Bytes that have been sent here since other tasks could run."""
    _topic: str | None = attrs.field(default=None, init=False)
    _batch: ProducerBatch = attrs.field(init=False)
    _destination: Destination = attrs.field(init=False)

    def began(self, destination: Destination, batch: ProducerBatch) -> None:
        """A record without a key went to `batch`, which was chosen for it."""
        self._topic, self._destination, self._batch = destination.topic, destination, batch

    def append(self, topic: str, timestamp_ms: int, value: bytes | None) -> Delivery | None:
        """None where it does not go here."""
        if topic != self._topic:
            return None
        batch, destination, accumulator = self._batch, self._destination, self.accumulator
        size = record_size(None, value, ())
        batch_size = batch.size + size
        if (
            batch.is_closed
            or batch_size >= accumulator.batch_size  # the one that fills it closes it
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
