"""The loading of a log: which files are trusted, and up to where.

    after a clean shutdown    every segment is trusted whose end is valid (storage.log.recovery.tail)
    after a crash             the segments that end below the recovery point are trusted; the one
                              with the recovery point and all later ones are read again, and cut
                              at the first invalid byte (storage.log.recovery.scan)

    recovery point 140     [0 ── 99][100 ── 1│40 ~~~~ ?? ][ 190 ~~~ ]
                            trusted   read again; cut at ??  removed, because the one before was cut

Rule 1: a trusted segment whose parts do not fit together is read again as well.

Rule 2: a segment that is read again is indexed again, and its leader epochs come from its batches,
not from the checkpoint, which may have epochs that the disk has lost. Epochs below the first one in
the checkpoint come from the batches too, if the log start is lower than before.

Rule 3: its producers and aborted transactions are also computed again, from a snapshot below the
segment; and a snapshot is written at the end of each segment that was read again.

Rule 4: without compaction there is no gap between segments. A gap above the recovery point shows
that the disk has lost the end of the segment before it; the segments after the gap are removed. A
gap below the recovery point comes from no crash: a file was removed by hand, and the later segments
stay. But if no valid batch follows, the disk has lied about a sync, and the log ends before the
gap. Where compaction has run, everything had been synced before, and the gap comes from the
compaction (`storage.log.compaction_gaps`, and the cleaner's checkpoint of a directory that Kafka
has used). A segment also ends early if the next offset was too far from its base.

Rule 5: bytes that had been promised are copied before they are cut: those below the recovery point,
those before a clean shutdown, and those that Kafka would have trusted (storage.log.recovery.aside).
Each cut is reported as a `Repair`.

(LogLoader in Kafka.)
"""

import itertools
import re
from typing import Final

from storage.attributes import frozen
from storage.batch.record_batch import BatchHeader
from storage.errors import (
    CorruptIndexError,
    CorruptRecordError,
    InvalidRecordError,
    OffsetOverflowError,
)
from storage.filesystem import FileSystem
from storage.log import producer_replay, swap
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.recovery import aside, epochs, overflow
from storage.log.recovery.report import LoadedSegments, Marks, Repair
from storage.log.recovery.scan import Cut, Scan, ScannedEpochs
from storage.log.recovery.tail import end_of_believed
from storage.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Segment,
)
from storage.log.segments import Segments
from storage.producers.state import ProducerStateManager
from storage.types import Offset

_NAME: Final = re.compile(rf"([0-9]{{20}})({'|'.join(map(re.escape, SEGMENT_SUFFIXES))})")
_OF_INTERRUPTED: Final = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)


