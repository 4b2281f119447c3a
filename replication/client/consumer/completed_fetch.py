"""The records of one partition in a fetch response, read as far as they were taken, and the buffer.

    position 3:   [batch 0-4][batch 5-9 of an aborted transaction][control 10][batch 11-19
                        └ 3, 4 are taken                              cut off: not there ┘
                   next_fetch_offset: 3 ... 5 ... 10 ... 11

Rule 1: a batch is decoded when its first record is wanted, and not before.

Rule 2: `next_fetch_offset` is the position of the consumer when the records that were taken have
been handed over. It also moves over what is never handed over: control records, aborted data, and
the tail of a batch that compaction has cut.

Rule 3: with read_committed a producer is in abort from the first offset that the leader
lists for it until its abort marker. The records that it wrote in between are skipped.

Rule 4: the error of unreadable records is raised when there is nothing readable before them to
hand over, again and again, until the program seeks elsewhere.

Rule 5: a batch that takes more than an `Allowance` to decode (4,096 records, or a megabyte when it
is inflated) is not decoded on the event loop: `take` stops before it, and `long_work` is what a
thread has to do. A few bytes may inflate to 256 MiB. `take_columns` decodes all that is left at
once, so that `_Columnar.is_long` judges by the headers of all its batches.

Rule 6: responses wait in a `FetchBuffer`, a queue and its head, until they have been read to their
end. A partition in the buffer is not fetched again until it is drained or dropped. A response
without records does not count: a full response names every partition, and those without new
records would stand still until the others are read.

(Kafka: CompletedFetch, FetchBuffer.)

The file is long because records, columns and long decodings take from the same response.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, cast

import attrs

from replication.client.consumer.errors import CorruptRecordsError, RecordDeserializationError
from replication.client.consumer.records import ConsumerRecord, Deserialize
from replication.errors import KafkaError
from replication.wire.fetch import AbortedTransactionData, PartitionData
from storage.attributes import define, frozen
from storage.batch.allowance import BYTES_PER_STEP, STEPS, Allowance
from storage.batch.record_batch import CODEC_MASK, BatchHeader, check_crc, walk
from storage.batch.records import ControlRecordType, decode_columns, read_marker
from storage.errors import CorruptRecordError, LongCheckError, StorageError
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

Drained = Callable[["CompletedFetch"], None]

_COMPRESSED_AT_ONCE = 1024
"""The compressed bytes that may be inflated to columns on the event loop."""


_new = tuple.__new__  # a ConsumerRecord's own costs three times as much
_KEY = ConsumerRecord._fields.index("key")
_VALUE = ConsumerRecord._fields.index("value")


@frozen(kw_only=True)
class ReadSettings:
    """The settings by which a consumer reads all records."""

    check_crcs: bool = True
    read_committed: bool = False
    key_deserializer: Deserialize | None = None
    value_deserializer: Deserialize | None = None


@define(eq=False, kw_only=True)
class _Columnar:
    """The rest of a response, on its way to Arrow record batches."""

    begin: Offset
    columns: tuple[str, ...]
    batches: list[tuple[int, BatchHeader]]
    decode: Callable[[], "_Decoded"]
    decoded: "_Decoded | None" = None

    @property
    def is_long(self) -> bool:
        """Whether the decoding may take longer than the event loop can wait (Rule 5)."""
        headers = [header for _, header in self.batches]
        compressed = sum(each.size for each in headers if each.attributes & CODEC_MASK)
        return (
            sum(max(0, each.record_count) for each in headers) > STEPS
            or sum(each.size for each in headers) > STEPS * BYTES_PER_STEP
            or compressed > _COMPRESSED_AT_ONCE
        )


@frozen(kw_only=True)
class _Decoded:
    """The record batches before the first damage, if there is any, and its place and cause."""

    taken: list[Any]
    damaged_at: int | None = None
    cause: str = ""


@define(eq=False, kw_only=True)
class CompletedFetch:
    """One partition of a response; `initialized` once the position was found to be right."""

    partition: TopicPartition
    fetch_offset: Offset
    leader_epoch: LeaderEpoch
    """The leader epoch of the request."""
    data: PartitionData
    settings: ReadSettings
    on_drained: Drained = lambda _: None
    initialized: bool = False
    consumed: bool = False
    next_fetch_offset: Offset = attrs.field(init=False)
    last_epoch: LeaderEpoch = attrs.field(init=False, default=NO_LEADER_EPOCH)
    records_read: int = attrs.field(init=False, default=0)
    bytes_read: float = attrs.field(init=False, default=0.0)
    """The bytes of the records that were taken; each counts its share of its batch."""
    _view: memoryview = attrs.field(init=False)
    _batches: Iterator[tuple[int, BatchHeader]] = attrs.field(init=False)
    _batch: BatchHeader | None = attrs.field(init=False, default=None)
    _batch_end: int = attrs.field(init=False, default=0)
    _records: list[ConsumerRecord] = attrs.field(init=False, factory=list)
    """The records of the present batch, with keys and values as bytes."""
    _index: int = attrs.field(init=False, default=0)
    _long: tuple[int, BatchHeader] | None = attrs.field(init=False, default=None)
    """The next batch and its place, if it waits for `long_work`."""
    _columnar: _Columnar | None = attrs.field(init=False, default=None)
    """The decoding that `take_columns` has begun."""
    _corrupt: str | None = attrs.field(init=False, default=None)
    _aborted: deque[AbortedTransactionData] = attrs.field(init=False)
    _in_abort: set[int] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self.next_fetch_offset = self.fetch_offset
        records = self.data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview), "off the wire come bytes"
        self._view = memoryview(records)
        self._batches = walk(self._view)
        listed = self.data.aborted_transactions or []
        self._aborted = deque(sorted(listed, key=lambda each: each.first_offset))

    @property
    def size(self) -> int:
        return len(self._view)

    def has_whole_batch(self) -> bool:
        """Return whether it holds a batch that is not cut off."""
        try:
            return next(walk(self._view), None) is not None
        except CorruptRecordError:
            return True  # reading it raises the error

    def drain(self) -> None:
        """Take nothing more from it."""
        if not self.consumed:
            self.consumed = True
            self._records, self._long, self._columnar = [], None, None
            self.on_drained(self)

    # -- taking records

    def take_columns(self, columns: Sequence[str]) -> list[Any]:
        """Take all that is left, as Arrow record batches over the bytes that were received.

        Return nothing as long as `long_work` has to be done first. Raises as `take` does.
        Deserializers are not called: columns are of bytes.
        """
        if self._corrupt is not None:
            raise CorruptRecordsError(self.partition, self.next_fetch_offset, self._corrupt)
        columnar = self._columnar
        if columnar is None or columnar.columns != tuple(columns):
            columnar = self._columnar = self._plan_columns(tuple(columns))
        if columnar.decoded is None:
            if columnar.is_long:
                return []
            columnar.decoded = columnar.decode()
        return self._take_decoded(columnar, columnar.decoded)

    def _plan_columns(self, columns: tuple[str, ...]) -> _Columnar:
        # numpy and pyarrow, which are an extra.
        from storage.batch.columns.columnar import CorruptBatchError, all_but, decode  # noqa: PLC0415

        begin, view = self.next_fetch_offset, self._view[self._rest_from :]
        batches, aborted = self._look_ahead(view)
        arrow_batches = partial(
            decode,
            view,
            columns=columns,
            check_crcs=self.settings.check_crcs,
            start_offset=begin,
            keep=all_but(aborted) if aborted else None,
        )

        def decoded() -> _Decoded:
            taken: list[Any] = []
            try:
                for each in arrow_batches():
                    taken.append(each)  # noqa: PERF402 - what came before damage is kept
            except CorruptBatchError as error:
                return _Decoded(taken=taken, damaged_at=error.position, cause=error.reason)
            return _Decoded(taken=taken)

        return _Columnar(begin=begin, columns=columns, batches=batches, decode=decoded)

    def _take_decoded(self, columnar: _Columnar, decoded: _Decoded) -> list[Any]:
        batches = columnar.batches
        if decoded.damaged_at is not None:
            self._corrupt = decoded.cause
            batches = [(at, header) for at, header in batches if at < decoded.damaged_at]
        self._took_columns(batches, sum(each.num_rows for each in decoded.taken))
        self._columnar = None
        if decoded.damaged_at is None:
            self.drain()
        elif self.next_fetch_offset == columnar.begin:
            raise CorruptRecordsError(self.partition, columnar.begin, decoded.cause)
        return decoded.taken

    @property
    def _rest_from(self) -> int:
        """The place of the first batch that was not taken to its end."""
        is_open = self._batch is not None and self._index < len(self._records)
        return self._batch_end - self._batch.size if self._batch and is_open else self._batch_end

    def _look_ahead(self, view: memoryview) -> tuple[list[tuple[int, BatchHeader]], list[Offset]]:
        """Return the whole batches of `view`, and the base offsets of the aborted ones.

        The state of the transactions stays as it is: the records may be taken otherwise after all.
        """
        batches: list[tuple[int, BatchHeader]] = []
        aborted: list[Offset] = []
        kept = self._aborted.copy(), self._in_abort.copy()
        judged = self._batch.next_offset if self._batch is not None else self.fetch_offset
        try:
            for at, header in walk(view):
                batches.append((at, header))
                batch = view[at : at + header.size]
                is_new = header.last_offset >= judged
                if self.settings.read_committed and header.has_producer and is_new:
                    aborted += [header.base_offset] * self._aborts(header, batch)
        except CorruptRecordError:
            pass  # decoding raises the error
        self._aborted, self._in_abort = kept
        return batches, aborted

    def _took_columns(self, batches: Sequence[tuple[int, BatchHeader]], count: int) -> None:
        self._records, self._index = [], 0
        self.records_read += count
        for _, header in batches:
            self.bytes_read += header.size
            self.next_fetch_offset = max(self.next_fetch_offset, header.next_offset)
            self.last_epoch = header.leader_epoch

    def take(self, most: int) -> list[ConsumerRecord]:
        """Take up to `most` records, in order.

        RecordDeserializationError or CorruptRecordsError if there is nothing readable before
        what cannot be read.
        """
        taken: list[ConsumerRecord] = []
        begin, self._columnar = self.next_fetch_offset, None
        try:
            while len(taken) < most and (records := self._next(most - len(taken))):
                self._hand_over(records, taken)
        except KafkaError:
            if self.next_fetch_offset == begin:
                raise
        else:
            self._drain_at_end()
        return taken

    def _hand_over(self, records: list[ConsumerRecord], taken: list[ConsumerRecord]) -> None:
        """Move records to `taken`, as far as they can be deserialized."""
        before, batch = len(taken), self._batch
        assert batch is not None, "records come out of a batch"
        try:
            if self.settings.key_deserializer is self.settings.value_deserializer is None:
                taken += records
            else:
                self._deserialize(records, taken)
        finally:
            if count := len(taken) - before:
                self._index += count
                self.next_fetch_offset = taken[-1].offset + 1
                self.records_read += count
                self.bytes_read += count * batch.size / max(batch.record_count, 1)

    def _drain_at_end(self) -> None:
        """Drain as soon as nothing is left, so that the next request may name the partition."""
        if self.consumed or self._index < len(self._records):
            return
        at_end = self._end_of_batches()
        if at_end and self._batch is not None:
            self.next_fetch_offset = max(self.next_fetch_offset, self._batch.next_offset)
        if at_end:
            self.drain()

    def _end_of_batches(self) -> bool:
        """Return whether the present batch is the last whole one."""
        if self._batch is None:
            return False
        try:
            return next(walk(self._view, self._batch_end), None) is None
        except CorruptRecordError:
            return False

    def _next(self, most: int) -> list[ConsumerRecord]:
        """Return the next records of one batch; none at the end, or before a long batch."""
        if self._corrupt is not None:
            raise CorruptRecordsError(self.partition, self.next_fetch_offset, self._corrupt)
        while not self.consumed and self._long is None:
            while self._index < len(self._records):
                if self._records[self._index].offset >= self.next_fetch_offset:
                    return self._records[self._index : self._index + most]
                self._index += 1
            if not self._next_batch() and self._long is None:
                if self._batch is not None:
                    self.next_fetch_offset = max(self.next_fetch_offset, self._batch.next_offset)
                self.drain()
        return []

    def _next_batch(self) -> bool:
        """Move to the next batch; False if there is none, or if it is long."""
        found: tuple[int, BatchHeader] | None = None
        try:
            found = next(self._batches, None)
            if found is None:
                return False
            start, header = found
            records = self._read(header, self._view[start : start + header.size])
        except LongCheckError:
            self._long = found
            return False
        except StorageError as error:
            self._corrupt = str(error)
            raise CorruptRecordsError(
                self.partition, self.next_fetch_offset, self._corrupt
            ) from error
        self._enter(start, header, records)
        return True

    def _enter(self, start: int, header: BatchHeader, records: list[ConsumerRecord]) -> None:
        self._records, self._index = records, 0
        self._batch, self._batch_end = header, start + header.size
        self.last_epoch = header.leader_epoch
        if not self._records:
            self.next_fetch_offset = max(self.next_fetch_offset, header.next_offset)

    @property
    def long_work(self) -> "Callable[[], list[ConsumerRecord] | _Decoded] | None":
        """The decoding of what comes next, for a thread; None if it is not long, or done."""
        if self._columnar is not None and self._columnar.decoded is None:
            return self._columnar.decode
        if self._long is None:
            return None
        start, header = self._long
        return partial(self._decode, header, self._view[start : start + header.size])

    def finish_long_work(self, records: list[ConsumerRecord] | _Decoded | StorageError) -> None:
        """Go on with what `long_work` has returned or raised."""
        if self._columnar is not None:
            if isinstance(records, StorageError):
                records = _Decoded(taken=[], damaged_at=0, cause=str(records))
            assert isinstance(records, _Decoded), "the work was of columns"
            self._columnar.decoded = records
            return
        if isinstance(records, _Decoded):
            return  # it was drained meanwhile
        if self._long is None:
            return  # it was drained meanwhile
        (start, header), self._long = self._long, None
        if isinstance(records, StorageError):
            self._corrupt = str(records)
        else:
            self._enter(start, header, records)

    def _read(self, header: BatchHeader, batch: memoryview) -> list[ConsumerRecord]:
        """Return the records of `batch` that a program may see; LongCheckError if it is long."""
        is_behind = header.last_offset < self.next_fetch_offset
        if self.settings.check_crcs and not is_behind and not check_crc(batch):
            raise CorruptRecordError(f"the CRC-32C of the batch at {header.base_offset} is wrong")
        if self.settings.read_committed and header.has_producer and self._aborts(header, batch):
            return []
        if header.is_control or is_behind:
            return []
        return self._decode(header, batch, Allowance())

    def _aborts(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether the transaction that wrote this batch was aborted."""
        while self._aborted and self._aborted[0].first_offset <= header.last_offset:
            self._in_abort.add(self._aborted.popleft().producer_id)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.type is ControlRecordType.ABORT:
                self._in_abort.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._in_abort

    # -- decoding

    def _decode(
        self, header: BatchHeader, batch: memoryview, allowance: Allowance | None = None
    ) -> list[ConsumerRecord]:
        columns = decode_columns(batch, allowance=allowance)
        offsets, timestamps, keys, values, headers, _ = columns
        rows = zip(
            repeat(self.partition.topic),
            repeat(self.partition.partition),
            offsets,
            timestamps,
            repeat(header.timestamp_type),
            keys,
            values,
            headers,
            _sizes(keys),
            _sizes(values),
            repeat(header.leader_epoch),
            strict=False,
        )
        return list(map(_new, repeat(ConsumerRecord), rows))

    def _deserialize(self, records: list[ConsumerRecord], taken: list[ConsumerRecord]) -> None:
        """Move records to `taken` one by one, deserialized."""
        of_key, of_value = self.settings.key_deserializer, self.settings.value_deserializer
        for record in records:
            key, value = record.key, record.value
            if of_key is not None:
                key = self._of("key", of_key, record, key)
            if of_value is not None:
                value = self._of("value", of_value, record, value)
            taken.append(_new(ConsumerRecord, (*record[:_KEY], key, value, *record[_VALUE + 1 :])))

    def _of(
        self, origin: str, deserialize: Deserialize, record: ConsumerRecord, data: bytes | None
    ) -> object:
        if data is None:
            return None
        try:
            return deserialize(self.partition.topic, record.headers, data)
        except Exception as error:
            raise RecordDeserializationError(
                self.partition, record.offset, origin=origin, cause=error
            ) from error


