"""A log in memory whose records are toys: what the fetcher's tests replicate.

A toy record is 20 bytes: offset, leader epoch, value, CRC-32 of the three. That is all a
follower's engine depends on, and a log of them can be compared with `==`.

The epoch cache is computed from first principles each time it is asked (`end_offset_for_epoch`
walks the entries), so that it can stand as a naive twin of the real one.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import attrs

from storage.errors import CorruptRecordError, UnexpectedAppendOffsetError
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, LeaderEpoch, Offset, OffsetAndEpoch

_BODY = struct.Struct(">qii")
_CRC = struct.Struct(">I")
TOY_SIZE = _BODY.size + _CRC.size


class Toy(NamedTuple):
    """One record."""

    offset: Offset
    epoch: LeaderEpoch
    value: int = 0


def encode(records: Iterable[Toy]) -> bytes:
    parts = []
    for record in records:
        body = _BODY.pack(record.offset, record.epoch, record.value)
        parts += [body, _CRC.pack(zlib.crc32(body))]
    return b"".join(parts)


def decode(data: Buffer) -> list[Toy]:
    """CorruptRecordError where a checksum is wrong; a trailing partial record is left out."""
    records = []
    for position in range(0, len(data) - TOY_SIZE + 1, TOY_SIZE):
        body = bytes(data[position : position + _BODY.size])
        (crc,) = _CRC.unpack_from(data, position + _BODY.size)
        if zlib.crc32(body) != crc:
            raise CorruptRecordError(f"the record at byte {position}")
        records.append(Toy(*_BODY.unpack(body)))
    return records


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start: Offset


@attrs.frozen
class Appended:
    """What an append tells the fetcher (LogAppendInfo)."""

    last_offset: Offset
    last_leader_epoch: LeaderEpoch
    valid_bytes: int


def common_prefix(first: list[Toy], second: list[Toy]) -> list[Toy]:
    """Return what two logs share from their beginning, compared record by record."""
    kept = []
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        kept.append(one)
    return kept


def drawn(*runs: tuple[LeaderEpoch, Offset, Offset]) -> "ModelLog":
    """A log from its drawing: `[e0: 0-4][e2: 5-11]` is `drawn((0, 0, 4), (2, 5, 11))`."""
    log = ModelLog(log_start_offset=runs[0][1] if runs else 0)
    log.log_end_offset = log.log_start_offset
    for epoch, first, last in runs:
        log.append(Toy(offset, epoch) for offset in range(first, last + 1))
    return log


@attrs.define
class ModelLog:
    log_start_offset: Offset = 0
    log_end_offset: Offset = 0
    high_watermark: Offset = 0
    records: list[Toy] = attrs.field(factory=list)
    epochs: list[EpochEntry] = attrs.field(factory=list)

    # -- the epoch cache ------------------------------------------------------

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self.epochs[-1].epoch if self.epochs else None

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        if self.epochs and self.epochs[-1].epoch == epoch and start >= self.epochs[-1].start:
            return
        self.epochs = [e for e in self.epochs if e.epoch < epoch and e.start < start]
        self.epochs.append(EpochEntry(epoch, start))

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """LeaderEpochCache.end_offset_for, as plain as it can be."""
        if epoch != NO_LEADER_EPOCH and epoch == self.latest_epoch:
            return OffsetAndEpoch(self.log_end_offset, epoch)
        newer = [e for e in self.epochs if e.epoch > epoch]
        if epoch == NO_LEADER_EPOCH or not newer:
            return OffsetAndEpoch(NO_OFFSET, NO_LEADER_EPOCH)
        older = [e.epoch for e in self.epochs if e.epoch <= epoch]
        return OffsetAndEpoch(newer[0].start, older[-1] if older else epoch)

    # -- appending ------------------------------------------------------------

    def append(self, records: Iterable[Toy]) -> None:
        for record in records:
            self.assign(record.epoch, record.offset)
            self.records.append(record)
            self.log_end_offset = record.offset + 1

    def append_as_leader(self, epoch: LeaderEpoch, *values: int) -> None:
        end = self.log_end_offset
        self.append(Toy(end + at, epoch, value) for at, value in enumerate(values))

    def append_as_follower(self, data: Buffer) -> Appended:
        records = decode(data)
        if records and records[0].offset < self.log_end_offset:
            raise UnexpectedAppendOffsetError(
                f"{records[0].offset} below the end {self.log_end_offset}",
                first_offset=records[0].offset,
                last_offset=records[-1].offset,
            )
        self.append(records)
        return Appended(
            last_offset=records[-1].offset if records else NO_OFFSET,
            last_leader_epoch=records[-1].epoch if records else NO_LEADER_EPOCH,
            valid_bytes=len(records) * TOY_SIZE,
        )

    def read(self, start: Offset, count: int) -> list[Toy]:
        return [record for record in self.records if record.offset >= start][:count]

    # -- cutting --------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Nothing is cut at or beyond the end, but the epochs there go (KIP-101)."""
        end = min(offset, self.log_end_offset)
        self.records = [record for record in self.records if record.offset < end]
        self.epochs = [entry for entry in self.epochs if entry.start < end]
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(self.high_watermark, end)

    def start_over_at(self, offset: Offset) -> None:
        self.records, self.epochs = [], []
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def move_start_to(self, offset: Offset) -> None:
        """Retention, or DeleteRecords: the oldest records go."""
        self.records = [record for record in self.records if record.offset >= offset]
        gone = [entry for entry in self.epochs if entry.start <= offset]
        if gone:
            self.epochs = [EpochEntry(gone[-1].epoch, offset), *self.epochs[len(gone) :]]
        self.log_start_offset = offset
        self.log_end_offset = max(self.log_end_offset, offset)
