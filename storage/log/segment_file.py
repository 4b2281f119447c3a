"""One `.log` file that is opened by its path, for notebooks and for `storage.tools.dump`.

    with storage.open_segment("t-0/00000000000000000000.log") as segment:
        for batch in segment.batches(): ...      headers first; the records when asked for
        for record in segment.records(): ...
        table = segment.to_arrow()               with the `arrow` extra

Rule 1: nothing is written, no index is needed, and memory holds one batch or one chunk.

Rule 2: an incomplete batch at the end of the file is the end of the log: a crash leaves one. So is
the spare room of a log that was not closed (`storage.batch.spare_room`). Any other bytes that are
no batch are a DamagedLogError with their place. `find_batch` finds the next batch after damage; it
does not trust a header alone, because a value may look like one: the CRC-32C of the whole batch
must match.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import attrs
import crc32c

from storage.attributes import define, frozen
from storage.batch.batch_stream import DamagedLogError
from storage.batch.compression import Codec
from storage.batch.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
    walk,
)
from storage.batch.records import Record, decode_batch
from storage.batch.spare_room import CHUNK_SIZE, LOG_FILE, is_spare_room
from storage.errors import CorruptRecordError, InvalidRecordError
from storage.filesystem import File, FileSystem, OsFileSystem
from storage.types import Offset

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

_MAGIC: Final = b"\x02"
_KNOWN_ATTRIBUTES: Final = (
    CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
)
# A file made to mislead could have every byte begin a batch as long as the rest of it.
_SEARCH_COST_MOST: Final = 1024 * 1024 * 1024


@frozen
class StoredBatch:
    """A batch where it stands: all of its bytes, from byte `position` of its file."""

    position: int
    header: BatchHeader
    data: memoryview = attrs.field(repr=False)

    @cached_property
    def is_valid(self) -> bool:
        """Whether its CRC-32C matches."""
        return check_crc(self.data)

    def records(self) -> list[Record]:
        """Return its records. Raise CorruptRecordError where the CRC-32C does not match or the records do
        not parse, and InvalidRecordError where no codec has the batch's number.
        """
        self.check()
        return decode_batch(self.data)

    def check(self) -> None:
        """Raise CorruptRecordError where its CRC-32C does not match."""
        if not self.is_valid:
            raise CorruptRecordError("its CRC-32C does not match")


@define(eq=False)
class SegmentFile:
    """A `.log` file that is open for reading."""

    file: File
    _file_system: FileSystem

    @property
    def path(self) -> str:
        """The path that it was opened at."""
        return self.file.path

    @property
    def base_offset(self) -> Offset | None:
        """The base offset that the file's name says; None where it is not named as a segment."""
        found = LOG_FILE.fullmatch(os.path.basename(self.path))
        return int(found[1]) if found else None

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """Yield the whole batches from byte `position` on, whether or not their CRC matches."""
        return self._up_to_spare_room(read_batches(self.file, position))

    def records(self, *, control_batches: bool = False) -> Iterator[Record]:
        """Yield every record, checked; the records of control batches only with `control_batches`."""
        for batch in self.batches():
            try:
                batch.check()  # also what says that it is a control batch
                if control_batches or not batch.header.is_control:
                    yield from batch.records()
            except (CorruptRecordError, InvalidRecordError) as error:
                raise DamagedLogError(
                    str(error), path=self.path, position=batch.position
                ) from error

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, control_batches: bool = False
    ) -> "pa.Table":
        """Return all of it as a table, a row for each record; `storage.batch.columns.columnar.read` yields pieces.

        Columns: `offset`, `timestamp` (ms, UTC), `timestamp_type` (0 created, 1 appended), `key`,
        `value`, `headers` (a list of key and value), `leader_epoch`, `producer_id` (-1: none).

        Args:
            columns: some of `storage.batch.columns.columnar.COLUMNS`; by default all of them.
            control_batches: whether the markers of transactions are rows too.

        Raises:
            DamagedLogError: bytes that are no batch, or whose CRC-32C is wrong, with their place.
        """
        import pyarrow as pa  # noqa: PLC0415 - importing it takes a tenth of a second

        from storage.batch.columns import columnar  # noqa: PLC0415

        wanted = columnar.COLUMNS if columns is None else columns
        pieces = columnar.read(self.file, columns=wanted, control_batches=control_batches)
        schema = pa.schema([columnar.SCHEMA.field(name) for name in wanted])
        return pa.Table.from_batches(self._up_to_spare_room(pieces), schema=schema)

    def _up_to_spare_room(self, found: Iterator[_T]) -> Iterator[_T]:
        try:
            yield from found
        except DamagedLogError as error:
            if not is_spare_room(self._file_system, self.file, error.position):
                raise

    def close(self) -> None:
        """Close the file; the end of a `with` does it, too."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_segment(
    path: str | os.PathLike[str], file_system: FileSystem | None = None
) -> SegmentFile:
    """Open the `.log` file at `path` for reading. Raise FileNotFoundError where it is missing.

    Nothing is written, locked or mapped, and no index is needed, so a broker may use the file
    meanwhile.
    """
    files = OsFileSystem() if file_system is None else file_system
    return SegmentFile(files.open_for_reading(os.fspath(path)), files)


def read_batches(
    file: File, position: int = 0, end: int | None = None, *, chunk_size: int = CHUNK_SIZE
) -> Iterator[StoredBatch]:
    """Yield the whole batches between bytes `position` and `end`. Raise DamagedLogError where none
    begins.
    """
    for chunk in read_chunks(file, position, end, chunk_size=chunk_size):
        view = memoryview(chunk.data)
        for at, header in chunk.batches:
            yield StoredBatch(chunk.position + at, header, view[at : at + header.size])


class BatchChunk(NamedTuple):
    """Whole batches at byte `position` of a file: where each begins in `data`, and its header."""

    position: int
    data: bytes
    batches: list[tuple[int, BatchHeader]]


def read_chunks(
    file: File, position: int = 0, end: int | None = None, *, chunk_size: int = CHUNK_SIZE
) -> Iterator[BatchChunk]:
    """Yield what `read_batches` does, as many batches together as `chunk_size` bytes hold, and at
    least one.
    """
    end = file.size() if end is None else end
    size = chunk_size = max(chunk_size, HEADER_SIZE)
    while end - position >= HEADER_SIZE:
        data = file.read(position, size)
        if len(data) < min(size, end - position):
            raise OSError(f"{file.path} became shorter while it was read")
        found = []
        try:
            # One by one, as there may be damage behind those that are whole.
            for each in walk(memoryview(data)[: end - position]):
                found.append(each)  # noqa: PERF402
        except CorruptRecordError:
            if not found:
                raise _damage(file, position, data) from None
        if found:
            yield BatchChunk(position, data, found)
            at, header = found[-1]
            position, size = position + at + header.size, chunk_size
        elif (size := read_header(data).size) > end - position:
            return


def stands_at(file: File, position: int) -> bool:
    """Return whether a batch's header stands at byte `position`, or the file ends right there."""
    if position == file.size():
        return True
    try:
        read_header(file.read(position, HEADER_SIZE))
    except CorruptRecordError:
        return False
    return True


