"""Targets of exports: where a run begins, and what makes it count.

    begin     ── returns where the last run ended in every partition
    tasks     ── write files that no reader sees yet
    commit    ── one atomic step: the files and the new positions, or neither

Rule 1: the target alone keeps the positions, with the data. The next export to it goes on where
it ends, from any machine.

Rule 2: a run that dies before its commit has exported nothing; its files are never read, and the
target removes them or leaves them to its own cleaning. A run that dies later is done.

Rule 3: offsets belong to one topic, by its id where that is known. A topic that was deleted and
created again is refused, because its offsets have nothing to do with the old topic's.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import attrs

from pipeline.export.writing import WrittenFile
from pipeline.source.offsets import Position
from replication.errors import UnderstudyError
from storage.errors import LogDirectoryLockedError
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition


class ExportError(UnderstudyError):
    """An error: records or a target that do not allow an export."""


@attrs.frozen(kw_only=True)
class ExportRun:
    """One run: its name in file names, its tasks' directory, and where it begins."""

    name: str
    directory: Path
    position: Position


class Target(Protocol):
    """The place that an export writes to."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other exports away from this target."""

    def begin(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> ExportRun:
        """Clean up after a run that died, and begin another.

        Raise ExportError if a topic was deleted and created again since the last run.
        """

    def commit(self, run: ExportRun, files: Sequence[WrittenFile], position: Position) -> None:
        """Commit the whole run at once; `position` is where each of its partitions ends."""


def topic_made_again(topic: str) -> ExportError:
    return ExportError(
        f"topic {topic} is not the one that was exported before: it was deleted and made again."
        " Export it to another place"
    )


def check_topics(kept: Position, topic_ids: Mapping[str, str]) -> None:
    """Raise ExportError if a topic was deleted and created again since the last run."""
    for topic, topic_id in kept.topic_ids.items():
        if topic_ids.get(topic, topic_id) != topic_id:
            raise topic_made_again(topic)


def merged_position(kept: Position, now: Position) -> Position:
    """Return the positions after a run; partitions that it did not see keep theirs."""
    return Position({**kept.offsets, **now.offsets}, {**kept.topic_ids, **now.topic_ids})


@contextmanager
def directory_held(directory: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of a target's directory; raise ExportError if another export has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = OsFileSystem().lock(str(lock))
    except LogDirectoryLockedError as error:
        raise ExportError(f"another export to {directory} is running") from error
    try:
        yield
    finally:
        held.release()


def sync_file(path: Path) -> None:
    """Write a file from the operating system's cache to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
