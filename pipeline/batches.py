"""A Spark data source of record batches: `spark.read.format("understudy-batches")`.

One row for each batch in the log directories that the `path` option names, read from the
61-byte headers alone: record bytes are skipped, never loaded. Every replica of every
partition also gives one row without a batch, so that an empty log is still seen.

Options:
    path    log directories, one or many, parted by commas
    names   what to call the replicas, in the same order; the directories' own names
            where left out

A task reads about 64 MiB of segments. The readers run in Spark's worker processes, on
whichever machine can see the paths: one laptop, or a mounted file system.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from replication.verify.directories import IGNORED_TOPICS
from storage.batch_stream import log_start_offsets, partitions_in
from storage.filesystem import File, FileSystem, OsFileSystem
from storage.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

TASK_BYTES = 64 * 1024 * 1024
WINDOW_BYTES = 1024 * 1024

SCHEMA = """
    replica string, topic string, partition int, log_start_offset bigint,
    base_offset bigint, last_offset bigint, leader_epoch int, crc bigint, size int,
    record_count int, max_timestamp bigint, segment string, position bigint
"""


@attrs.frozen
class Segment:
    """One `.log` file of one replica; `path` None for the row that has no batch."""

    replica: str
    topic_partition: TopicPartition
    log_start_offset: Offset
    path: str | None
    size: int


@attrs.frozen
class SegmentGroup(InputPartition):
    """What one task reads."""

    segments: tuple[Segment, ...]


class BatchesDataSource(DataSource):
    """See the module's docstring."""

    @classmethod
    def name(cls) -> str:
        return "understudy-batches"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        paths = [path.strip() for path in str(self.options.get("path", "")).split(",")]
        if not all(paths):
            raise ValueError("understudy-batches: option `path` names no log directory")
        given = self.options.get("names")
        names = given.split(",") if given else directory_names(paths)
        if len(names) != len(paths) or len(set(names)) != len(names):
            raise ValueError("understudy-batches: option `names` must name each path once")
        return BatchesReader(dict(zip(names, paths, strict=True)))


@attrs.define
class BatchesReader(DataSourceReader):
    """Plans segments into tasks, and reads a task's headers as Arrow."""

    directories: dict[str, str]

    def partitions(self) -> Sequence[InputPartition]:
        return group_segments(list(find_segments(OsFileSystem(), self.directories)))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if isinstance(partition, SegmentGroup):  # None stands for a plan without tasks
            for segment in partition.segments:
                yield segment_rows(OsFileSystem(), segment)


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    spark.dataSource.register(BatchesDataSource)


def directory_names(paths: Sequence[str]) -> list[str]:
    """The shortest endings of the paths that tell them apart."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def find_segments(files: FileSystem, directories: dict[str, str]) -> Iterator[Segment]:
    """Every segment of every replica, and one without a path for each replica."""
    for replica, directory in directories.items():
        starts = log_start_offsets(files, directory)
        for topic_partition, path in sorted(partitions_in(files, directory).items()):
            if topic_partition.topic in IGNORED_TOPICS:
                continue
            logs = [log for log in files.list_directory(path) if _is_log(log)]
            first = int(logs[0].removesuffix(".log")) if logs else 0
            start = max(first, starts.get(topic_partition, 0))
            yield Segment(replica, topic_partition, start, None, 0)
            for log in logs:
                log_path = f"{path}/{log}"
                yield Segment(replica, topic_partition, start, log_path, _size(files, log_path))


def group_segments(segments: Sequence[Segment]) -> list[SegmentGroup]:
    """Tasks of about `TASK_BYTES`, in the order given."""
    groups: list[SegmentGroup] = []
    group: list[Segment] = []
    for segment in segments:
        group.append(segment)
        if sum(one.size for one in group) >= TASK_BYTES:
            groups.append(SegmentGroup(tuple(group)))
            group = []
    return [*groups, SegmentGroup(tuple(group))] if group else groups


def read_headers(file: File) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; stops where the file does not go on with one."""
    size, position = file.size(), 0
    window, window_start = b"", 0
    while position + HEADER_SIZE <= size:
        if position + HEADER_SIZE > window_start + len(window):
            window, window_start = file.read(position, WINDOW_BYTES), position
        header = read_header(memoryview(window), position - window_start)
        if position + header.size > size:
            return
        yield position, header
        position += header.size


def segment_rows(files: FileSystem, segment: Segment) -> "pa.RecordBatch":
    """The rows of one segment, in the order of `SCHEMA`."""
    import pyarrow as pa  # noqa: PLC0415 - only Spark's workers need it

    schema = arrow_schema()
    tp = segment.topic_partition
    who = (segment.replica, tp.topic, tp.partition, segment.log_start_offset)
    if segment.path is None:
        rows: list[tuple[Any, ...]] = [(*who, *[None] * (len(schema) - len(who)))]
    else:
        file = files.open_for_reading(segment.path)
        try:
            name = segment.path.rpartition("/")[2]
            rows = [
                (*who, *_batch_columns(header), name, position)
                for position, header in read_headers(file)
            ]
        finally:
            file.close()
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_schema() -> "pa.Schema":
    """`SCHEMA` in Arrow; Spark compares it to the letter."""
    import pyarrow as pa  # noqa: PLC0415 - only Spark's workers need it

    types = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    fields = (field.split() for field in SCHEMA.replace("\n", " ").split(","))
    return pa.schema([pa.field(name, types[kind]) for name, kind in fields])


def _batch_columns(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.crc,
        header.size,
        header.record_count,
        header.max_timestamp,
    )


def _is_log(name: str) -> bool:
    return name.endswith(".log") and name.removesuffix(".log").isdigit()


def _size(files: FileSystem, path: str) -> int:
    file = files.open_for_reading(path)
    try:
        return file.size()
    finally:
        file.close()
