"""Records from a consumer to standard output, until the end.

    enough        --max-messages records that match the filters
    at the end    -e: where every partition ended at first sight
    too quiet     --timeout-ms without a record
    interrupted   by a signal

Rule: records of a poll are written at once, even when interrupted. Records beyond --max-messages are
given back by a seek, so that the group continues with them.
"""

from collections.abc import Iterable, Sequence

import attrs
import trio

from replication.cli.consume.deserialisers import NotDeserialisableError
from replication.cli.consume.filters import Filter
from replication.cli.consume.formats import Format
from replication.cli.output import CommandError
from replication.cli.streams import StandardOutput
from replication.client.consumer import Consumer, ConsumerRecord
from storage.types import Offset, TopicPartition

LOOK_MS = 500.0


@attrs.define(eq=False, kw_only=True)
class Reading:
    """The loop that reads, filters and writes."""

    consumer: Consumer
    sink: StandardOutput
    format: Format
    filters: Sequence[Filter] = ()
    max_messages: int | None = None
    timeout_ms: int | None = None
    """The longest time without a record."""
    exit_at_end: bool = False
    written: int = attrs.field(init=False, default=0)
    _ends: dict[TopicPartition, Offset] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        heard_at = trio.current_time()
        while not self._is_enough and not (self.exit_at_end and await self._is_at_end()):
            records = await self.consumer.poll(timeout_ms=self._patience_ms(heard_at))
            if records:
                heard_at = trio.current_time()
                await self._write(records)
            elif self._patience_ms(heard_at) <= 0:
                return

    @property
    def _is_enough(self) -> bool:
        return self.max_messages is not None and self.written >= self.max_messages

    def _patience_ms(self, heard_at: float) -> float:
        if self.timeout_ms is None:
            return LOOK_MS
        return min(LOOK_MS, self.timeout_ms - (trio.current_time() - heard_at) * 1000)

    async def _write(self, records: Iterable[ConsumerRecord]) -> None:
        """Write the records of a poll."""
        out: list[bytes] = []
        given_back: dict[TopicPartition, Offset] = {}
        failure: CommandError | None = None
        for record in records:
            if self._is_enough:
                given_back.setdefault(record.topic_partition, record.offset)
            elif all(holds(record) for holds in self.filters):
                try:
                    out.append(self.format(record))
                except NotDeserialisableError as error:
                    where = f"{record.topic_partition} at offset {record.offset}"
                    failure = CommandError(f"{where}: {error}")
                    break
                self.written += 1
        for partition, offset in given_back.items():
            self.consumer.seek(partition, offset)
        if out:
            await self.sink.write(b"".join(out))
        if failure is not None:
            raise failure

    async def _is_at_end(self) -> bool:
        assigned = self.consumer.assignment()
        unseen = assigned - self._ends.keys()
        if unseen:
            self._ends |= await self.consumer.end_offsets(unseen)
        return bool(assigned) and all(
            [await self.consumer.position(each) >= self._ends[each] for each in assigned]
        )
