"""From standard input to the brokers, and what became of it.

Rule 1: what fails is counted, with the first reason; the others are sent all the same. The command
then ends with exit code 1: nothing is lost in silence.

Rule 2: no more than so many records are on their way, however long the input is.

Rule 3: a line that cannot be read as a record stops the reading. What came before it is sent;
inside a transaction, none of it is there.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from replication.cli.output import json_line
from replication.cli.produce.lines import Line, Lines
from replication.cli.streams import Sink, Source
from replication.client.errors import RecordTooLargeError
from replication.client.producer import Producer
from replication.client.producer.delivery import Delivery, RecordMetadata
from replication.errors import UnderstudyError
from storage.batch.records import Header

MOST_ON_THEIR_WAY = 10_000


@attrs.define(eq=False, kw_only=True)
class Sending:
    producer: Producer[bytes, bytes]
    topic: str
    lines: Lines
    source: Source
    sink: Sink | None
    """Where each record's place is written, as JSON."""
    partition: int | None = None
    key: bytes | None = None
    """Of records that bring none."""
    headers: tuple[Header, ...] = ()
    """Of every record."""
    empty_is_null: bool = False
    sync: bool = False
    acked: int = attrs.field(init=False, default=0)
    failed: int = attrs.field(init=False, default=0)
    first_failure: Exception | None = attrs.field(init=False, default=None)
    offsets: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict)
    """The first and the last of each partition."""
    _under_way: deque[Delivery] = attrs.field(init=False, factory=deque)

    async def run(self) -> None:
        """To the end of the input; `settle` then waits for what is on its way."""
        while data := await self.source.read():
            await self._send(self.lines.feed(data))
        await self._send(self.lines.last())

    async def settle(self, most: int = 0) -> None:
        """Until no more than so many are on their way."""
        told: list[bytes] = []
        while len(self._under_way) > most:
            try:
                metadata = await self._under_way[0].wait()
            except UnderstudyError as error:
                self._note(error)
            else:
                self._count(metadata)
                if self.sink is not None:
                    told.append(_line(metadata))
            self._under_way.popleft()
        if self.sink is not None and told:
            await self.sink.write(b"".join(told))

    async def _send(self, lines: Sequence[Line]) -> None:
        records = [self._completed(line) for line in lines]
        if not records:
            return
        if self.sync or any(record.headers for record in records):
            await self._one_by_one(records)
        else:
            await self._together(records)
        # Who wants to read of each as it is there is not kept waiting for the last.
        await self.settle(0 if self.sink is not None else MOST_ON_THEIR_WAY)

    def _completed(self, line: Line) -> Line:
        value = None if self.empty_is_null and not line.value else line.value
        key = self.key if line.key is None and not self.lines.parse_key else line.key
        return Line(key, value, (*self.headers, *line.headers))

    async def _together(self, records: Sequence[Line]) -> None:
        keys = [record.key for record in records]
        try:
            deliveries = await self.producer.send_many(
                self.topic,
                [record.value for record in records],
                keys=keys if any(key is not None for key in keys) else None,
                partition=self.partition,
            )
        except RecordTooLargeError:  # nothing was sent
            await self._one_by_one(records)
        else:
            self._under_way.extend(deliveries)

    async def _one_by_one(self, records: Iterable[Line]) -> None:
        for key, value, headers in records:
            try:
                self._under_way.append(
                    await self.producer.send_soon(
                        self.topic, value, key, partition=self.partition, headers=headers
                    )
                )
            except RecordTooLargeError as error:
                self._note(error)
            if self.sync:
                await self.settle()

    def _note(self, error: UnderstudyError) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or error

    def _count(self, metadata: RecordMetadata) -> None:
        self.acked += 1
        first, last = self.offsets.get(metadata.partition, (metadata.offset, metadata.offset))
        self.offsets[metadata.partition] = min(first, metadata.offset), max(last, metadata.offset)

    def summary(self) -> str:
        """`3 records in t: partition 0 at offsets 5 to 7`."""
        where = ", ".join(
            f"partition {partition}" + (f" at offsets {first} to {last}" if first >= 0 else "")
            for partition, (first, last) in sorted(self.offsets.items())
        )
        return f"{self.acked} records in {self.topic}" + (f": {where}" if where else "")


def _line(metadata: RecordMetadata) -> bytes:
    found = {
        "topic": metadata.topic,
        "partition": metadata.partition,
        "offset": metadata.offset if metadata.offset >= 0 else None,
        "timestamp": metadata.timestamp,
    }
    return json_line(found).encode() + b"\n"