def _sizes(fields: Sequence[bytes | None]) -> Iterable[int]:
    nulls = fields.count(None)
    if not nulls:
        return map(len, cast("Sequence[bytes]", fields))
    return (
        repeat(-1)
        if nulls == len(fields)
        else [len(each) if each is not None else -1 for each in fields]
    )


@define(eq=False)
class FetchBuffer:
    """Completed fetches, in the order in which they came."""

    next_in_line: CompletedFetch | None = None
    _queue: deque[CompletedFetch] = attrs.field(init=False, factory=deque)

    def is_reading(self) -> bool:
        """Return whether the head has records left."""
        return self.next_in_line is not None and not self.next_in_line.consumed

    def add(self, fetch: CompletedFetch) -> None:
        self._queue.append(fetch)

    def add_all(self, fetches: Iterable[CompletedFetch]) -> None:
        self._queue.extend(fetches)

    def peek(self) -> CompletedFetch | None:
        return self._queue[0] if self._queue else None

    def pop(self) -> None:
        self._queue.popleft()

    def buffered_partitions(self) -> set[TopicPartition]:
        """Return the partitions with records to read, or with an error to raise."""
        return {fetch.partition for fetch in self.held() if fetch.size or fetch.data.error_code}

    def retain_all(self, partitions: Container[TopicPartition]) -> None:
        """Drop the responses about other partitions."""
        kept = []
        for fetch in self._queue:
            if fetch.partition in partitions:
                kept.append(fetch)
            else:
                fetch.drain()
        self._queue = deque(kept)
        if self.next_in_line is not None and self.next_in_line.partition not in partitions:
            self.next_in_line.drain()
            self.next_in_line = None

    def held(self) -> Iterable[CompletedFetch]:
        """Yield the responses that are not read to their end."""
        if self.next_in_line is not None and self.is_reading():
            yield self.next_in_line
        yield from self._queue
