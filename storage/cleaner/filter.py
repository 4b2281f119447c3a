"""The records of a batch that stay when its log is compacted, and the batch that it becomes.

    a record stays   it is the last of its key, or lies past the map's end,
                     and it has a value, or its batch has no delete horizon, or that lies ahead
    a batch          nothing left: gone, unless it is the last of a producer that is still
                     remembered, or the last of the round: then it stays, empty
    a marker         stays; once nothing of its transaction is left it gets a delete horizon
                     too, and past that it goes

    [base 5: k1 k2 -k3]  ─>  [base 5: k2 -k3, horizon]  ─>  [base 5: k2]  ─>  [base 5: empty]

Rule 1: a batch keeps base and last offset, sequences, leader epoch and codec. Records that
stay are copied as they are, bytes and all; only where a horizon is set, which takes the place
of the base timestamp, their timestamp deltas are written anew (KIP-534).

Rule 2: what stays whole is not touched at all.

Rule 3: the CRC-32C of a batch is checked before it is believed. What is written anew would
otherwise seal what the disk has damaged.

(Cleaner.cleanInto, MemoryRecords.filterTo in Kafka.)
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import attrs

from storage.batch.compression import Codec, compress, decompress
from storage.batch.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    computed_crc,
)
from storage.batch.records import MAX_DECOMPRESSED_SIZE, read_marker
from storage.batch.varint import read_varint, read_varlong, varint
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.transactions import CleanedTransactions
from storage.errors import CorruptRecordError
from storage.types import Buffer, Offset

# Where a record begins, where it goes on after its timestamp delta (from there on nothing ever
# changes), and where it ends; its two deltas; its key; whether it has a value.
RecordPlace: TypeAlias = tuple[int, int, int, int, int, bytes | None, bool]


_LEAST_DELTA: Final = -(2**63)


class LastRecord(NamedTuple):
    """The last record of a producer that is still remembered; a marker has no data offset."""

    last_data_offset: Offset | None
    producer_epoch: int


@attrs.define
class CleanerStats:
    """What a round has read, and what it has written of that."""

    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    # Records without a key, which nothing can ever replace.
    invalid_records: int = 0


def records_of(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the decompressed records of a sound batch. Raise CorruptRecordError for any other
    batch.
    """
    if not check_crc(batch):
        raise CorruptRecordError(f"the batch at {header.base_offset} does not match its CRC-32C")
    return bytes(decompress(header.codec, batch[HEADER_SIZE:], max_size=MAX_DECOMPRESSED_SIZE))


def places(data: bytes, count: int) -> Iterator[RecordPlace]:
    """Yield the place of every record of `data`, which must hold `count` of them and nothing else."""
    position, size = 0, len(data)
    try:
        for _ in range(count):
            begin = position
            length, position = read_varint(data, position)
            end = position + length
            if length < 1 or end > size:
                raise CorruptRecordError(f"a record of {length} bytes at byte {begin} of {size}")
            timestamp_delta, rest = read_varlong(data, position + 1)
            offset_delta, position = read_varint(data, rest)
            key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            value_length, position = read_varint(data, position)
            if position > end or position + value_length > end:
                raise CorruptRecordError(
                    f"a key of {key_length} and a value of {value_length} bytes"
                    f" in a record of {length}"
                )
            yield begin, rest, end, timestamp_delta, offset_delta, key, value_length >= 0
            position = end
    except IndexError as error:
        raise CorruptRecordError(f"fewer than the {count} records that are counted") from error
    if position != size:
        raise CorruptRecordError(f"{size - position} bytes after the last record")


_EMPTIED_ATTRIBUTES: Final = ~(CODEC_MASK | DELETE_HORIZON_BIT)


