"""Stretches of `.log` files, planned on the driver and read where the path can be reached.

    segment 0            segment 7105                  segment 14230
    [ . . . . . . . .]   [ . . . . . |. . . . . . ]    [ . . . . . . .
          └─ start: .index    └── cut at an entry of the .index      end ─┘

Rule 1: a live log is never mapped. A follower may be truncated under a reader, and access to a
map of bytes that are gone kills the process.

Rule 2: a damaged batch ends the read with its file, byte and offset; with `onCorruptBatch=skip`
the executor logs it and goes on with the next sound batch.

Rule 3: with `read_committed`, the `.txnindex` files beside the segments tell aborted transactions:
where each began and where its marker is.
"""

import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from pipeline.source.columns import SourceReadSettings
from pipeline.source.errors import CorruptBatchesError, DataLossError
from pipeline.source.filters import Narrowing
from pipeline.source.plan import OffsetRange
from pipeline.source.replica import Replica, corrupt
from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns import columnar
from storage.batch.record_batch import HEADER_SIZE, TRANSACTIONAL_BIT, read_header
from storage.batch.spare_room import LOG_FILE, is_spare_room
from storage.errors import CorruptRecordError
from storage.filesystem import File, FileSystem, OsFileSystem
from storage.log.index.transaction_index import TransactionIndex
from storage.log.segment_file import find_batch
from storage.types import NO_OFFSET, Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@attrs.frozen
class Piece:
    """Bytes `position` to `end` of one file: whole batches, except for a torn one at the end."""

    path: str
    position: int
    end: int


@attrs.frozen
class FileSlice:
    """Records from offset `start` to `end`, and the bytes that hold them."""

    tp: TopicPartition
    replica: str
    start: Offset
    end: Offset
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return sum(piece.end - piece.position for piece in self.pieces)

    def read(self, settings: SourceReadSettings) -> Iterator["pa.RecordBatch"]:
        """Yield the records in Spark's schema."""
        return _Reading(OsFileSystem(), self, settings).batches()


def slices_of(
    replica: Replica, wanted: OffsetRange, narrowing: Narrowing, target: int
) -> list[FileSlice]:
    """Cut the wanted range of a replica into slices of about `target` bytes."""
    start, end = narrowing.clamp(max(wanted.start, replica.start), wanted.end)
    if start >= end:
        return []
    found: list[FileSlice] = []
    waiting: list[Piece] = []

    def part() -> FileSlice:
        return FileSlice(wanted.tp, replica.name, start, end, tuple(waiting))

    for piece in _pieces(replica, start, end, narrowing, target):
        if waiting and part().size + piece.end - piece.position > target:
            found.append(part())
            waiting = []
        waiting.append(piece)
    return [*found, part()] if waiting else found


def _pieces(
    replica: Replica, start: Offset, end: Offset, narrowing: Narrowing, target: int
) -> Iterator[Piece]:
    segments = replica.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= end or (following and following.base_offset <= start):
            continue
        is_closed = following is not None and segment.time_index
        if is_closed and segment.time_index[-1][0] < (narrowing.from_timestamp or 0):
            continue
        begin = segment.position_of(start)
        # The batch of the first entry may begin below `end`; that of the second cannot.
        behind = [position for offset, position in segment.index if offset >= end]
        stop = behind[1] if len(behind) > 1 else segment.size
        places = [begin, *segment.splits(target, begin, stop), stop]
        for low, high in itertools.pairwise(places):
            yield Piece(segment.path, low, high)


