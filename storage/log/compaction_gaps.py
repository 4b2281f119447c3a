"""The offset below which a log may have gaps between its segments, because compaction ran there.

    [ 0 ── 99 ][ 140 ── 199 ]│[ 260 ── 300 ][ 301 ──       `compaction-gap-checkpoint`: 200
              gap            │             gap
              compaction     │             the disk has lost what was there

Compaction may remove the last records of a segment, so that the next one does not begin where it
ends. Records that a disk lost in a crash leave the same gap, and then nothing after the gap may
stay.

Rule 1: before a cleaned segment replaces another, everything below its end is synced, and after
that this file. So no gap below the offset in the file is a loss.

Rule 2: a truncation lowers it first, because records that are appended later are not compacted.

The file is in the partition's directory, in the format of Kafka's offset checkpoints. Kafka, for
which no gap is a loss, does not read it.
"""

import os

from storage.attributes import define
from storage.checkpoint import COMPACTION_GAP_CHECKPOINT, OffsetCheckpoint
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.log.recovery.aside import keep_file
from storage.log.recovery.report import Repair
from storage.types import Offset, TopicPartition


@define
class CompactionGaps:
    """The checkpoint of one log; `below` is its offset on the disk."""

    _checkpoint: OffsetCheckpoint
    _topic_partition: TopicPartition
    below: Offset = 0

    def raise_to(self, offset: Offset) -> None:
        """Allow gaps below `offset`, where everything is on the disk."""
        if offset > self.below:
            self._write(offset)

    def lower_to(self, offset: Offset) -> None:
        """Allow none from `offset` on, where the log is about to be cut."""
        if offset < self.below:
            self._write(offset)

    def _write(self, offset: Offset) -> None:
        self._checkpoint.write({self._topic_partition: offset})
        self.below = offset


def read_compaction_gaps(
    file_system: FileSystem, directory: str, topic_partition: TopicPartition
) -> tuple[CompactionGaps, tuple[Repair, ...]]:
    """Read the checkpoint in `directory`; put one that does not parse aside."""
    path = os.path.join(directory, COMPACTION_GAP_CHECKPOINT)
    checkpoint = OffsetCheckpoint(file_system, path)
    try:
        below = max(checkpoint.read().values(), default=0)
    except CheckpointError as error:
        cause = f"{str(error).removeprefix(path + ': ')}; gaps between segments count as losses"
        kept = keep_file(file_system, path)
        repair = Repair(path=path, position=0, offset=0, cause=cause, kept=kept)
        return CompactionGaps(checkpoint, topic_partition), (repair,)
    return CompactionGaps(checkpoint, topic_partition, below), ()