def find_batch(file: File, position: int, end: int, *, least_offset: Offset) -> int | None:
    """Return where the first sound batch from byte `position` on begins, of offsets from
    `least_offset` on; None where there is none.
    """
    cost = 0
    while end - position >= HEADER_SIZE:
        window = file.read(position, CHUNK_SIZE + HEADER_SIZE)
        at = window.find(_MAGIC, MAGIC_AT)
        while at >= 0 and at - MAGIC_AT + HEADER_SIZE <= len(window):
            start = position + at - MAGIC_AT
            header = BatchHeader._make(HEADER.unpack_from(window, at - MAGIC_AT))
            if _is_plausible(header, least_offset, end - start):
                cost += header.size
                if cost > _SEARCH_COST_MOST:
                    return None
                if _crc_of(file, start, header.size) == header.crc:
                    return start
            at = window.find(_MAGIC, at + 1)
        if len(window) < CHUNK_SIZE + HEADER_SIZE:
            return None
        position += len(window) - HEADER_SIZE + 1
    return None


def _is_plausible(header: BatchHeader, least_offset: Offset, room: int) -> bool:
    return (
        HEADER_SIZE <= header.size <= room
        and least_offset <= header.base_offset
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and not header.attributes & ~_KNOWN_ATTRIBUTES
        and header.attributes & CODEC_MASK <= max(Codec)
    )


def _crc_of(file: File, position: int, size: int) -> int:
    """Return the CRC-32C that the batch of `size` bytes at `position` ought to carry."""
    crc, at, end = 0, position + CRC_COVERS_FROM, position + size
    while at < end:
        data = file.read(at, min(CHUNK_SIZE, end - at))
        if not data:
            break
        crc = crc32c.crc32c(data, crc)
        at += len(data)
    return crc


def _damage(file: File, position: int, data: bytes) -> DamagedLogError:
    fields = BatchHeader._make(HEADER.unpack_from(data))
    reason = f"no batch begins here (it would have length {fields.length}, magic {fields.magic})"
    return DamagedLogError(reason, path=file.path, position=position)
