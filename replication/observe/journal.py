"""The event journal: what happened on a broker, kept as msgpack.

    [name, version, at_ms, broker, {field: value}]   one after another, nothing between

Rule 1: a record is read by its name and version. One that this program does not know, from
a newer one, is skipped and counted, never guessed at.

Rule 2: a journal is appended to for as long as its file is there, by one incarnation of a
broker after the other. What a crash left of a last record is cut off first.

Rule 3: it observes. A disk that refuses the journal costs the journal, not the broker.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_origin

import attrs
import msgpack

from replication.events import EVENTS, Event, EventSink
from replication.net.seams import NodeClock
from storage.filesystem import File, FileSystem
from storage.types import Buffer, TopicPartition

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


def read_journal(data: Buffer) -> Journal:
    """Every entry of `data`, in order."""
    entries: list[JournalEntry] = []
    skipped: Counter[str] = Counter()
    whole = 0
    for record, end in _records(data):
        whole = end
        name, version, at_ms, broker, fields = record
        event = _restore(name, version, fields)
        if event is None:
            skipped[f"{name} v{version}"] += 1
        else:
            entries.append(JournalEntry(at_ms, broker, event))
    return Journal(tuple(entries), skipped, len(data) - whole)


def _records(data: Buffer) -> Iterator[tuple[list[Any], int]]:
    """Each whole record and where it ends; stops at what is torn or no record."""
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


@attrs.define
class JournalWriter:
    """Appends events to one file, each as it comes."""

    _file: File
    _end: int
    lost: int = attrs.field(default=0, init=False)  # events that the disk refused

    @classmethod
    def open(cls, file_system: FileSystem, path: str) -> "JournalWriter":
        """Go on with the journal at `path`, or begin it."""
        file = file_system.open(path, create=True)
        held = file.read(0, file.size())
        torn = read_journal(held).torn_bytes
        if torn:
            file.truncate(len(held) - torn)
        return cls(file, len(held) - torn)

    def write(self, event: Event, *, at_ms: int, broker: int) -> None:
        if self.lost:
            self.lost += 1  # a gap is worse than an end
            return
        record = encode_entry(event, at_ms=at_ms, broker=broker)
        try:
            self._file.write(self._end, record)
        except (OSError, ValueError):
            self.lost += 1
        else:
            self._end += len(record)

    def sink(self, *, broker: int, clock: NodeClock) -> EventSink:
        """A sink that writes here what `broker` reports."""

        def write(event: Event) -> None:
            self.write(event, at_ms=clock.wall_ms(), broker=broker)

        return write

    def close(self) -> None:
        self._file.close()