@attrs.frozen
class _Reading:
    """The reading of one slice."""

    files: FileSystem
    part: FileSlice
    settings: SourceReadSettings

    def batches(self) -> Iterator["pa.RecordBatch"]:
        part, projection = self.part, self.settings.projection
        schema = projection.schema()
        aborted = aborted_in(self.files, part) if self.settings.options.read_committed else []
        keep = keep_of(aborted, self.settings.narrowing)
        for piece in part.pieces:
            try:
                file = self.files.open_for_reading(piece.path)
            except FileNotFoundError:
                self._lost(f"{part.tp}: {piece.path} is gone (retention)")
                continue
            try:
                for found in self._records(file, piece, keep):
                    yield projection.finish(found, schema, part.tp, part.replica)
            finally:
                file.close()

    def _records(
        self, file: File, piece: Piece, keep: columnar.Keep | None
    ) -> Iterator["pa.RecordBatch"]:
        position = piece.position
        if file.size() < piece.end:
            self._lost(f"{self.part.tp}: {piece.path} was cut while it was read")
        while position < piece.end:
            try:
                yield from columnar.read(
                    file,
                    position=position,
                    end=min(piece.end, file.size()),
                    columns=self.settings.projection.stored,
                    check_crcs=self.settings.options.check_crcs,
                    start_offset=self.part.start,
                    end_offset=self.part.end,
                    keep=keep,
                    reuse_buffer=True,
                )
            except DamagedLogError as error:
                if is_spare_room(self.files, file, error.position):
                    return
                position = self._behind(file, piece, error)
            else:
                return

    def _behind(self, file: File, piece: Piece, error: DamagedLogError) -> int:
        """Return the position of the next sound batch; raise CorruptBatchesError unless skipping."""
        said = corrupt(self.part.tp, self._damaged_offset(file, error.position), error)
        if not self.settings.options.skip_corrupt:
            raise CorruptBatchesError(said) from error
        found = find_batch(
            file, error.position + 1, piece.end, least_offset=_base_offset(piece.path)
        )
        log.warning("skipped: %s", said)
        return piece.end if found is None else found

    def _damaged_offset(self, file: File, position: int) -> Offset:
        """Return the first lost offset if a header can be read, or the start of the slice."""
        try:
            return read_header(file.read(position, HEADER_SIZE)).base_offset
        except CorruptRecordError:
            return self.part.start

    def _lost(self, said: str) -> None:
        if self.settings.options.fail_on_data_loss:
            raise DataLossError(f"{said}; failOnDataLoss=false reads on")
        log.warning("%s", said)


def _base_offset(path: str) -> Offset:
    found = LOG_FILE.fullmatch(os.path.basename(path))
    return int(found[1]) if found else 0


Aborted = Sequence[tuple[int, Offset, Offset]]
"""Producer id, offset of the first record, and offset of the marker, which is the last."""


def keep_of(aborted: Aborted, narrowing: Narrowing) -> columnar.Keep | None:
    """Return a choice of batches to decode by their headers, or None for all."""
    low = narrowing.from_timestamp
    if not aborted and low is None:
        return None

    def keep(headers: columnar.Headers) -> columnar.Mask:
        base_offsets = headers["base_offset"]
        wanted: columnar.Mask = np.ones(len(headers), np.bool_)
        transactional = (headers["attributes"] & TRANSACTIONAL_BIT) != 0
        for producer_id, first, last in aborted:
            theirs = transactional & (headers["producer_id"] == producer_id)
            wanted &= ~(theirs & (base_offsets >= first) & (base_offsets <= last))
        if low is not None:
            wanted &= headers["max_timestamp"] >= low
        return wanted

    return keep


def aborted_in(files: FileSystem, part: FileSlice) -> Aborted:
    """Return the aborted transactions in a slice, by the transaction indexes from its first segment on."""
    directory, first = os.path.split(part.pieces[0].path)
    found = []
    for name in files.list_directory(directory):
        if name.endswith(".txnindex") and name >= first.replace(".log", ".txnindex"):
            file = files.open_for_reading(os.path.join(directory, name))
            try:
                index = TransactionIndex(files, name, file, file.size(), NO_OFFSET)
                found += [each for each in index.entries() if each.overlaps(part.start, part.end)]
            finally:
                file.close()
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]
