"""A checkpoint in steps, of which only the rename happens on the event loop.

    plan      on the loop: the marks of a directory's logs, as they are now
    prepare   anywhere: write them beside the checkpoint, and sync: the slow part
    publish   on the loop: rename, unless a mark has been lowered since
    settle    anywhere: sync the directory

Rule 1: neither the checkpoint, nor an older one that a power cut may bring back, ever claims more
of a log than there is (`storage.manager.log_manager`, rule 2). A checkpoint that was planned before
a truncation is not published after it; one that was published before is corrected by the
truncation, because the directory knows the contents of its checkpoint from the rename on.

Rule 2: the checkpoint may still name a log that was deleted meanwhile. A later log of the same name
corrects it before its first append, and a log start before it is made: that would move it.
"""

import os
from collections.abc import Callable, Mapping

from storage.attributes import frozen
from storage.checkpoint import OffsetCheckpoint
from storage.manager.log_directory import LogDirectory
from storage.types import Offset, TopicPartition

# Not the `.tmp` of a checkpoint that is written in one go, which may happen in between.
PREPARED_SUFFIX = ".prepared"

Marks = Mapping[TopicPartition, Offset]


@frozen(kw_only=True)
class CheckpointPlan:
    directory: LogDirectory
    name: str
    offsets: Marks
    # The same marks of every log in the directory, at the time of the call.
    marks_now: Callable[[], Marks]
    # What the directory believes to stand in its checkpoint.
    published: Callable[[Marks], None]

    @property
    def path(self) -> str:
        return os.path.join(self.directory.path, self.name)

    def prepare(self) -> None:
        OffsetCheckpoint(self.directory.file_system, self.path + PREPARED_SUFFIX).write(
            self.offsets
        )

    def publish(self) -> bool:
        """Put the prepared file in place, unless a mark has been lowered since; return whether it
        was.
        """
        now = self.marks_now()
        if any(now.get(each, offset) < offset for each, offset in self.offsets.items()):
            return False
        self.directory.file_system.rename(self.path + PREPARED_SUFFIX, self.path)
        self.published(self.offsets)
        return True

    def settle(self) -> None:
        self.directory.file_system.sync_directory(self.directory.path)
