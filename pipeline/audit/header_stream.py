"""A copy of a partition as rows of headers that were read elsewhere, and a cursor over them.

The cursor gives the heads, ends and damage that `storage.batch.batch_stream.BatchStream` gives
over the files themselves, so that `replication.verify.lock_step` walks either.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.audit.headers import OVERLAP
from pipeline.audit.replicas import ReplicaDirectory
from storage.batch.batch_stream import DamagedLogError, out_of_order
from storage.batch.record_batch import LENGTH_OVERHEAD, MAGIC, BatchHeader
from storage.types import Offset

# The columns that must be equal: they identify a batch, with the epoch that the CRC leaves out.
FINGERPRINT: Final = ("base_offset", "last_offset", "leader_epoch", "crc", "size")

Columns: TypeAlias = dict[str, npt.NDArray[Any]]


@attrs.define(eq=False)
class HeaderStream:
    """A cursor over the rows of one copy, which stand in order of segment and position."""

    name: str
    directory: str | None
    segments: list[Offset]
    rows: Columns
    next_offset: Offset = attrs.field(init=False, default=0)
    _segment: int = attrs.field(init=False, default=-1)
    _row: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if self.segments:
            self.next_offset = self.segments[0]

    @property
    def file_name(self) -> str | None:
        return None if self._segment < 0 else f"{self.segments[self._segment]:020d}.log"

    @property
    def position(self) -> int:
        """The cursor's position in that file."""
        if self._in_segment(self._row):
            return int(self.rows["position"][self._row])
        before = self._row - 1
        if before < 0 or not self._in_segment(before):
            return 0
        return int(self.rows["position"][before] + self.rows["size"][before])

    @property
    def row(self) -> int:
        """The number of the row that is the head."""
        return self._row

    @property
    def count(self) -> int:
        return len(self.rows["position"])

    def seek(self, offset: Offset) -> None:
        """Move on to the batch that holds `offset`, or the first one after it."""
        while self._segment + 2 < len(self.segments) and self.segments[self._segment + 2] <= offset:
            self._segment += 1
        if self._segment >= 0:
            wanted = self.segments[self._segment + 1]
            self._row = int(np.searchsorted(self.rows["segment"], wanted))
        while (header := self.head()) is not None and header.last_offset < offset:
            self.passed(header)

    def head(self) -> BatchHeader | None:
        """Return the next batch's header, or None at the end of the log; raise DamagedLogError."""
        while not self._in_segment(self._row):
            if self._segment + 1 >= len(self.segments):
                return None
            self._segment += 1
            self.next_offset = max(self.next_offset, self.segments[self._segment])
        damage = self.rows["damage"][self._row]
        if damage == OVERLAP:  # which shows in what the next segment begins with
            self._row += 1
            return self.head()
        if damage is not None:
            raise self._damaged(str(damage))
        header = header_of(self.rows, self._row)
        if reason := out_of_order(header, self.next_offset):
            raise self._damaged(reason)
        return header

    def passed(self, header: BatchHeader) -> None:
        self._row += 1
        self.next_offset = header.next_offset

    def skip(self, count: int) -> None:
        """Pass `count` batches, which are known to be in order."""
        self._row += count
        self.next_offset = int(self.rows["last_offset"][self._row - 1]) + 1
        last = self.rows["segment"][self._row - 1]
        self._segment = max(self._segment, self.segments.index(int(last)))

    def is_sound(self) -> bool | None:
        """Return whether the head's CRC-32C matches, or None if it was not computed."""
        found = self.rows["is_sound"][self._row]
        return None if found is None else bool(found)

    def _in_segment(self, row: int) -> bool:
        return (
            self._segment >= 0
            and row < self.count
            and int(self.rows["segment"][row]) == self.segments[self._segment]
        )

    def _damaged(self, reason: str) -> DamagedLogError:
        return DamagedLogError(reason, path=self.file_name, position=self.position)


@attrs.frozen(kw_only=True)
class ReplicaHeaders(ReplicaDirectory):
    """One replica of a partition as the judgement sees it, with the rows of its batches."""

    rows: Columns

    @classmethod
    def of(cls, replica: ReplicaDirectory, rows: pa.Table) -> "ReplicaHeaders":
        columns = {name: rows[name].to_numpy() for name in rows.column_names}
        return cls(**attrs.asdict(replica, recurse=False), rows=columns)

    def stream(self) -> HeaderStream:
        return HeaderStream(self.replica, self.directory, list(self.segments), self.rows)


def header_of(rows: Columns, row: int) -> BatchHeader:
    """Return the header in a row; fields that rows do not have are 0."""
    base_offset = int(rows["base_offset"][row])
    return BatchHeader(
        base_offset=base_offset,
        length=int(rows["size"][row]) - LENGTH_OVERHEAD,
        leader_epoch=int(rows["leader_epoch"][row]),
        magic=MAGIC,
        crc=int(rows["crc"][row]),
        attributes=0,
        last_offset_delta=int(rows["last_offset"][row]) - base_offset,
        base_timestamp=0,
        max_timestamp=int(rows["max_timestamp"][row]),
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        record_count=int(rows["record_count"][row]),
    )


def equal_rows(streams: Sequence[HeaderStream]) -> int:
    """Return how many batches, from the heads on, are equal and sound in all streams."""
    count = min(stream.count - stream.row for stream in streams)
    if count <= 0:
        return 0
    first = streams[0]
    differ = np.zeros(count, np.bool_)
    for stream in streams:
        rows = slice(stream.row, stream.row + count)
        for name in FINGERPRINT:
            mine = first.rows[name][first.row : first.row + count]
            differ |= stream.rows[name][rows] != mine
        differ |= stream.rows["damage"][rows] != np.asarray(None, object)
        differ |= np.equal(stream.rows["is_sound"][rows], False)
        bases, lasts = stream.rows["base_offset"][rows], stream.rows["last_offset"][rows]
        differ |= lasts < bases
        differ[1:] |= bases[1:] <= lasts[:-1]
    differs = np.flatnonzero(differ)
    return int(differs[0]) if differs.size else count
