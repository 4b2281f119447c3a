"""Putting a cleaned segment in the place of those that it was made from, through any crash.

                    0.log          9.log       0.log.cleaned
    prepare         0.log          9.log          0.log.swap
    set aside       0.log.deleted  9.log.deleted  0.log.swap
    finish                                        0.log            then the directory is synced

    a crash before `prepare` is on the disk    the old segments
    after it                                   the new one: loading goes on from `.swap`

Rule 1: a group's files are synced before any of them is renamed, so a `.swap` is whole. As long
as one of its files is still `.cleaned` none of them counts: loading removes them all.

Rule 2: the `.log` is renamed first. While it is a `.swap` loading removes whatever stands under
the names that it covers, and that must not be its own index.

Rule 3: the names in one directory reach the disk in the order in which they were changed, as a
journaling file system promises. So a crash leaves some first part of the changes, and loading goes
on from there. `finish` syncs them: what is checkpointed after it as compacted does not come back.
Loading syncs nothing, as another crash has it do the same again. It would find another end of the
new segment only after a cut, which drops the segments behind it and syncs that first.

(LocalLog.replaceSegments in Kafka, which syncs once too, and LogLoader.load.)
"""

import os
from typing import Final

from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.filesystem import FileSystem
from storage.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
)
from storage.types import NO_OFFSET, Offset

_NOWHERE: Final = 2**63


def prepare(file_system: FileSystem, directory: str, base_offset: Offset) -> None:
    """Make the new segment count once this is on the disk: the old ones may then be set aside."""
    _rename(file_system, directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)


def finish(file_system: FileSystem, directory: str, base_offset: Offset) -> None:
    """Give the new segment its name, once the old ones have been set aside."""
    _rename(file_system, directory, base_offset, SWAP_SUFFIX, "")
    file_system.sync_directory(directory)


def discard(file_system: FileSystem, directory: str, base_offset: Offset) -> None:
    """Remove what a round has written of a segment and will not use."""
    for suffix in SEGMENT_SUFFIXES:
        name = file_name(base_offset, suffix) + CLEANED_SUFFIX
        file_system.remove(os.path.join(directory, name))


def finish_interrupted(file_system: FileSystem, directory: str) -> None:
    """Go back to the old segments, or on to the new one, from where a crash has stopped a swap."""
    names = file_system.list_directory(directory)
    swapped = [name for name in names if name.endswith(SWAP_SUFFIX)]
    incomplete = [_base_of(name) for name in names if _is_being_written(name)]
    # With a split in mind, which writes several: a `.swap` from there on may lack its neighbour
    # (KAFKA-6264).
    invalid = [name for name in swapped if _base_of(name) >= min(incomplete, default=_NOWHERE)]
    _remove(file_system, directory, invalid)
    going = [name for name in names if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX))]
    _remove(file_system, directory, going)
    valid = [name for name in swapped if name not in invalid]
    if valid:
        _remove(file_system, directory, _covered(file_system, directory, names, valid))
        # The `.log` first (rule 2).
        for name in sorted(valid, key=lambda name: (_base_of(name), not _is_log(name))):
            path = os.path.join(directory, name)
            file_system.rename(path, path.removesuffix(SWAP_SUFFIX))


def _covered(
    file_system: FileSystem, directory: str, names: list[str], swapped: list[str]
) -> list[str]:
    """Return the files of the segments that those in `swapped` were made from."""
    logs = [name for name in swapped if _is_log(name)]
    if not logs:
        return []
    low = min(map(_base_of, logs))
    high = max(_end_of(file_system, os.path.join(directory, name)) for name in logs)
    return [
        name
        for name in names
        if os.path.splitext(name)[1] in SEGMENT_SUFFIXES and low <= _base_of(name) < high
    ]


def _end_of(file_system: FileSystem, path: str) -> Offset:
    """Return the offset after the last batch of a `.log`, and no less than one after its base."""
    end = _base_of(os.path.basename(path)) + 1
    file = file_system.open_for_reading(path)
    try:
        position, size = 0, file.size()
        while position + HEADER_SIZE <= size:
            header = read_header(file.read(position, HEADER_SIZE))
            end, position = max(end, header.next_offset), position + header.size
    finally:
        file.close()
    return end


def _is_being_written(name: str) -> bool:
    return name.endswith(CLEANED_SUFFIX) and _base_of(name) != NO_OFFSET


def _is_log(name: str) -> bool:
    return name.removesuffix(SWAP_SUFFIX).endswith(LOG_SUFFIX)


def _base_of(name: str) -> Offset:
    """Return the base offset in a file's name; -1 for a file that is not named as a segment's are."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else NO_OFFSET


def _remove(file_system: FileSystem, directory: str, names: list[str]) -> None:
    for name in names:
        file_system.remove(os.path.join(directory, name))


def _rename(
    file_system: FileSystem, directory: str, base_offset: Offset, old: str, new: str
) -> None:
    for suffix in SEGMENT_SUFFIXES:
        path = os.path.join(directory, file_name(base_offset, suffix))
        if file_system.exists(path + old):
            file_system.rename(path + old, path + new)
