"""The plan of an audit: which replicas there are, and which segments each task reads.

    directories   broker-1  t-0: log start 0, segments 0 800      tasks  [seg][seg][seg]
                  broker-2  t-0: log start 0, segments 0 700             [seg]
                  broker-3  t-0: log start 5, segments 0 800             [seg][seg]

Rule: a task is about `TASK_BYTES` of work, in which opening a file counts as much as reading
`FILE_COST_BYTES` of it: ten thousand partitions of one small segment are a few dozen tasks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from pipeline.audit.headers import SegmentHeaders, segment_path
from pipeline.source.plan import TASK_BYTES
from replication.errors import UnderstudyError
from replication.verify.directories import IGNORED_TOPICS, Pasts, topic_id_in
from replication.verify.lock_step import Past
from storage.batch.batch_stream import log_start_offsets, partitions_in
from storage.batch.spare_room import LOG_FILE
from storage.filesystem import FileSystem
from storage.types import Offset, TopicPartition

# Each task of a survey returns a row for each replica: few large tasks return few rows.
MOST_TASK_BYTES: Final = 1024 * 1024 * 1024
TASKS_PER_CORE: Final = 2
FILE_COST_BYTES: Final = 64 * 1024

# One row for each replica of each partition; `directory` is null where it cannot be read here.
SCHEMA: Final = pa.schema(
    [
        ("replica", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("directory", pa.string()),
        ("topic_id", pa.string()),
        ("log_start_offset", pa.int64()),  # as checkpointed
        ("segments", pa.list_(pa.int64())),
        ("cleaned_before", pa.int64()),  # below this a cleaner has been at work
        ("reached", pa.int64()),  # the furthest end that its checkpoints tell of
    ]
)


class NoLogDirectoryError(UnderstudyError):
    """An error: the directory to be audited is not there, or has no partition."""


@attrs.frozen(kw_only=True)
class ReplicaDirectory:
    """One replica's directory."""

    replica: str
    topic_partition: TopicPartition
    directory: str | None
    topic_id: str | None
    log_start_offset: Offset
    segments: tuple[Offset, ...]
    past: Past = attrs.field(factory=Past)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "ReplicaDirectory":
        """Return the replica in a row of `SCHEMA`; rows of earlier versions have no past."""
        return cls(
            replica=row["replica"],
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            directory=row["directory"],
            topic_id=row["topic_id"],
            log_start_offset=row["log_start_offset"],
            segments=tuple(row["segments"]),
            past=Past(
                cleaned_before=row.get("cleaned_before") or 0, reached=row.get("reached") or 0
            ),
        )

    @property
    def start_offset(self) -> Offset:
        return max(self.log_start_offset, self.segments[0] if self.segments else 0)

    def to_row(self) -> dict[str, Any]:
        row = attrs.asdict(self, recurse=False)
        tp, past = row.pop("topic_partition"), row.pop("past")
        row |= {"topic": tp.topic, "partition": tp.partition, "segments": list(self.segments)}
        return row | attrs.asdict(past)


def find_replicas(
    files: FileSystem,
    directories: Mapping[str, str],
    only: frozenset[TopicPartition] | None = None,
) -> Iterator[ReplicaDirectory]:
    """Yield every replica in the log directories, by replica name; with `only`, these partitions.

    `with_pasts` adds their pasts, which matter only for replicas that differ.
    """
    check_directories(files, directories.values())
    for name, directory in directories.items():
        starts = log_start_offsets(files, directory)
        for tp, path in sorted(partitions_in(files, directory).items()):
            if tp.topic in IGNORED_TOPICS or (only is not None and tp not in only):
                continue
            logs = map(LOG_FILE.fullmatch, files.list_directory(path))
            yield ReplicaDirectory(
                replica=name,
                topic_partition=tp,
                directory=path,
                topic_id=topic_id_in(files, path),
                log_start_offset=starts.get(tp, 0),
                segments=tuple(sorted(int(found[1]) for found in logs if found)),
            )


def with_pasts(
    files: FileSystem, replicas: Iterable[ReplicaDirectory]
) -> Iterator[ReplicaDirectory]:
    """Yield the replicas with their pasts, as far as their directories can be read here."""
    known: dict[str, Pasts] = {}
    for replica in replicas:
        if replica.directory is None:
            yield replica
            continue
        log_directory = str(Path(replica.directory).parent)
        if log_directory not in known:
            known[log_directory] = Pasts.at(files, log_directory)
        past = known[log_directory].of(replica.topic_partition, replica.directory)
        yield attrs.evolve(replica, past=past)


def check_directories(files: FileSystem, directories: Iterable[str]) -> None:
    """Raise NoLogDirectoryError for the first directory that is not there."""
    for directory in directories:
        if not files.is_directory(directory):
            raise NoLogDirectoryError(f"{directory} is not a directory")


def segments_of(
    files: FileSystem, replica: ReplicaDirectory, start_offset: Offset = 0
) -> Iterator[SegmentHeaders]:
    """Yield the segments of a replica, in order."""
    assert replica.directory is not None, "segments are read where they are"
    for base, next_base in zip_longest(replica.segments, replica.segments[1:]):
        yield SegmentHeaders(
            replica=replica.replica,
            topic_partition=replica.topic_partition,
            directory=replica.directory,
            base_offset=base,
            next_base=next_base,
            size=_size(files, segment_path(replica.directory, base)),
            start_offset=start_offset,
        )


def large_tasks(
    segments: Sequence[SegmentHeaders], cores: int
) -> Iterator[tuple[SegmentHeaders, ...]]:
    """Yield some tasks for each core, of at most `MOST_TASK_BYTES` of work."""
    work = sum(segment.size + FILE_COST_BYTES for segment in segments)
    each = math.ceil(work / (cores * TASKS_PER_CORE))
    return tasks(segments, min(max(each, TASK_BYTES), MOST_TASK_BYTES))


def tasks(
    segments: Iterable[SegmentHeaders], task_bytes: int = TASK_BYTES
) -> Iterator[tuple[SegmentHeaders, ...]]:
    """Yield groups of segments with about `task_bytes` of work each, in the order given."""
    group: list[SegmentHeaders] = []
    cost = 0
    for segment in segments:
        group.append(segment)
        cost += segment.size + FILE_COST_BYTES
        if cost >= task_bytes:
            yield tuple(group)
            group, cost = [], 0
    if group:
        yield tuple(group)


def directory_names(paths: Sequence[str]) -> list[str]:
    """Return the shortest endings of the paths that tell them apart."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _size(files: FileSystem, path: str) -> int:
    file = files.open_for_reading(path)
    try:
        return file.size()
    finally:
        file.close()
