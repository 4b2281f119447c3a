r"""The event journal: what happened on a broker, kept as msgpack.

    events.journal.00000001   full, never written again, and deleted in the end
    events.journal.00000002
    events.journal            the current file

    "\xc1UJ1" [length u32 | CRC-32C u32 | record] [length | CRC-32C | record] ...    a file
    [name, version, at_ms, broker, {field: value}]                                   a record

Rule 1: a record is read by its name and version. A record of a newer program, which this one does
not know, is skipped and counted; its meaning is never guessed.

Rule 2: every incarnation of a broker appends to the same journal, after it has cut off what a crash
left of the last record. A full file is renamed to a number, so that several processes can read one
journal. Of the full files the last `FULL_FILES` are kept.

Rule 3: a journal must not harm the broker. If the disk refuses a write, the journal ends there and
its opener is notified once.

Rule 4: a file begins with `FILE_HEADER`, whose first byte begins nothing in msgpack. It separates
framed files from older ones, which hold only records.

Rule 5: a reader stops at the first frame that is incomplete or damaged. In the last file of a
journal a crash left it; in another file the rest of that file is lost.
"""

import errno
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, get_origin

import attrs
import crc32c
import msgpack

from replication.events import EVENTS, Event, EventSink
from replication.net.seams import NodeClock
from storage.attributes import define, frozen
from storage.filesystem import File, FileSystem
from storage.types import Buffer, TopicPartition

FILE_HEADER: Final = b"\xc1UJ1"
# One task of a report reads one file.
FILE_BYTES: Final = 64 * 1024 * 1024
FULL_FILES: Final = 15
"""With the current one a journal has at most 1 GiB."""
# A journal from the time of single files may be longer.
MOST_BYTES: Final = 4 * FILE_BYTES

_FRAME: Final = struct.Struct(">II")

_EVENT_BY_NAME = {event.name: event for event in EVENTS}


@frozen
class JournalEntry:
    """An event, the wall-clock time at which it was reported, and the broker that reported it."""

    at_ms: int
    broker: int
    event: Event


@frozen
class Journal:
    """The entries of a journal file that this program can read, and a count of the others."""

    entries: tuple[JournalEntry, ...]
    skipped: Counter[str]
    """The number of unknown records by name and version, such as "leader_elected v9"."""
    torn_bytes: int
    """The number of bytes after the last whole record."""


def encode_entry(event: Event, *, at_ms: int, broker: int) -> bytes:
    fields = attrs.asdict(event, recurse=False)
    packed: bytes = msgpack.packb([event.name, event.version, at_ms, broker, fields])
    return packed


def decode_entry(packed: bytes) -> JournalEntry | None:
    """Return the entry that `encode_entry` encoded; None if its event is unknown."""
    name, version, at_ms, broker, fields = msgpack.unpackb(packed, strict_map_key=False)
    event = _restore(name, version, fields)
    return None if event is None else JournalEntry(at_ms, broker, event)


def journal_files(file_system: FileSystem, path: str) -> list[str]:
    """Return every file of the journal at `path`, the oldest first."""
    directory, name = os.path.split(path)
    numbered = re.compile(re.escape(name) + r"\.[0-9]{8}")
    there = file_system.list_directory(directory or ".")
    names = sorted(each for each in there if numbered.fullmatch(each))
    names += [name] if name in there else []
    return [f"{path.removesuffix(name)}{each}" for each in names]


def read_whole(file: File) -> bytes:
    """Return the bytes of one journal file; raise OSError if it is longer than a journal can be."""
    size = file.size()
    if size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"{size} bytes; a journal has at most {MOST_BYTES}", file.path)
    return file.read(0, size)


def read_journal(data: Buffer) -> Journal:
    """Return every entry of one file's bytes, in order."""
    entries: list[JournalEntry] = []
    skipped: Counter[str] = Counter()
    whole = 0
    for record, end in read_records(data):
        whole = end
        name, version, at_ms, broker, fields = record
        event = _restore(name, version, fields)
        if event is None:
            skipped[f"{name} v{version}"] += 1
        else:
            entries.append(JournalEntry(at_ms, broker, event))
    return Journal(tuple(entries), skipped, len(data) - whole)


def read_records(data: Buffer) -> Iterator[tuple[list[Any], int]]:
    """Yield each whole record and its end; stop at the first that is torn or not a record."""
    if not _is_framed(data):
        yield from _unframed_records(data)
        return
    for packed, end in _frames(data):
        try:
            record = msgpack.unpackb(packed, strict_map_key=False)
        except ValueError:
            return
        match record:
            case [str(), int(), int(), int(), dict()]:
                yield record, end
            case _:
                return


