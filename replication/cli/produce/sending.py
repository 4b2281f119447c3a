"""The loop from standard input to the brokers, and the result of each record.

Rule 1: failed records are counted, and the first reason is kept; the other records are sent all the
same. The command then ends with exit code 1.

Rule 2: at most MOST_UNDER_WAY records are under way, however long the input is.

Rule 3: a line that is not a valid record ends the reading. The records before it are sent; a
transaction is aborted.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from replication.cli.output import json_line
from replication.cli.produce.lines import InputLine, Lines
from replication.cli.streams import StandardInput, StandardOutput
from replication.client.errors import RecordTooLargeError
from replication.client.producer import Producer
from replication.client.producer.delivery import Delivery, RecordMetadata
from replication.errors import UnderstudyError
from storage.batch.records import Header

MOST_UNDER_WAY = 10_000


@attrs.define(eq=False, kw_only=True)
class LineSending:
    """The sending of one input."""

    producer: Producer[bytes, bytes]
    topic: str
    lines: Lines
    source: StandardInput
    sink: StandardOutput | None
    """The output for the offset of each record, as JSON; None without it."""
    partition: int | None = None
    key: bytes | None = None
    """The key of records that have none."""
    headers: tuple[Header, ...] = ()
    """The headers of every record."""
    empty_is_null: bool = False
    sync: bool = False
    acked: int = attrs.field(init=False, default=0)
    failed: int = attrs.field(init=False, default=0)
    first_failure: Exception | None = attrs.field(init=False, default=None)
    offsets: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict)
    """The first and the last offset of each partition."""
    _under_way: deque[Delivery] = attrs.field(init=False, factory=deque)

    async def run(self) -> None:
        """Send the whole input; `settle` then waits for the records under way."""
        while data := await self.source.read():
            await self._send(self.lines.feed(data))
        await self._send(self.lines.last())

    async def settle(self, most: int = 0) -> None:
        """Wait until at most `most` records are under way."""
        written: list[bytes] = []
        while len(self._under_way) > most:
            try:
                metadata = await self._under_way[0].wait()
            except UnderstudyError as error:
                self._note(error)
            else:
                self._count(metadata)
                if self.sink is not None:
                    written.append(_line(metadata))
            self._under_way.popleft()
        if self.sink is not None and written:
            await self.sink.write(b"".join(written))

    async def _send(self, lines: Sequence[InputLine]) -> None:
        records = [self._completed(line) for line in lines]
        if not records:
            return
        if self.sync or any(record.headers for record in records):
            await self._one_by_one(records)
        else:
            await self._together(records)
        # With JSON, the offset of a record is printed as soon as it is known.
        await self.settle(0 if self.sink is not None else MOST_UNDER_WAY)

    def _completed(self, line: InputLine) -> InputLine:
        value = None if self.empty_is_null and not line.value else line.value
        key = self.key if line.key is None and not self.lines.parse_key else line.key
        return InputLine(key, value, (*self.headers, *line.headers))

    async def _together(self, records: Sequence[InputLine]) -> None:
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

    async def _one_by_one(self, records: Iterable[InputLine]) -> None:
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
        """Return a line such as `3 records in t: partition 0 at offsets 5 to 7`."""
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
