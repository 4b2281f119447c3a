"""The entries that kafka-dump-log shows, as values: `dump` finds them, `text`, `json_lines` and `arrow` print.

    .log .checkpoint      batches, and their records        log_file
    .index .timeindex     entries, checked against the log  index_files
    .snapshot .txnindex   producers, aborted transactions   small_files
    *-checkpoint, partition.metadata, meta.properties       small_files

Rule 1: a generator in bounded memory that writes nothing, not even a missing index.

Rule 2: damage is an entry, with its file and byte, and the dump goes on: with the next sound
batch, the next entry, the next file. A file that cannot be read at all is damage as well.

(Kafka: DumpLogSegments.)
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from storage.batch.batch_stream import partitions_in
from storage.errors import StorageError
from storage.filesystem import FileSystem
from storage.tools.dump.entries import (
    Damage,
    DumpOptions,
    Entry,
    FileStarted,
    UnknownFile,
    is_damage,
)
from storage.tools.dump.index_files import dump_offset_index, dump_time_index
from storage.tools.dump.log_file import dump_log
from storage.tools.dump.small_files import SMALL_FILES

__all__ = ["DumpOptions", "dump", "files_in", "is_damage"]

_SEGMENT_FILE: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|snapshot|txnindex)")
_METADATA_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def dump(
    file_system: FileSystem, paths: Iterable[str], options: DumpOptions | None = None
) -> Iterator[Entry]:
    """Everything in the files at `paths`, and in those of a directory among them."""
    options = options or DumpOptions()
    for path in paths:
        for file in files_in(file_system, path):
            try:
                yield from _dump_file(file_system, file, options)
            except (StorageError, OSError) as error:
                yield Damage(file, 0, _reason(file, error))


def files_in(file_system: FileSystem, path: str) -> list[str]:
    """`path` itself; of a directory the files that a dump knows, its partitions' included."""
    if not file_system.is_directory(path):
        return [path]
    names = file_system.list_directory(path)
    found = [os.path.join(path, name) for name in names if _is_known(name)]
    for directory in sorted(partitions_in(file_system, path).values()):
        found += files_in(file_system, directory)
    return found


def _is_known(name: str) -> bool:
    return bool(
        name in SMALL_FILES or _SEGMENT_FILE.fullmatch(name) or _METADATA_SNAPSHOT.fullmatch(name)
    )


def _dump_file(file_system: FileSystem, path: str, options: DumpOptions) -> Iterator[Entry]:
    name = os.path.basename(path)
    if small := SMALL_FILES.get(name):
        yield FileStarted(path)
        yield from small(file_system, path)
    elif snapshot := _METADATA_SNAPSHOT.fullmatch(name):
        yield FileStarted(path, int(snapshot[1]), int(snapshot[2]))
        yield from dump_log(file_system, path, options)
    elif segment := _SEGMENT_FILE.fullmatch(name):
        base_offset = int(segment[1])
        yield FileStarted(path, base_offset)
        match segment[2]:
            case "log":
                yield from dump_log(file_system, path, options)
            case "index":
                yield from dump_offset_index(file_system, path, base_offset, options)
            case "timeindex":
                yield from dump_time_index(file_system, path, base_offset, options)
            case suffix:
                yield from SMALL_FILES[f".{suffix}"](file_system, path)
    else:
        yield FileStarted(path)
        if file_system.exists(path):
            yield UnknownFile(path)
        else:
            yield Damage(path, 0, os.strerror(errno.ENOENT))


def _reason(path: str, error: Exception) -> str:
    """Return what is wrong, without the path that storage's errors begin with."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).removeprefix(f"{path}: ")
