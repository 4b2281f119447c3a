"""The event journal: what happened on a broker, kept as msgpack.

    events.journal.00000001   full, and never written again
    events.journal.00000002
    events.journal            the one that is written

    [name, version, at_ms, broker, {field: value}]   a record, each in a frame (`frames.py`)

Rule 1: a record is read by its name and version. One that this program does not know, from
a newer one, is skipped and counted, never guessed at.

Rule 2: a journal is appended to for as long as its files are there, by one incarnation of a
broker after the other. What a crash left of a last record is cut off first. A file that is
full is put aside under a number, so that many can read one journal; nothing deletes it.

Rule 3: it observes. A disk that refuses the journal costs the journal, not the broker; whoever
opened it is told, once, that it ends there.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, get_origin

import attrs
import msgpack

from replication.events import EVENTS, Event, EventSink
from replication.net.seams import NodeClock
from replication.observe.frames import FILE_HEADER, frame, frames, is_framed
from storage.filesystem import File, FileSystem
from storage.types import Buffer, TopicPartition

# As much as one task of a report reads.
FILE_BYTES: Final = 64 * 1024 * 1024
# Journals that were begun before there were several files may be longer.
MOST_BYTES: Final = 4 * FILE_BYTES

_EVENT_BY_NAME = {event.name: event for event in EVENTS}


@attrs.frozen
class JournalEntry:
    """An event, when it was reported (wall clock) and by which broker."""

    at_ms: int
    broker: int
    event: Event


@attrs.frozen
class Journal:
    """What a journal holds that this program can read, and what it could not."""

    entries: tuple[JournalEntry, ...]
    skipped: Counter[str]  # by name and version, such as "leader_elected v9"
    torn_bytes: int


def encode_entry(event: Event, *, at_ms: int, broker: int) -> bytes:
    fields = attrs.asdict(event, recurse=False)
    packed: bytes = msgpack.packb([event.name, event.version, at_ms, broker, fields])
    return packed


def decode_entry(packed: bytes) -> JournalEntry | None:
    """What `encode_entry` made; None of an event that this program does not know."""
    name, version, at_ms, broker, fields = msgpack.unpackb(packed, strict_map_key=False)
    event = _restore(name, version, fields)
    return None if event is None else JournalEntry(at_ms, broker, event)


def journal_files(file_system: FileSystem, path: str) -> list[str]:
    """Every file of the journal at `path`, the oldest first."""
    directory, name = os.path.split(path)
    numbered = re.compile(re.escape(name) + r"\.[0-9]{8}")
    there = file_system.list_directory(directory or ".")
    names = sorted(each for each in there if numbered.fullmatch(each))
    names += [name] if name in there else []
    return [f"{path.removesuffix(name)}{each}" for each in names]


def read_whole(file: File) -> bytes:
    """Return the bytes of one journal file; raise OSError where it is longer than one can be."""
    size = file.size()
    if size > MOST_BYTES:
        raise OSError(
            errno.EFBIG, f"{size} bytes, where a journal has {MOST_BYTES} at most", file.path
        )
    return file.read(0, size)


def read_journal(data: Buffer) -> Journal:
    """Every entry of one file's bytes, in order."""
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
    """Each whole record and where it ends; stops at what is torn or no record."""
    if not is_framed(data):
        yield from _unframed_records(data)
        return
    for packed, end in frames(data):
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
    """As journals were written before there were frames."""
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
    """Lists off msgpack, as what they were."""
    if kind is TopicPartition:
        return TopicPartition(*value)
    return tuple(value) if get_origin(kind) is tuple else value


def _ignore(_: Exception) -> None: ...


@attrs.define
class JournalWriter:
    """Appends events, each as it comes.

    Once the disk has refused one, none is written any more, also where it would take them again:
    a gap is worse than an end. They are counted in `lost`; the journal goes on with the next
    writer that is opened, so with the next start of the process.
    """

    _file_system: FileSystem
    _path: str
    _file_bytes: int
    _file: File
    _end: int
    _on_refusal: Callable[[Exception], None]
    lost: int = attrs.field(default=0, init=False)  # events that the disk refused

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        path: str,
        *,
        file_bytes: int = FILE_BYTES,
        on_refusal: Callable[[Exception], None] = _ignore,
    ) -> "JournalWriter":
        """Go on with the journal at `path`, or begin it; a file is full at `file_bytes`."""
        file = file_system.open(path, create=True)
        held = read_whole(file)
        end = max((end for _, end in read_records(held)), default=0)
        writer = cls(file_system, path, file_bytes, file, end, on_refusal)
        if end and not is_framed(held):
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
        """Give the file, which is full, the next number, and begin another."""
        self._file.truncate(self._end)
        self._file.close()
        numbered = journal_files(self._file_system, self._path)[:-1]
        number = int(numbered[-1].rpartition(".")[2]) + 1 if numbered else 1
        self._file_system.rename(self._path, f"{self._path}.{number:08d}")
        self._file = self._file_system.open(self._path, create=True)
        self._end = self._begin()

    def _begin(self) -> int:
        """Say what kind of file it is; where its first record goes."""
        self._file.write(0, FILE_HEADER)
        return len(FILE_HEADER)

    def sink(self, *, broker: int, clock: NodeClock) -> EventSink:
        """A sink that writes here what `broker` reports."""

        def write(event: Event) -> None:
            self.write(event, at_ms=clock.wall_ms(), broker=broker)

        return write

    def close(self) -> None:
        self._file.close()
