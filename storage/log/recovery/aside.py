"""Copies of trusted bytes, which are made before these are cut.

    00000000000000000100.log              cut at byte 4096
    corrupt.00000000000000000100.log.4096     the bytes from there on, for a person to look at

The name of such a copy has the name of the file and the position in it; a number follows if the
name exists already. Neither understudy nor Apache Kafka opens it, because the name does not end
like a segment's and does not begin with an offset. It is deleted with the partition's directory, or
by hand.
"""

import os

from storage.batch.spare_room import CHUNK_SIZE
from storage.filesystem import FileSystem
from storage.log.segment import LOG_SUFFIX, Segment

PREFIX = "corrupt."


def keep_tail(segment: Segment, position: int) -> str:
    """Copy the bytes from `position` on; the copy is durable when this returns."""
    source = segment.path(LOG_SUFFIX)
    target = _free_name(segment.file_system, source, f".{position}")
    copy = segment.file_system.open(f"{target}.tmp", create=True)
    try:
        copy.truncate(0)
        for start in range(position, segment.size, CHUNK_SIZE):
            wanted = min(CHUNK_SIZE, segment.size - start)
            chunk = segment.pins.file.read(start, wanted)
            if chunk.strip(b"\0"):  # a hole stays one, however large it says it is
                copy.write(start - position, chunk)
        copy.truncate(segment.size - position)
        copy.sync()
    finally:
        copy.close()
    segment.file_system.rename(f"{target}.tmp", target)
    segment.file_system.sync_directory(segment.directory)
    return target


def keep_segment(segment: Segment) -> str:
    """Rename its `.log`; the caller removes its indexes and syncs the directory."""
    source = segment.path(LOG_SUFFIX)
    target = _free_name(segment.file_system, source, ".0")
    segment.file_system.rename(source, target)
    return target


def keep_file(file_system: FileSystem, path: str) -> str:
    """Rename a small file that does not parse out of the way.

    Nothing is synced: until a new file of that name is, a crash may bring the old one back, and it
    is put aside again.
    """
    target = _free_name(file_system, path, "")
    file_system.rename(path, target)
    return target


def _free_name(file_system: FileSystem, path: str, suffix: str) -> str:
    directory, name = os.path.split(path)
    target = first = os.path.join(directory, f"{PREFIX}{name}{suffix}")
    number = 0
    while file_system.exists(target):
        number += 1
        target = f"{first}-{number}"
    return target
