"""The delivery of records, as the program that sent them sees it."""

from collections.abc import Iterator
from typing import Final

import attrs
import trio

from replication.client.errors import raised_again
from replication.client.producer.batch import Acked, Failed, InParts, Outcome, ProducerBatch
from storage.batch.record_batch import TimestampType
from storage.batch.records import Record
from storage.types import Offset, TopicPartition

_CREATE_TIME: Final = TimestampType.CREATE_TIME
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


@attrs.frozen(kw_only=True)
class RecordMetadata:
    """The place of a written record; the offset is -1 if it is not known (acks=0)."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: TimestampType
    log_start_offset: Offset = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition in one value."""
        return TopicPartition(self.topic, self.partition)


@attrs.define(eq=False)
class Delivery:
    """A record on its way; each `wait` gives the same outcome, and none is required."""

    _batch: ProducerBatch
    _index: int

    @property
    def done(self) -> bool:
        """Whether it has been acknowledged, or has failed."""
        return self._batch.outcome is not None and not isinstance(self._batch.outcome, InParts)

    async def wait(self) -> RecordMetadata:
        """Return the place of the record once it is written; raise the error of its failure."""
        batch = await self._settled()
        outcome = batch.outcome
        if isinstance(outcome, Failed):
            raise raised_again(outcome.of_records.get(self._index, outcome.error))
        assert isinstance(outcome, Acked), "a settled batch is written or has failed"
        appended_at = outcome.log_append_time_ms
        return RecordMetadata(
            topic=batch.partition.topic,
            partition=batch.partition.partition,
            offset=outcome.base_offset + self._index if outcome.base_offset >= 0 else -1,
            timestamp=Record(*batch.records[self._index]).timestamp
            if appended_at < 0
            else appended_at,
            timestamp_type=_CREATE_TIME if appended_at < 0 else _LOG_APPEND_TIME,
            log_start_offset=outcome.log_start_offset,
        )

    async def _settled(self) -> ProducerBatch:
        """Return the batch that holds the record in the end, when that has an outcome."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while isinstance(outcome := await _outcome(self._batch), InParts):
            first, part = next(each for each in reversed(outcome.parts) if each[0] <= self._index)
            self._batch, self._index = part, self._index - first
        return self._batch


@attrs.define(eq=False)
class Deliveries:
    """Records that were sent together, in that order; only their batches are kept."""

    _parts: list[tuple[ProducerBatch, int, int]] = attrs.field(factory=list, init=False)

    def add(self, batch: ProducerBatch, index: int, count: int) -> None:
        """Note that `count` records are in `batch`, the first at `index`."""
        self._parts.append((batch, index, count))

    @property
    def last(self) -> ProducerBatch:
        """The batch of the last record."""
        return self._parts[-1][0]

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    def __iter__(self) -> Iterator[Delivery]:
        for batch, first, count in self._parts:
            for index in range(first, first + count):
                yield Delivery(batch, index)

    async def wait(self) -> list[RecordMetadata]:
        """Return the place of each record; raise the error of the first that failed."""
        return [await delivery.wait() for delivery in self]


async def wait_until_settled(batch: ProducerBatch) -> None:
    """Wait until all records of a batch are written or have failed."""
    outcome = await _outcome(batch)
    if isinstance(outcome, InParts):
        for _, part in outcome.parts:
            await wait_until_settled(part)


async def _outcome(batch: ProducerBatch) -> Outcome:
    if batch.outcome is None:
        has_outcome = trio.Event()
        batch.on_outcome.append(has_outcome.set)
        await has_outcome.wait()
    assert batch.outcome is not None, "it was waited for"
    return batch.outcome
