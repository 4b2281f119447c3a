"""The zeroes behind the last batch of a segment that is being written, or was when the power failed.

    [0-4][5-9][10-12] 0 0 0 0 0 0 0     `preallocate`: as long as segment.bytes from its first day

Rule: only the last segment of a log has some, and only until its log is closed: then it is cut to
its batches, and the directory of all logs gets its `.kafka_cleanshutdown`. Zeroes anywhere else
are damage. (FileRecords.open and FileRecords.trim in Kafka, whose own tools take none of this
into account: DumpLogSegments ends with an exception at the first zero.)
"""

import os
import re
from typing import Final

from storage.checkpoint import CLEAN_SHUTDOWN
from storage.filesystem import File, FileSystem

LOG_FILE: Final = re.compile(r"([0-9]{20})\.log")

CHUNK_SIZE: Final = 1024 * 1024
"""How much of a log is read at once."""


def is_spare_room(file_system: FileSystem, file: File, position: int) -> bool:
    """Return whether what `file` holds from byte `position` on is room for batches to come."""
    return (
        position < file.size()
        and _may_be_active(file_system, os.path.abspath(file.path))
        and _holds_only_zeroes(file, position)
    )


def _may_be_active(file_system: FileSystem, path: str) -> bool:
    directory, name = os.path.split(path)
    names = filter(LOG_FILE.fullmatch, file_system.list_directory(directory))
    marker = os.path.join(os.path.dirname(directory), CLEAN_SHUTDOWN)
    return name == max(names, default=None) and not file_system.exists(marker)


def _holds_only_zeroes(file: File, position: int) -> bool:
    while data := file.read(position, CHUNK_SIZE):
        if data.count(0) != len(data):
            return False
        position += len(data)
    return True
