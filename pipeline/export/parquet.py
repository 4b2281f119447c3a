"""Exports to a directory of Parquet files, on a local or mounted file system.

    DIRECTORY/topic=orders/date=2026-11-21/00000003-00007.parquet    what everybody reads
    DIRECTORY/_understudy/run-00000004/topic=.../...                 what a run is writing
    DIRECTORY/_understudy/00000003.json                              what run 3 did
    DIRECTORY/_understudy/.lock

Rule 1: a run counts from the moment that its JSON is there. Then its files are moved to where
they are read; one that dies in between has them moved by the next run, before anything else.

Rule 2: whatever a run without JSON wrote is removed by the next one.

Readers pass over names that begin with an underscore: Spark, pyarrow and others do.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from pipeline.export.target import ExportError, Run, topic_made_again
from pipeline.export.writing import Written
from pipeline.source.offsets import Position
from storage.checkpoint import replace_file
from storage.errors import LogDirectoryLockedError
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

STATE: Final = "_understudy"
_COMMIT: Final = re.compile(r"([0-9]{8})\.json")


@attrs.frozen
class ParquetTarget:
    """See the module's docstring."""

    directory: Path

    @property
    def _state(self) -> Path:
        return self.directory / STATE

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else exports here meanwhile."""
        self._state.mkdir(parents=True, exist_ok=True)
        try:
            lock = OsFileSystem().lock(str(self._state / ".lock"))
        except LogDirectoryLockedError as error:
            raise ExportError(f"another export to {self.directory} is running") from error
        try:
            yield
        finally:
            lock.release()

    def begin(
        self,
        partitions: Iterable[TopicPartition],  # noqa: ARG002 - Target's
        topic_ids: Mapping[str, str],
    ) -> Run:
        commits = self._commits()
        last = max(commits, default=0)
        if last:
            self._move_into_place(last)
        for left in self._state.glob("run-*"):
            shutil.rmtree(left)
        told: dict[str, Any] = json.loads(commits[last].read_text()) if last else {"position": {}}
        number = last + 1
        directory = self._staging(number)
        directory.mkdir()
        position = Position.from_json(told["position"])
        for topic, topic_id in position.topic_ids.items():
            if topic_ids.get(topic, topic_id) != topic_id:
                raise topic_made_again(topic)
        return Run(name=f"{number:08d}", directory=directory, position=position)

    def commit(self, run: Run, files: Sequence[Written], position: Position) -> None:
        told = {
            "position": _merged(run.position, position).to_json(),
            "files": [attrs.asdict(file) for file in files],
        }
        for file in files:
            _sync(run.directory / file.path)
        data = json.dumps(told, indent=1).encode()
        replace_file(OsFileSystem(), str(self._state / f"{run.name}.json"), data)
        self._move_into_place(int(run.name))
        shutil.rmtree(run.directory)

    def _commits(self) -> dict[int, Path]:
        found = ((_COMMIT.fullmatch(path.name), path) for path in self._state.glob("*.json"))
        return {int(match[1]): path for match, path in found if match}

    def _staging(self, number: int) -> Path:
        return self._state / f"run-{number:08d}"

    def _move_into_place(self, number: int) -> None:
        """Every file of a run that counts, if it is not there already."""
        told = json.loads((self._state / f"{number:08d}.json").read_text())
        for file in told["files"]:
            staged, place = self._staging(number) / file["path"], self.directory / file["path"]
            if staged.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(place)


def _merged(kept: Position, now: Position) -> Position:
    """Partitions that a run did not see stay where they were."""
    return Position({**kept.offsets, **now.offsets}, {**kept.topic_ids, **now.topic_ids})


def _sync(path: Path) -> None:
    """A run that counts has its files on the disk, and not in a cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
