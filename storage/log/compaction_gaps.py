"""Up to where a log's segments may have gaps between them, because compaction ran there.

    [ 0 ── 99 ][ 140 ── 199 ]│[ 260 ── 300 ][ 301 ──       `compaction-gap-checkpoint`: 200
              gap            │             gap
              compaction     │             the disk has lost what was there

Compaction takes the end of a segment like anything else, so the next one does not begin where it
ends. What a disk has lost in a crash looks the same, and nothing behind such a gap may stay.

Rule 1: before a cleaned segment takes its place everything below its end is on the disk, and so
is this file, which says so. Below its offset no gap is a loss.

Rule 2: a cut lowers it first: what is appended from there on has not been compacted.

The file lies in the partition's directory, in the form of Kafka's offset checkpoints. Kafka,
which takes no gap for a loss, does not look at it.
"""

import os

import attrs

from storage.checkpoint import COMPACTION_GAP_CHECKPOINT, OffsetCheckpoint
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.log.recovery.aside import keep_file
from storage.log.recovery.report import Repair
from storage.types import Offset, TopicPartition


@attrs.define
class CompactionGaps:
    """What the checkpoint of one log says: `below` as it stands on the disk."""

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