@frozen(kw_only=True)
class Loader:
    """The loading of one partition's directory."""

    file_system: FileSystem
    directory: str
    max_index_bytes: int
    index_interval_bytes: int
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    marks: Marks
    # What was repaired before.
    repairs: tuple[Repair, ...] = ()

    def load(self, names: list[str]) -> LoadedSegments:
        """Return every segment that can be trusted; none if the log start is past their end.

        `names` are those in the directory.
        """
        if any(name.endswith(_OF_INTERRUPTED) for name in names):
            swap.finish_interrupted(self.file_system, self.directory)
            names = self.file_system.list_directory(self.directory)
        repairs = list(self.repairs)
        while True:
            segments = self._segments(names)
            loaded = LoadedSegments(
                segments, self.marks.log_start_offset, self.marks.clean, repairs=list(repairs)
            )
            try:
                self._load(loaded)
            except OffsetOverflowError as error:
                repairs.append(self._split(segments, error))
                names = self.file_system.list_directory(self.directory)
            else:
                return loaded

    # Which files there are.

    def _segments(self, names: list[str]) -> list[Segment]:
        files = [
            (file, f"{self.directory}/{name}")
            for name in names
            if (file := _segment_file(name)) is not None
        ]
        bases = [base for (base, suffix), _ in files if suffix == LOG_SUFFIX]
        for (base, _), path in files:
            if base not in bases:
                self.file_system.remove(path)
        return [self._load_segment(base) for base in sorted(bases)]

    def _load_segment(self, base_offset: Offset) -> Segment:
        return Segment.load(
            self.file_system,
            self.directory,
            base_offset,
            max_index_bytes=self.max_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
        )

    def _split(self, segments: list[Segment], error: OffsetOverflowError) -> Repair:
        [segment] = [each for each in segments if each.base_offset == error.base_offset]
        path, parts = segment.path(LOG_SUFFIX), overflow.split(segment)
        for each in segments:
            each.close()
        for doomed in parts:
            self.file_system.remove(doomed)
        return Repair(
            path=path, position=0, offset=error.base_offset, cause="split: its offsets overflow"
        )

    # Which of them to believe.

    def _load(self, loaded: LoadedSegments) -> None:
        marks = self.marks
        self.producers.remove_stray_snapshots([each.base_offset for each in loaded.segments])
        if loaded.segments:
            self._walk(loaded)
            if not loaded.clean or epochs.are_lost(self.epochs, loaded.segments):
                epochs.complete(
                    self.epochs,
                    loaded.segments,
                    log_start_offset=marks.log_start_offset,
                    log_end_offset=loaded.next_offset,
                )
        if marks.clean and loaded.next_offset < marks.recovery_point:
            # A clean shutdown syncs to the end, and says so: less than that was lost by the disk.
            self._miss_synced(loaded)
        if loaded.segments and loaded.next_offset < marks.log_start_offset:
            self._begin_again(loaded)

    def _walk(self, loaded: LoadedSegments) -> None:
        """Go from the first segment to the last, or to where one is cut."""
        read_again_from = self._first_to_read_again(loaded.segments)
        scanned = ScannedEpochs(self.epochs)
        for index, segment in enumerate(list(loaded.segments)):
            if index and not self._joins(loaded, loaded.segments[index - 1], segment):
                self._drop_from(loaded, index, "it does not join what is before it", keep=True)
                break
            if index < read_again_from and self._is_believed(loaded, segment):
                continue
            if index == read_again_from:
                self.epochs.truncate_from_end(segment.base_offset)
            believed = index < read_again_from
            cut = self._read_again(loaded, segment, ScannedEpochs() if believed else scanned)
            if cut is not None:
                self._cut(loaded, index, cut)
                break
            if believed:
                segment.offset_index.flush()
                segment.time_index.flush()
        self._end_before_gaps(loaded)
        self._forget_times_behind_the_end(loaded)
        self.epochs.flush()

    def _end_before_gaps(self, loaded: LoadedSegments) -> None:
        """Drop the segments after a gap that turned out not to be valid (rule 4)."""
        for base, end in reversed(loaded.gaps):
            behind = [each.base_offset >= base for each in loaded.segments]
            if any(each.size for each in loaded.segments if each.base_offset >= base):
                return
            if any(behind):
                self._drop_from(loaded, behind.index(True), "nothing follows the gap", keep=False)
                loaded.next_offset = end
                self._bring_producers_to(end, loaded.segments)

    def _forget_times_behind_the_end(self, loaded: LoadedSegments) -> None:
        """Drop times behind the end of the segment that is the last one now. Only the segment that was
        last has had its times checked, and a disk that lied about records may have kept theirs.
        """
        if loaded.segments and not loaded.clean:
            loaded.segments[-1].time_index.truncate_to(loaded.next_offset)

    def _first_to_read_again(self, segments: list[Segment]) -> int:
        """Return the index of the segment that the recovery point lies in, or at the end of."""
        if self.marks.believe_nothing:
            return 0
        if self.marks.clean:
            return len(segments)
        below = [each for each in segments if each.base_offset < self.marks.recovery_point]
        return max(0, len(below) - 1)

    def _joins(self, loaded: LoadedSegments, previous: Segment, segment: Segment) -> bool:
        """Return whether `segment` may follow `previous` and what was loaded before (rule 4)."""
        end, base, marks = loaded.next_offset, segment.base_offset, self.marks
        if end == base or (end < base and _had_to_roll(previous, segment)):
            return True
        if end < base <= marks.compacted_to:
            return True
        if end > base or not (marks.clean or base <= marks.recovery_point):
            return False
        loaded.clean = False
        self._report(loaded, segment, f"nothing holds the offsets {end} to {base - 1}")
        loaded.gaps.append((base, end))
        return any(each.size for each in loaded.segments if each.base_offset >= base)

    def _is_believed(self, loaded: LoadedSegments, segment: Segment) -> bool:
        try:
            active = segment is loaded.segments[-1]
            loaded.next_offset = end_of_believed(
                segment, active=active, marker_ms=self.marks.marker_ms
            )
        except (CorruptRecordError, CorruptIndexError) as error:
            self._report(loaded, segment, f"read again: {error}")
            return False
        return True

    def _read_again(
        self, loaded: LoadedSegments, segment: Segment, scanned: ScannedEpochs
    ) -> Cut | None:
        """Check a segment, index it, and note its producers; return where it is no longer valid."""
        loaded.segments_recovered += 1
        segment.reset_indexes()
        self._bring_producers_to(segment.base_offset, loaded.segments)

        def note_producer(header: BatchHeader, batch: memoryview) -> bool:
            try:
                producer_replay.note(self.producers, segment, header, batch)
            except (CorruptRecordError, InvalidRecordError):
                return False  # a marker, and what it ended is not known
            return True

        scan = Scan(segment=segment, epochs=scanned, note_producer=note_producer)
        cut = scan.run()
        loaded.next_offset = scan.next_offset
        if cut is None:
            self._close_index(loaded, segment)
        return cut

    def _close_index(self, loaded: LoadedSegments, segment: Segment) -> None:
        segment.become_inactive()
        self.producers.update_map_end_offset(loaded.next_offset)
        self.producers.take_snapshot()

    def _bring_producers_to(self, offset: Offset, segments: list[Segment]) -> None:
        """Restore the state of the producers at `offset`, where a segment begins."""
        self.producers.truncate_and_reload(self.marks.log_start_offset, offset)
        producer_replay.rebuild(self.producers, Segments(segments), offset)

    # Cutting.

    def _was_promised(self, offset: Offset) -> bool:
        """Return whether the marks show that `offset` had been synced."""
        return self.marks.clean or offset < self.marks.recovery_point

    def _cut(self, loaded: LoadedSegments, index: int, cut: Cut) -> None:
        """`loaded.segments[index]` ends at `cut`, and the log with it."""
        segment = loaded.segments[index]
        keep = cut.ours or self._was_promised(loaded.next_offset)
        gone = segment.size - cut.position
        kept = aside.keep_tail(segment, cut.position) if keep else ""
        loaded.bytes_truncated += gone
        loaded.clean = False
        self._report(loaded, segment, cut.cause, position=cut.position, gone=gone, kept=kept)
        # From the end, so that a crash in here leaves no hole.
        self._drop_from(loaded, index + 1, "it follows what was cut", keep=keep)
        segment.cut(cut.position)
        self._close_index(loaded, segment)

    def _drop_from(self, loaded: LoadedSegments, index: int, cause: str, *, keep: bool) -> None:
        reported = len(loaded.repairs)
        while len(loaded.segments) > index:
            segment = loaded.segments.pop()
            kept = aside.keep_segment(segment) if keep and segment.size else ""
            self._report(loaded, segment, cause, gone=segment.size, kept=kept)
            loaded.bytes_truncated += segment.size
            for path in segment.delete():
                self.file_system.remove(path)
        if len(loaded.repairs) > reported:
            loaded.repairs[reported:] = reversed(loaded.repairs[reported:])
            loaded.clean = False
            self.file_system.sync_directory(self.directory)

    def _begin_again(self, loaded: LoadedSegments) -> None:
        """Drop everything, because the log start is past the end: all records were deleted or cannot be
        reached.
        """
        cause = f"the log ends at {loaded.next_offset} and starts at {self.marks.log_start_offset}"
        promised = self._was_promised(loaded.segments[0].base_offset)
        self._drop_from(loaded, 0, cause, keep=promised)
        loaded.next_offset = self.marks.log_start_offset

    def _miss_synced(self, loaded: LoadedSegments) -> None:
        loaded.clean = False
        path = loaded.segments[-1].path(LOG_SUFFIX) if loaded.segments else self.directory
        position = loaded.segments[-1].size if loaded.segments else 0
        cause = f"the log had been synced up to offset {self.marks.recovery_point}"
        loaded.repairs.append(
            Repair(path=path, position=position, offset=loaded.next_offset, cause=cause)
        )

    def _report(
        self,
        loaded: LoadedSegments,
        segment: Segment,
        cause: str,
        *,
        position: int = 0,
        gone: int = 0,
        kept: str = "",
    ) -> None:
        loaded.repairs.append(
            Repair(
                path=segment.path(LOG_SUFFIX),
                position=position,
                offset=loaded.next_offset,
                cause=cause,
                bytes=gone,
                kept=kept,
            )
        )


def _had_to_roll(previous: Segment, segment: Segment) -> bool:
    """Return whether the first batch of `segment` is too far away for the one before it."""
    try:
        return any(
            not previous.holds_offset(header.last_offset)
            for _, header in itertools.islice(segment.headers(), 1)
        )
    except CorruptRecordError:
        return False


def _segment_file(name: str) -> tuple[Offset, str] | None:
    """Return the base offset and the suffix of a segment's file; None for any other."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found else None
