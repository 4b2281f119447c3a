"""Which replicas there are, and what is to be read of them: the plan of an audit.

    directories   broker-1  t-0: log start 0, segments 0 800      tasks  [seg][seg][seg]
                  broker-2  t-0: log start 0, segments 0 700             [seg]
                  broker-3  t-0: log start 5, segments 0 800             [seg][seg]

Rule: a task is about `TASK_BYTES` of work, in which opening a file counts as much as reading
`FILE_COST_BYTES` of it: ten thousand partitions of one small segment are a few dozen tasks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import attrs
import pyarrow as pa

from pipeline.audit.headers import Segment
from replication.errors import UnderstudyError
from replication.verify.directories import IGNORED_TOPICS, Pasts, topic_id_in
from replication.verify.lock_step import Past
from storage.batch_stream import log_start_offsets, partitions_in
from storage.filesystem import FileSystem
from storage.spare_room import LOG_FILE
from storage.types import Offset, TopicPartition

TASK_BYTES: Final = 64 * 1024 * 1024
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
    """What should be audited is not there, or holds no partition."""


@attrs.frozen(kw_only=True)
class Replica:
    """One replica's directory."""

    replica: str
    topic_partition: TopicPartition
    directory: str
    topic_id: str | None
    log_start_offset: Offset
    segments: tuple[Offset, ...]
    past: Past = attrs.field(factory=Past)

    def to_row(self) -> dict[str, Any]:
        row = attrs.asdict(self, recurse=False)
        tp, past = row.pop("topic_partition"), row.pop("past")
        row |= {"topic": tp.topic, "partition": tp.partition, "segments": list(self.segments)}
        return row | attrs.asdict(past)


def find_replicas(
    files: FileSystem,
    directories: Mapping[str, str],
    only: frozenset[TopicPartition] | None = None,
) -> Iterator[Replica]:
    """Every replica in the log directories, by the replicas' names; of `only` these partitions."""
    check_directories(files, directories.values())
    for name, directory in directories.items():
        starts, pasts = log_start_offsets(files, directory), Pasts.at(files, directory)
        for tp, path in sorted(partitions_in(files, directory).items()):
            if tp.topic in IGNORED_TOPICS or (only is not None and tp not in only):
                continue
            logs = map(LOG_FILE.fullmatch, files.list_directory(path))
            yield Replica(
                replica=name,
                topic_partition=tp,
                directory=path,
                topic_id=topic_id_in(files, path),
                log_start_offset=starts.get(tp, 0),
                segments=tuple(sorted(int(found[1]) for found in logs if found)),
                past=pasts.of(tp, path),
            )


def check_directories(files: FileSystem, directories: Iterable[str]) -> None:
    """NoLogDirectoryError for the first that is not there."""
    for directory in directories:
        if not files.is_directory(directory):
            raise NoLogDirectoryError(f"{directory} is not a directory")


def segments_of(files: FileSystem, replica: Replica) -> Iterator[Segment]:
    """Its segments, in order."""
    for base, next_base in zip_longest(replica.segments, replica.segments[1:]):
        segment = Segment(
            replica=replica.replica,
            topic_partition=replica.topic_partition,
            directory=replica.directory,
            base_offset=base,
            next_base=next_base,
            size=0,
        )
        yield attrs.evolve(segment, size=_size(files, segment.path))


def tasks(segments: Iterable[Segment]) -> Iterator[tuple[Segment, ...]]:
    """About `TASK_BYTES` of work each, in the order given."""
    group: list[Segment] = []
    cost = 0
    for segment in segments:
        group.append(segment)
        cost += segment.size + FILE_COST_BYTES
        if cost >= TASK_BYTES:
            yield tuple(group)
            group, cost = [], 0
    if group:
        yield tuple(group)


def directory_names(paths: Sequence[str]) -> list[str]:
    """The shortest endings of the paths that tell them apart."""
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
