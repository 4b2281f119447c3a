"""The records of a batch that stay when its log is compacted, and the batch that it becomes.

    a record stays   it lies past the map's end, or it is the last of its key, and it has a value,
                     or its batch has no delete horizon, or that lies ahead (`record_walk.stays`)
    a batch          nothing left: gone, unless it is the last of a producer that is still
                     remembered, or the last of the round: then it stays, empty
    a marker         stays; once nothing of its transaction is left it gets a delete horizon
                     too, and past that it goes

    [base 5: k1 k2 -k3]  ─>  [base 5: k2 -k3, horizon]  ─>  [base 5: k2]  ─>  [base 5: empty]

Rule 1: a batch keeps base and last offset, sequences, leader epoch and codec. Records that
stay are copied as they are, bytes and all; only where a horizon is set, which takes the place
of the base timestamp, their timestamp deltas are written anew (KIP-534).

Rule 2: what stays whole is not touched at all.

(Cleaner.cleanInto, MemoryRecords.filterTo in Kafka.)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from storage.attributes import define
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    MIN_LENGTH,
    NO_TIMESTAMP,
    BatchHeader,
    seal,
)
from storage.batch.records import read_marker
from storage.batch.varint import varint
from storage.cleaner.record_walk import (
    NOTHING,
    CleanerStats,
    JudgedBatch,
    KeptRecords,
    RecordWalk,
    SoundBatch,
    joined,
    places,
)
from storage.cleaner.transactions import CleanedTransactions
from storage.types import Buffer, Offset


class LastRecord(NamedTuple):
    """The last record of a producer that is still remembered; a marker has no data offset."""

    last_data_offset: Offset | None
    producer_epoch: int


_EMPTIED_ATTRIBUTES: Final = ~(CODEC_MASK | DELETE_HORIZON_BIT)


@define(kw_only=True)
class BatchFilter:
    """The filter of one round; `keep` is called for every batch, in order."""

    walk: RecordWalk
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    # Where the round ends: the first offset that it leaves alone.
    round_end: Offset
    wall_ms: int
    delete_retention_ms: int
    stats: CleanerStats

    def keep(self, batches: Sequence[SoundBatch]) -> Iterator[Buffer | None]:
        """Yield what to write in place of each batch: the batch itself if all of it stays, None if
        nothing does.
        """
        known = [self._by_transaction(each) for each in batches]
        judged = iter(
            self.walk.judge(
                [
                    JudgedBatch(each, self._is_past_horizon(each.header))
                    for each, kept in zip(batches, known, strict=True)
                    if kept is None
                ],
                self.stats,
            )
        )
        for each, kept in zip(batches, known, strict=True):
            yield self._in_place_of(each, next(judged) if kept is None else kept)

    def _by_transaction(self, batch: SoundBatch) -> KeptRecords | None:
        """Return what stays of a control batch, or of an aborted one; None for any other batch,
        whose records are to be judged.
        """
        header = batch.header
        self.stats.bytes_read += len(batch.batch)
        self.stats.records_read += header.record_count
        if not header.is_control:
            return NOTHING if self.transactions.on_batch(header) else None
        done = self.transactions.on_control_batch(header, read_marker(batch.batch))
        if done and self._is_past_horizon(header):
            return NOTHING
        data = batch.records
        kept = joined(data, places(data, header.record_count))
        # A marker that may go one day is treated as a tombstone is.
        return attrs.evolve(kept, has_tombstone=done)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon_ms
        return horizon is not None and horizon <= self.wall_ms

    def _in_place_of(self, batch: SoundBatch, kept: KeptRecords) -> Buffer | None:
        header = batch.header
        self.stats.records_kept += kept.count
        if not kept.count:
            if self._is_last_of_producer(header):
                return _emptied(header)
            if header.next_offset != self.round_end:
                return None
            # A follower that has nothing yet learns from it how far the log goes. It carries no
            # time: kafka-dump-log finds no record for an entry of the time index that names it.
            return _emptied(header._replace(max_timestamp=NO_TIMESTAMP))
        if kept.has_tombstone and header.delete_horizon_ms is None:
            horizon = self.wall_ms + self.delete_retention_ms
            return _rewritten(
                header, attrs.evolve(kept, data=_restamped(header, kept, horizon)), horizon
            )
        if kept.count == header.record_count:
            return batch.batch
        return _rewritten(header, kept, None)

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


def _restamped(header: BatchHeader, kept: KeptRecords, base: int) -> bytearray:
    """Return the records with their timestamps written relative to `base`."""
    data, restamped = bytes(kept.data), bytearray()
    shift = header.base_timestamp - base
    for _, rest, end, timestamp_delta, *_ in places(data, kept.count):
        delta = varint(timestamp_delta + shift)
        # The attributes, a byte, come before the delta.
        restamped += varint(1 + len(delta) + end - rest) + b"\0" + delta + data[rest:end]
    return restamped


def _rewritten(header: BatchHeader, kept: KeptRecords, horizon: int | None) -> bytearray:
    body = kept.data if header.codec is Codec.NONE else compress(header.codec, kept.data)
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.base_timestamp + kept.max_timestamp_delta
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon
    batch = bytearray(
        HEADER.pack(
            *header._replace(
                length=MIN_LENGTH + len(body),
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                record_count=kept.count,
            )
        )
    )
    batch += body
    seal(batch)
    return batch


def _emptied(header: BatchHeader) -> bytearray:
    """Return a batch without records, which keeps producer and offsets
    (DefaultRecordBatch.writeEmptyHeader).
    """
    batch = bytearray(
        HEADER.pack(
            *header._replace(
                length=MIN_LENGTH,
                attributes=header.attributes & _EMPTIED_ATTRIBUTES,
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            )
        )
    )
    seal(batch)
    return batch
