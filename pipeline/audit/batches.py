"""A Spark data source of record batches.

    spark.read.format("understudy-batches")     one row for each batch: `headers.SCHEMA`
    spark.readStream.format(...)                the same as logs grow (`growing.py`)

Options:
    path         log directories, one or many, separated by commas
    names        what to call the replicas, in the same order; the shortest endings of the
                 directories that tell them apart where left out
    partitions   only these, as JSON: [["orders", 0], ["orders", 3]]
    checkCrcs    true: read every byte, and check the CRC-32C of every batch
    settleMs     a stream: how long what one replica holds may be missing on another one

The readers run in Spark's worker processes, on whichever machine can see the paths: one
laptop, or a mounted file system.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.audit.headers import SegmentHeaders


@attrs.frozen
class SegmentGroup(InputPartition):
    """The segments that one task reads."""

    segments: "tuple[SegmentHeaders, ...]"


@attrs.frozen
class WhatToRead:
    """The options of the data source, parsed."""

    directories: dict[str, str]
    only: frozenset[TopicPartition] | None
    check_crcs: bool

    @classmethod
    def from_options(cls, source: str, options: Mapping[str, str]) -> "WhatToRead":
        from pipeline.audit.replicas import directory_names  # noqa: PLC0415 - needs pyarrow

        paths = [path.strip() for path in str(options.get("path", "")).split(",")]
        if not all(paths):
            raise ValueError(f"{source}: option `path` names no log directory")
        given = options.get("names")
        names = given.split(",") if given else directory_names(paths)
        if len(names) != len(paths) or len(set(names)) != len(names):
            raise ValueError(f"{source}: option `names` must name each path once")
        partitions = options.get("partitions")
        return cls(
            dict(zip(names, paths, strict=True)),
            None if partitions is None else _partitions(source, partitions),
            str(options.get("checkCrcs", "false")).lower() == "true",
        )


class BatchesDataSource(DataSource):
    """The data source `understudy-batches`: its name, schema and reader."""

    @classmethod
    def name(cls) -> str:
        return "understudy-batches"

    def schema(self) -> StructType:
        from pipeline.audit.headers import SCHEMA  # noqa: PLC0415 - needs pyarrow

        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's
        try:
            from pipeline.audit.growing import GrowingBatches  # noqa: PLC0415 - not in Spark 4.1
        except ImportError as error:
            raise ValueError(f"{self.name()}: streams need Spark 4.2") from error
        settle_ms = str(self.options.get("settleMs", "10000"))
        if not settle_ms.isdecimal():
            raise ValueError(f"{self.name()}: option `settleMs` is no number: {settle_ms}")
        what = WhatToRead.from_options(self.name(), self.options)
        return GrowingBatches(what, int(settle_ms))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return BatchesReader(WhatToRead.from_options(self.name(), self.options))


@attrs.define
class BatchesReader(DataSourceReader):
    """Plans segments into tasks, and reads a task's headers as Arrow."""

    what: WhatToRead

    def partitions(self) -> Sequence[InputPartition]:
        from pipeline.audit.replicas import find_replicas, segments_of, tasks  # noqa: PLC0415

        files = OsFileSystem()
        replicas = find_replicas(files, self.what.directories, self.what.only)
        segments = (segment for replica in replicas for segment in segments_of(files, replica))
        return [SegmentGroup(group) for group in tasks(segments)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from pipeline.audit.headers import rows_of  # noqa: PLC0415 - only Spark's workers need it

        if isinstance(partition, SegmentGroup):  # None stands for a plan without tasks
            yield from rows_of(
                OsFileSystem(), iter(partition.segments), check_crcs=self.what.check_crcs
            )


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    spark.dataSource.register(BatchesDataSource)


def _partitions(source: str, text: str) -> frozenset[TopicPartition]:
    try:
        return frozenset(
            TopicPartition(str(topic), int(number)) for topic, number in json.loads(text)
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f'{source}: option `partitions` is not JSON like [["orders", 0]]: {text[:80]}'
        ) from error