def _unframed_records(data: Buffer) -> Iterator[tuple[list[Any], int]]:
    """Yield the records of a journal from the time before frames."""
    # The buffer's size also bounds what a garbled length may allocate.
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(1, len(data)))
    unpacker.feed(data)
    while True:
        try:
            record = unpacker.unpack()
        except (msgpack.OutOfData, ValueError):
            return
        match record:
            case [str(), int(), int(), int(), dict()]:
                yield record, unpacker.tell()
            case _:
                return


def _restore(name: str, version: int, fields: dict[str, Any]) -> Event | None:
    kind = _EVENT_BY_NAME.get(name)
    if kind is None or version > kind.version:
        return None
    known = {field.name: field.type for field in attrs.fields(kind)}
    if not fields.keys() <= known.keys():
        return None
    try:
        return kind(**{key: _as(known[key], value) for key, value in fields.items()})
    except TypeError:  # a field without a default is missing
        return None


def _as(kind: Any, value: Any) -> Any:
    """Convert a list that msgpack has decoded to the type of its field."""
    if kind is TopicPartition:
        return TopicPartition(*value)
    return tuple(value) if get_origin(kind) is tuple else value


def frame(record: Buffer) -> bytes:
    """Return `record` with its length and checksum before it."""
    return b"".join((_FRAME.pack(len(record), crc32c.crc32c(record)), record))


def _is_framed(data: Buffer) -> bool:
    return bytes(memoryview(data)[: len(FILE_HEADER)]) == FILE_HEADER


def _frames(data: Buffer) -> Iterator[tuple[memoryview, int]]:
    """Yield each whole and undamaged record of a file, and its end."""
    view, position = memoryview(data), len(FILE_HEADER)
    while len(view) - position >= _FRAME.size:
        length, crc = _FRAME.unpack_from(view, position)
        record = view[position + _FRAME.size : position + _FRAME.size + length]
        if len(record) < length or crc32c.crc32c(record) != crc:
            return
        position += _FRAME.size + length
        yield record, position


def _ignore(_: Exception) -> None: ...


@define
class JournalWriter:
    """Appends events, each as it comes.

    After the disk has refused an event, no more is written, even if the disk recovers: a gap is
    worse than an end. `lost` counts the events that are missing. The next writer, which is opened
    at the next start of the process, continues the journal.
    """

    _file_system: FileSystem
    _path: str
    _file_bytes: int
    _file: File
    _end: int
    _on_refusal: Callable[[Exception], None]
    lost: int = attrs.field(default=0, init=False)

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        path: str,
        *,
        file_bytes: int = FILE_BYTES,
        on_refusal: Callable[[Exception], None] = _ignore,
    ) -> "JournalWriter":
        """Continue the journal at `path`, or begin it; a file is full at `file_bytes`."""
        file = file_system.open(path, create=True)
        held = read_whole(file)
        end = max((end for _, end in read_records(held)), default=0)
        writer = cls(file_system, path, file_bytes, file, end, on_refusal)
        if end and not _is_framed(held):
            writer._put_aside()
        else:
            writer._end = max(end, writer._begin())
            file.truncate(writer._end)
        return writer

    def write(self, event: Event, *, at_ms: int, broker: int) -> None:
        if self.lost:
            self.lost += 1
            return
        record = frame(encode_entry(event, at_ms=at_ms, broker=broker))
        try:
            if self._end + len(record) > self._file_bytes:
                self._put_aside()
            self._file.write(self._end, record)
        except (OSError, ValueError) as error:
            self.lost += 1
            self._on_refusal(error)
        else:
            self._end += len(record)

    def _put_aside(self) -> None:
        """Rename the full file to the next number, and begin another; delete those that are too old."""
        self._file.truncate(self._end)
        self._file.close()
        numbered = journal_files(self._file_system, self._path)[:-1]
        number = int(numbered[-1].rpartition(".")[2]) + 1 if numbered else 1
        self._file_system.rename(self._path, f"{self._path}.{number:08d}")
        for old in numbered[: max(0, len(numbered) + 1 - FULL_FILES)]:
            self._file_system.remove(old)
        self._file = self._file_system.open(self._path, create=True)
        self._end = self._begin()

    def _begin(self) -> int:
        """Write the header of a file; return the position of its first record."""
        self._file.write(0, FILE_HEADER)
        return len(FILE_HEADER)

    def sink(self, *, broker: int, clock: NodeClock) -> EventSink:
        """Return a sink that writes what `broker` reports to this journal."""

        def write(event: Event) -> None:
            self.write(event, at_ms=clock.wall_ms(), broker=broker)

        return write

    def close(self) -> None:
        self._file.close()
