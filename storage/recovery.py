"""Opening a log: which of its files to believe, and how far.

    after a clean shutdown    everything; the end is found behind the last index entry
    after a crash             the segments that end below the recovery point; the one that it
                              lies in, or at the end of, and all behind are read again, and
                              cut where they stop making sense

    recovery point 140     [0 ── 99][100 ── 1│40 ~~~~ ?? ][ 190 ~~~ ]
                            believed  read again; cut at ??  goes, once the one before was cut

Rule 1: a batch is believed when its CRC-32C matches, its offsets follow those before it,
and its leader epoch is not older than the one before it. The last is ours: a file system
may bring back the old tail of a file that was cut and written again, and such a tail is
sound in itself.

Rule 2: what is read again is indexed again, and the leader epochs of that stretch come from
its batches, not from the checkpoint, which may be ahead of what the disk has kept. So do those
that lie below the first of the checkpoint, where the log start has fallen back.

Rule 3: so are its producers and its aborted transactions, from a snapshot that lies below it;
and there is a snapshot at the end of each segment that was read again.

Rule 4: segments join. One that begins past the end of the one before it shows that the disk
has lost that one's tail, and goes with all that follow. (Only a gap too wide for an index to
express is one that its writer left.)

Rule 5: a crash in the middle of replacing files is finished first (`storage.cleaner.swap`).

(LogLoader, LogSegment.recover in Kafka.)
"""

import os
from collections.abc import Iterator, Sequence

import attrs

from storage import producer_replay
from storage.append import marker_of
from storage.checkpoint import EpochEntry
from storage.cleaner import swap
from storage.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError
from storage.filesystem import FileSystem
from storage.index_file import MAX_RELATIVE_OFFSET
from storage.leader_epoch_cache import LeaderEpochCache
from storage.producer_state import ProducerStateManager
from storage.record_batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    Segment,
)
from storage.segments import Segments
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

_WINDOW = 1 << 20


@attrs.frozen(kw_only=True)
class RecoveryReport:
    """What opening one log found. `clean`: nothing had to be read again."""

    topic_partition: TopicPartition
    clean: bool
    segments: int
    segments_recovered: int
    bytes_truncated: int
    recovery_point: Offset
    log_start_offset: Offset
    log_end_offset: Offset


@attrs.define
class LoadedSegments:
    segments: list[Segment]
    next_offset: Offset
    clean: bool
    segments_recovered: int = 0
    bytes_truncated: int = 0

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
        )


