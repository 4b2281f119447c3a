"""Exports to a directory of Parquet files, on a local or mounted file system.

    DIRECTORY/topic=orders/date=2026-11-21/00000003-00007.parquet    the data
    DIRECTORY/_understudy/run-00000004/topic=.../...                 files that run 4 is writing
    DIRECTORY/_understudy/00000003.json                              the commit of run 3
    DIRECTORY/_understudy/.lock

Rule 1: a run counts from the moment that its JSON is there. Then its files are moved to their
places; if it dies in between, the next run moves them first.

Rule 2: the next run removes the files of a run without JSON.

Readers such as Spark and pyarrow ignore names that begin with an underscore.
"""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import attrs

from pipeline.export.target import (
    ExportRun,
    check_topics,
    directory_held,
    merged_position,
    sync_file,
)
from pipeline.export.writing import WrittenFile
from pipeline.source.offsets import Position
from storage.checkpoint import replace_file
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

STATE: Final = "_understudy"
_COMMIT: Final = re.compile(r"([0-9]{8})\.json")


@attrs.frozen
class ParquetTarget:
    """A directory of Parquet files as the target of an export."""

    directory: Path

    @property
    def _state(self) -> Path:
        return self.directory / STATE

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory's lock; raise ExportError if another export has it."""
        return directory_held(self.directory, self._state / ".lock")

    def begin(
        self,
        partitions: Iterable[TopicPartition],  # noqa: ARG002 - Target's
        topic_ids: Mapping[str, str],
    ) -> ExportRun:
        commits = self._commits()
        last = max(commits, default=0)
        if last:
            self._move_into_place(last)
        for left in self._state.glob("run-*"):
            shutil.rmtree(left)
        kept: dict[str, Any] = json.loads(commits[last].read_text()) if last else {"position": {}}
        number = last + 1
        directory = self._staging(number)
        directory.mkdir()
        position = Position.from_json(kept["position"])
        check_topics(position, topic_ids)
        return ExportRun(name=f"{number:08d}", directory=directory, position=position)

    def commit(self, run: ExportRun, files: Sequence[WrittenFile], position: Position) -> None:
        commit = {
            "position": merged_position(run.position, position).to_json(),
            "files": [attrs.asdict(file) for file in files],
        }
        for file in files:
            sync_file(run.directory / file.path)
        data = json.dumps(commit, indent=1).encode()
        replace_file(OsFileSystem(), str(self._state / f"{run.name}.json"), data)
        self._move_into_place(int(run.name))
        shutil.rmtree(run.directory)

    def _commits(self) -> dict[int, Path]:
        found = ((_COMMIT.fullmatch(path.name), path) for path in self._state.glob("*.json"))
        return {int(match[1]): path for match, path in found if match}

    def _staging(self, number: int) -> Path:
        return self._state / f"run-{number:08d}"

    def _move_into_place(self, number: int) -> None:
        """Move every file of a committed run that is not in its place yet."""
        commit = json.loads((self._state / f"{number:08d}.json").read_text())
        for file in commit["files"]:
            staged, place = self._staging(number) / file["path"], self.directory / file["path"]
            if staged.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(place)