@attrs.define(kw_only=True)
class BatchFilter:
    """The filter of one round; `keep` is called for every batch, in order."""

    offset_map: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    # Where the round ends: the first offset that it leaves alone.
    round_end: Offset
    wall_ms: int
    delete_retention_ms: int
    stats: CleanerStats

    def keep(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Return the batch to write in place of `batch`: `batch` itself if all of it stays, None
        if nothing does.
        """
        data = records_of(header, batch)
        self.stats.bytes_read += len(batch)
        self.stats.records_read += header.record_count
        has_horizon = header.delete_horizon_ms is not None
        past_horizon = has_horizon and header.base_timestamp <= self.wall_ms
        kept, needs_horizon = _NOTHING, False
        if header.is_control:
            done = self.transactions.on_control_batch(header, read_marker(batch))
            if not (done and past_horizon):
                kept = _joined(data, places(data, header.record_count))
            needs_horizon = done and not has_horizon
        elif not self.transactions.on_batch(header):
            kept = _joined(data, self._kept(header, data, drops_tombstones=past_horizon))
            needs_horizon = kept.has_tombstone and not has_horizon
        self.stats.records_kept += kept.count
        if not kept.count:
            if self._is_last_of_producer(header):
                return _emptied(header)
            if header.next_offset != self.round_end:
                return None
            # A follower that has nothing yet learns from it how far the log goes. It carries no
            # time: kafka-dump-log finds no record for an entry of the time index that names it.
            return _emptied(header._replace(max_timestamp=NO_TIMESTAMP))
        if needs_horizon:
            horizon = self.wall_ms + self.delete_retention_ms
            return _rewritten(
                header, attrs.evolve(kept, data=_restamped(header, kept, horizon)), horizon
            )
        if kept.count == header.record_count:
            return batch
        return _rewritten(header, kept, None)

    def _kept(
        self, header: BatchHeader, data: bytes, *, drops_tombstones: bool
    ) -> Iterator[RecordPlace]:
        base_offset, latest, find = (
            header.base_offset,
            self.offset_map.latest_offset,
            self.offset_map.get,
        )
        for place in places(data, header.record_count):
            _, _, _, _, offset_delta, key, has_value = place
            offset = base_offset + offset_delta
            if offset > latest:
                yield place
            elif key is None:
                self.stats.invalid_records += 1
            elif offset >= find(key) and (has_value or not drops_tombstones):
                yield place

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether the producer's next batch is judged by the sequence or the epoch of this
        one.
        """
        last = self.last_records.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


@attrs.frozen
class _Kept:
    """The records of one batch that stay."""

    data: bytes | bytearray
    count: int
    max_timestamp_delta: int
    has_tombstone: bool


_NOTHING: Final = _Kept(b"", 0, 0, has_tombstone=False)


def _joined(data: bytes, kept: Iterable[RecordPlace]) -> _Kept:
    """Join the records of `data` at `kept`, each run of neighbours in one piece.

    A batch may hold millions of records, so nothing is remembered of each.
    """
    view, joined = memoryview(data), bytearray()
    begin = end = count = 0
    youngest, has_tombstone = _LEAST_DELTA, False
    for start, _, following, timestamp_delta, _, _, has_value in kept:
        if start != end:
            joined += view[begin:end]
            begin = start
        end = following
        count += 1
        youngest = max(youngest, timestamp_delta)
        if not has_value:
            has_tombstone = True
    if end - begin == len(data):
        return _Kept(data, count, youngest, has_tombstone)
    joined += view[begin:end]
    return _Kept(joined, count, youngest, has_tombstone)


def _restamped(header: BatchHeader, kept: _Kept, base: int) -> bytearray:
    """Return the records with their timestamps written relative to `base`."""
    data, restamped = bytes(kept.data), bytearray()
    shift = header.base_timestamp - base
    for _, rest, end, timestamp_delta, *_ in places(data, kept.count):
        delta = varint(timestamp_delta + shift)
        # The attributes, a byte, come before the delta.
        restamped += varint(1 + len(delta) + end - rest) + b"\0" + delta + data[rest:end]
    return restamped


def _rewritten(header: BatchHeader, kept: _Kept, horizon: int | None) -> bytes:
    body = kept.data if header.codec is Codec.NONE else compress(header.codec, kept.data)
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.base_timestamp + kept.max_timestamp_delta
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon
    return _sealed(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=kept.count,
        ),
        body,
    )


def _emptied(header: BatchHeader) -> bytes:
    """Return a batch without records, which keeps producer and offsets
    (DefaultRecordBatch.writeEmptyHeader).
    """
    return _sealed(
        header._replace(
            attributes=header.attributes & _EMPTIED_ATTRIBUTES,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _sealed(header: BatchHeader, body: Buffer) -> bytes:
    header = header._replace(length=HEADER_SIZE + len(body) - LENGTH_OVERHEAD, crc=0)
    batch = bytearray(HEADER.pack(*header))
    batch += body
    header = header._replace(crc=computed_crc(batch))
    HEADER.pack_into(batch, 0, *header)
    return bytes(batch)
