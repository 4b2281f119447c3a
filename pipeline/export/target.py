"""What has been exported, and what makes a run count.

    begin     ── where the last run ended, of every partition
    tasks     ── write files that nobody reads yet
    commit    ── one atomic step: the files and the new positions, or neither

Rule 1: positions are kept with the data, by the target alone. Whoever exports to it next, from
wherever, goes on where it ends.

Rule 2: a run that dies before its commit has exported nothing; what it wrote is never read,
and is removed or left to the target's own cleaning. One that dies after it is done.

Rule 3: offsets are those of one topic, by its id where that is known: one that was deleted and
made again is refused, as its offsets say nothing of the old one's.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import attrs

from pipeline.export.writing import Written
from pipeline.source.offsets import Position
from replication.errors import UnderstudyError
from storage.types import TopicPartition


class ExportError(UnderstudyError):
    """What cannot be exported, or a target that cannot be exported to."""


@attrs.frozen(kw_only=True)
class Run:
    """One run: what its files are called, where its tasks write, where it begins."""

    name: str
    directory: Path
    position: Position


class Target(Protocol):
    """Where an export goes."""

    def held(self) -> AbstractContextManager[None]:
        """While this lasts nobody else exports there."""

    def begin(self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> Run:
        """Put right what a run that died has left, and begin another.

        ExportError where a topic is another one than that which was exported before.
        """

    def commit(self, run: Run, files: Sequence[Written], position: Position) -> None:
        """All of it, at once; `position` is where each partition of the run ends."""


def topic_made_again(topic: str) -> ExportError:
    return ExportError(
        f"topic {topic} is not the one that was exported before: it was deleted and made again."
        " Export it to another place"
    )
