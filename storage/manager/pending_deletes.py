"""The files and directories that were renamed and wait to be unlinked.

    segment `.deleted`, directory `-delete`      add ──> due_by(now) ──> unlink
                                                         its delay begins here

Rule 1: a segment waits for the `file.delete.delay.ms` of its topic, and a whole log for that of its
broker, as in Kafka (LocalLog.deleteSegmentFiles, LogManager.deleteLogs).

Rule 2: this module does not read a clock. A wait begins at the first call of `due_by` after `add`,
so a caller that calls it every second unlinks at most two seconds late, and never early.

Rule 3: `add` may be called in any thread, `due_by` and `forget` in one.
"""

import attrs

from storage.attributes import define
from storage.filesystem import FileSystem
from storage.types import TopicPartition


@define(eq=False, kw_only=True)
class DoomedFile:
    """A file, or a directory and all in it."""

    path: str
    log_dir: str
    delay_ms: int
    # Set for a whole log: whose it was, and why it goes.
    log: TopicPartition | None = None
    cause: str = ""
    due_ms: int | None = None

    def unlink(self, file_system: FileSystem) -> None:
        if file_system.is_directory(self.path):
            file_system.remove_tree(self.path)
        else:
            file_system.remove(self.path)


@define(eq=False)
class DoomedFiles:
    _waiting: dict[DoomedFile, None] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, doomed: DoomedFile) -> None:
        self._waiting[doomed] = None

    def due_by(self, now_ms: int) -> list[DoomedFile]:
        due = []
        for doomed in list(self._waiting):
            if doomed.due_ms is None:
                doomed.due_ms = now_ms + doomed.delay_ms
            if doomed.due_ms <= now_ms:
                due.append(doomed)
        return due

    def forget(self, gone: list[DoomedFile]) -> None:
        """Forget files that were unlinked, or that are on a lost disk."""
        for doomed in gone:
            del self._waiting[doomed]