@attrs.define
class ScannedEpochs:
    """The leader epochs that recovery has come across, and the cache that they belong in."""

    cache: LeaderEpochCache | None = None
    latest: LeaderEpoch = NO_LEADER_EPOCH

    def see(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.latest:
            self.latest = header.leader_epoch
            if self.cache is not None:
                self.cache.assign(header.leader_epoch, header.base_offset)


@attrs.frozen(kw_only=True)
class Loader:
    """One partition's directory, about to be opened."""

    file_system: FileSystem
    directory: str
    max_index_bytes: int
    index_interval_bytes: int
    epochs: LeaderEpochCache
    producers: ProducerStateManager

    def load(
        self, *, clean: bool, recovery_point: Offset, log_start_offset: Offset
    ) -> LoadedSegments:
        """Every segment that can be believed; none where the log start lies past their end."""
        swap.finish_interrupted(self.file_system, self.directory)
        loaded = LoadedSegments(self._segments(), log_start_offset, clean)
        self.producers.remove_stray_snapshots([each.base_offset for each in loaded.segments])
        if loaded.segments and clean:
            self._believe(loaded, recovery_point, log_start_offset)
        if loaded.segments and not loaded.clean:
            self._recover_from(loaded, recovery_point, log_start_offset)
            self._complete_epochs(loaded, log_start_offset)
        if loaded.segments and loaded.next_offset < log_start_offset:
            for segment in loaded.segments:
                self._remove(segment)
            self.file_system.sync_directory(self.directory)
            loaded.segments = []
            loaded.next_offset = log_start_offset
        return loaded

    def _segments(self) -> list[Segment]:
        names = self.file_system.list_directory(self.directory)
        bases = [base for name in names if (base := _base_offset(name, LOG_SUFFIX)) is not None]
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in SEGMENT_SUFFIXES and stem.isdigit() and int(stem) not in bases:
                self.file_system.remove(os.path.join(self.directory, name))
        return [self._load_segment(base) for base in sorted(bases)]

    def _load_segment(self, base_offset: Offset) -> Segment:
        return Segment.load(
            self.file_system,
            self.directory,
            base_offset,
            max_index_bytes=self.max_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
        )

    def _believe(
        self, loaded: LoadedSegments, recovery_point: Offset, log_start_offset: Offset
    ) -> None:
        """After a clean shutdown, unless the files say otherwise."""
        for segment in loaded.segments:
            if segment.size and not self._has_indexes(segment):
                self._recover(loaded, segment, ScannedEpochs(), log_start_offset)
                segment.offset_index.flush()
                segment.time_index.flush()
        try:
            for segment in loaded.segments[-1:]:
                segment.check_indexes()
            loaded.next_offset = loaded.segments[-1].end_offset
        except (CorruptRecordError, CorruptIndexError):
            loaded.clean = False
        # A clean shutdown syncs to the end, and says so: less than that was lost by the disk.
        if loaded.next_offset < recovery_point:
            loaded.clean = False

    def _has_indexes(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.sanity_check(segment.base_offset)
        except CorruptIndexError:
            return False
        return self.file_system.exists(segment.path(INDEX_SUFFIX))

    def _recover_from(
        self, loaded: LoadedSegments, recovery_point: Offset, log_start_offset: Offset
    ) -> None:
        first = 0
        for index, segment in enumerate(loaded.segments):
            if segment.base_offset < recovery_point:
                first = index
            if segment.size and not self._has_indexes(segment):
                break
        self.epochs.truncate_from_end(loaded.segments[first].base_offset)
        scanned = ScannedEpochs(self.epochs)
        for index in range(first, len(loaded.segments)):
            if index > first and _is_hole(loaded.next_offset, loaded.segments[index].base_offset):
                self._drop_after(loaded, index - 1)
                break
            if self._recover(loaded, loaded.segments[index], scanned, log_start_offset):
                self._drop_after(loaded, index)
                break
        self.epochs.flush()

    def _complete_epochs(self, loaded: LoadedSegments, log_start_offset: Offset) -> None:
        """The log start has fallen back (it was not checkpointed): so must the first epoch."""
        known = self.epochs.entries
        end = known[0].start_offset if known else loaded.next_offset
        found: list[EpochEntry] = []
        for segment in loaded.segments:
            if segment.base_offset >= end or log_start_offset >= end:
                break
            for _, header in segment.headers():
                epoch = header.leader_epoch
                if (
                    log_start_offset <= header.last_offset
                    and header.base_offset < end
                    and (epoch > (found[-1].epoch if found else NO_LEADER_EPOCH))
                ):
                    found.append(EpochEntry(epoch, header.base_offset))
        if found:
            self.epochs.clear()
            for entry in (*found, *known):
                self.epochs.assign(*entry)

    def _drop_after(self, loaded: LoadedSegments, index: int) -> None:
        # From the end, so that a crash in here leaves no hole.
        while len(loaded.segments) > index + 1:
            segment = loaded.segments.pop()
            loaded.bytes_truncated += segment.size
            self._remove(segment)
        self.file_system.sync_directory(self.directory)

    def _remove(self, segment: Segment) -> None:
        for path in segment.delete():
            self.file_system.remove(path)

    def _recover(
        self,
        loaded: LoadedSegments,
        segment: Segment,
        scanned: ScannedEpochs,
        log_start_offset: Offset,
    ) -> int:
        """Read `segment` again, index it again, cut it; how many bytes went."""
        loaded.segments_recovered += 1
        segment.reset_indexes()
        self._bring_producers_to(segment.base_offset, loaded.segments, log_start_offset)
        end = 0
        loaded.next_offset = segment.base_offset
        for position, header, batch in sound_batches(segment, scanned.latest):
            segment.reindex(position, header)
            scanned.see(header)
            if header.has_producer:
                producer_replay.note(self.producers, segment, header, batch)
            end, loaded.next_offset = position + header.size, header.next_offset
        truncated = segment.size - end
        if truncated:
            segment.cut(end)
        segment.become_inactive()
        self.producers.update_map_end_offset(loaded.next_offset)
        self.producers.take_snapshot(sync=False)
        loaded.bytes_truncated += truncated
        return truncated

    def _bring_producers_to(
        self, offset: Offset, segments: Sequence[Segment], log_start_offset: Offset
    ) -> None:
        """As they were at `offset`, where a segment begins."""
        self.producers.truncate_and_reload(log_start_offset, offset)
        producer_replay.rebuild(self.producers, Segments(segments), offset)


def sound_batches(
    segment: Segment, leader_epoch: LeaderEpoch
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Each batch that can be believed, where it stands, and its bytes until the next is asked
    for; stops at the first that cannot.
    """
    following = segment.base_offset
    for position, header, batch in _batches(segment):
        if (
            header.base_offset < following
            or header.last_offset_delta < 0
            or not segment.holds_offset(header.last_offset)
            or NO_LEADER_EPOCH != header.leader_epoch < leader_epoch
            or not check_crc(batch)
            or not _reads_as_marker(header, batch)
        ):
            return
        following = header.next_offset
        leader_epoch = max(leader_epoch, header.leader_epoch)
        yield position, header, batch


def _reads_as_marker(header: BatchHeader, batch: memoryview) -> bool:
    """Nobody could say what an illegible one ended; no append would have taken it."""
    if header.is_control and header.has_producer:
        try:
            marker_of(header, batch)
        except (CorruptRecordError, InvalidRecordError):
            return False
    return True


def _batches(segment: Segment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch with all of its bytes, read a window at a time."""
    file = segment.pins.file
    buffer = memoryview(bytearray(min(_WINDOW, max(segment.size, HEADER_SIZE))))
    position = 0
    while position + HEADER_SIZE <= segment.size:
        window = buffer[: file.read_into(position, buffer)]
        consumed = 0
        while consumed + HEADER_SIZE <= len(window):
            try:
                header = read_header(window, consumed)
            except CorruptRecordError:
                return
            if position + consumed + header.size > segment.size:
                return
            if consumed + header.size > len(window):
                break
            yield position + consumed, header, window[consumed : consumed + header.size]
            consumed += header.size
        position += consumed
        if consumed == 0:  # one batch larger than the window, and no larger than the file
            if len(window) < HEADER_SIZE:
                return
            buffer = memoryview(bytearray(read_header(window).size))


def _is_hole(end_offset: Offset, base_offset: Offset) -> bool:
    return base_offset != end_offset and base_offset - end_offset <= MAX_RELATIVE_OFFSET


def _base_offset(name: str, suffix: str) -> Offset | None:
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and stem.isdigit() else None
