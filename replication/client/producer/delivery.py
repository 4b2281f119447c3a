"""What becomes of one record, for whoever sent it."""

from collections.abc import Iterator
from typing import Final

import attrs
import trio

from replication.client.producer.batch import Acked, Failed, InParts, Outcome, ProducerBatch
from storage.batch.record_batch import TimestampType
from storage.batch.records import Record
from storage.types import Offset, TopicPartition

_CREATE_TIME: Final = TimestampType.CREATE_TIME
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


@attrs.frozen(kw_only=True)
class RecordMetadata:
    """Where a record is; an offset of -1 where that was not said (acks=0)."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: TimestampType
    log_start_offset: Offset = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """Both in one."""
        return TopicPartition(self.topic, self.partition)


@attrs.define(eq=False)
class Delivery:
    """A record on its way. Nobody has to wait for it, and whoever does is told the same each time."""

    _batch: ProducerBatch
    _index: int

    @property
    def done(self) -> bool:
        """Whether it has been acknowledged, or has failed."""
        return self._batch.outcome is not None and not isinstance(self._batch.outcome, InParts)

    async def wait(self) -> RecordMetadata:
        """Where it is, once it is there; the error that it failed with raises."""
        batch = await self._settled()
        outcome = batch.outcome
        if isinstance(outcome, Failed):
            raise _again(outcome.of_records.get(self._index, outcome.error))
        assert isinstance(outcome, Acked), "a batch that is settled is there or is not"
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
        """The batch that it is in, in the end, once that has an outcome."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while isinstance(outcome := await _outcome(self._batch), InParts):
            first, part = next(each for each in reversed(outcome.parts) if each[0] <= self._index)
            self._batch, self._index = part, self._index - first
        return self._batch


@attrs.define(eq=False)
class Deliveries:
    """Records that were sent together, in that order; nothing is kept of each but its batch."""

    _parts: list[tuple[ProducerBatch, int, int]] = attrs.field(factory=list, init=False)

    def add(self, batch: ProducerBatch, index: int, count: int) -> None:
        """`count` of them are in `batch`, the first at `index`."""
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
        """Where each is, once all are there; the error of the first that failed raises."""
        return [await delivery.wait() for delivery in self]


async def wait_until_settled(batch: ProducerBatch) -> None:
    """Until all of its records are there, or have failed."""
    outcome = await _outcome(batch)
    if isinstance(outcome, InParts):
        for _, part in outcome.parts:
            await wait_until_settled(part)


async def _outcome(batch: ProducerBatch) -> Outcome:
    if batch.outcome is None:
        has_outcome = trio.Event()
        batch.on_outcome.append(has_outcome.set)
        await has_outcome.wait()
    assert batch.outcome is not None, "it has been told"
    return batch.outcome


def _again(error: Exception) -> Exception:
    """One for each waiter: an exception that is raised twice gathers both tracebacks."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy
