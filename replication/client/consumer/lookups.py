"""What a program asks its consumer about logs and the cluster, whether or not it reads them."""

from collections.abc import Collection, Mapping

from replication.client.arguments import as_partition, as_partitions
from replication.client.consumer.opened import AnyPartition, OpenConsumer
from replication.client.consumer.records import OffsetAndTimestamp
from replication.client.errors import IllegalStateError
from replication.metrics import MetricName
from replication.wire import list_offsets
from storage.types import Offset, TopicPartition


class LogLookups(OpenConsumer):
    """Brokers are asked each time, but for what fetches have told."""

    async def beginning_offsets(
        self, partitions: Collection[AnyPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Where each log begins."""
        return await self._bounds(partitions, list_offsets.EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Collection[AnyPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Where each ends, as far as may be read: the high watermark, or the last stable offset."""
        return await self._bounds(partitions, list_offsets.LATEST, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[AnyPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds); None where there is none."""
        wanted = {as_partition(tp): at for tp, at in timestamps.items()}
        for tp, at in wanted.items():
            if at < 0:
                raise IllegalStateError(f"offsets_for_times: {tp} at {at}, before time began")
        return await self._open_parts.offset_fetcher.offsets_for(
            wanted, timeout_ms=self._timeout(timeout_ms)
        )

    async def _bounds(
        self, partitions: Collection[AnyPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, Offset]:
        found = await self._open_parts.offset_fetcher.offsets_for(
            dict.fromkeys(as_partitions(partitions), timestamp),
            timeout_ms=self._timeout(timeout_ms),
        )
        return {tp: each.offset for tp, each in found.items() if each is not None}

    def highwater(self, partition: AnyPartition) -> Offset | None:
        """As the last fetch told it."""
        return self._subscriptions.state(as_partition(partition)).high_watermark

    def current_lag(self, partition: AnyPartition) -> int | None:
        """Records between the position and the end, as the last fetch told it."""
        return self._subscriptions.lag(
            as_partition(partition), read_committed=self.config.read_committed
        )

    async def partitions_for(
        self, topic: str, *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """The topic's partitions; none where it is not known in time."""
        parts = self._open_parts
        transient = parts.offset_fetcher.transient_topics
        added = {topic} - transient
        transient |= added
        try:
            with self._seams.clock.move_on_after(self._timeout(timeout_ms) / 1000):
                while parts.metadata.view.partitions_of(topic) is None:
                    parts.metadata.request_update()
                    await parts.metadata.wait_for_news()
                    parts.metadata.raise_for_topics([topic])
        finally:
            transient -= added
        return [
            TopicPartition(topic, each) for each in parts.metadata.view.partitions_of(topic) or ()
        ]

    def metrics(self) -> dict[MetricName, float]:
        """This consumer's numbers, under Kafka's names."""
        return dict(self._open_parts.metrics.snapshot())
