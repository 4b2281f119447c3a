"""The report of opening one log: what was found, and what was repaired."""

import attrs

from storage.attributes import define, frozen
from storage.log.segment import Segment
from storage.types import Offset, TopicPartition


@frozen(kw_only=True)
class Marks:
    """The marks of a log in the checkpoints of its directory."""

    clean: bool = False
    recovery_point: Offset = 0
    log_start_offset: Offset = 0
    # Below it compaction may have taken whole stretches of offsets, and a disk has lost nothing.
    compacted_to: Offset = 0
    # A repair believes nothing, not even a clean-shutdown marker.
    believe_nothing: bool = False
    # When the clean-shutdown marker was written; None: not known, or there was none.
    marker_ms: int | None = None


@frozen(kw_only=True)
class Repair:
    """A change that was necessary in `path`.

    `bytes` went from `position` on, where `offset` would have been next; `kept` is the file
    that they are in now, empty where they had not been synced.
    """

    path: str
    position: int
    offset: Offset
    cause: str
    bytes: int = 0
    kept: str = ""

    def __str__(self) -> str:
        gone = f"; {self.bytes} bytes cut" if self.bytes else ""
        kept = f", kept in {self.kept}" if self.kept else ""
        return f"{self.path}, byte {self.position}, offset {self.offset}: {self.cause}{gone}{kept}"


@frozen(kw_only=True)
class RecoveryReport:
    """The findings of opening one log. `clean`: no trusted bytes were missing."""

    topic_partition: TopicPartition
    clean: bool
    segments: int
    segments_recovered: int
    bytes_truncated: int
    recovery_point: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    repairs: tuple[Repair, ...] = ()


@define
class LoadedSegments:
    segments: list[Segment]
    next_offset: Offset
    clean: bool
    segments_recovered: int = 0
    bytes_truncated: int = 0
    repairs: list[Repair] = attrs.field(factory=list)
    gaps: list[tuple[Offset, Offset]] = attrs.field(factory=list)
    """Where segments begin whose disk has lost what came before, and where that ends."""

    def report(
        self, topic_partition: TopicPartition, recovery_point: Offset, log_start_offset: Offset
    ) -> RecoveryReport:
        return RecoveryReport(
            topic_partition=topic_partition,
            clean=self.clean,
            segments=len(self.segments),
            segments_recovered=self.segments_recovered,
            bytes_truncated=self.bytes_truncated,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            log_end_offset=self.next_offset,
            repairs=tuple(self.repairs),
        )
