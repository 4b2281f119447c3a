"""A flush in three steps: what is decided, what is done, and what is believed afterwards.

    plan      on the loop: which files hold what is not on the disk yet
    sync      anywhere: fsync, the slow part, touching nothing but files
    commit    on the loop: move the recovery point, unless a truncation came between

(UnifiedLog.flush in Kafka, which holds no lock while it syncs for the same reason: KAFKA-15046.)
"""

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from storage.attributes import frozen
from storage.filesystem import FileSystem
from storage.log.file_region import FileRegion
from storage.types import Offset


class FlushPlan(NamedTuple):
    """`sync` may run anywhere; `up_to` is what the recovery point may then be."""

    sync: Callable[[], None]
    up_to: Offset
    truncations: int
    name_changes: int


@frozen(kw_only=True)
class Syncing:
    """A flush on its way. The regions keep the files open until it is dropped."""

    file_system: FileSystem
    directory: str | None
    regions: list[FileRegion]
    paths: list[str]

    def __call__(self) -> None:
        for region in self.regions:
            region.file.sync()
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):  # it was truncated away
                sync_path(self.file_system, path)
        if self.directory is not None:
            with contextlib.suppress(FileNotFoundError):
                self.file_system.sync_directory(self.directory)
                self.file_system.sync_directory(os.path.dirname(self.directory) or ".")


def sync_path(file_system: FileSystem, path: str) -> None:
    """Sync a closed file."""
    file = file_system.open(path)
    try:
        file.sync()
    finally:
        file.close()


def nothing_to_sync() -> None:
    """Do nothing: nothing is unsynced."""
