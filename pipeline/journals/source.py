"""A Spark data source of events: `spark.read.format("understudy-events")`.

Options:
    path    journal files, or directories that hold `events.journal`, separated by commas

One row for each event, see `rows.py`. A task reads one file of at most 64 MiB, or several
small ones.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from storage.filesystem import OsFileSystem

if TYPE_CHECKING:
    import pyarrow as pa

FILES_PER_TASK = 8


@attrs.frozen
class JournalFiles(InputPartition):
    """The journal files that one task reads."""

    paths: tuple[str, ...]


class EventsDataSource(DataSource):
    """The data source `understudy-events`."""

    @classmethod
    def name(cls) -> str:
        return "understudy-events"

    def schema(self) -> StructType:
        from pipeline.journals.rows import SCHEMA  # noqa: PLC0415 - needs pyarrow

        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        paths = [path.strip() for path in str(self.options.get("path", "")).split(",")]
        if not all(paths):
            raise ValueError("understudy-events: option `path` names no journal")
        return EventsReader(tuple(paths))


@attrs.frozen
class EventsReader(DataSourceReader):
    """Plans files into tasks, and reads a task's events as Arrow."""

    paths: tuple[str, ...]

    def partitions(self) -> Sequence[InputPartition]:
        from pipeline.journals.rows import find_journals  # noqa: PLC0415 - needs pyarrow

        found = find_journals(OsFileSystem(), self.paths)
        tasks = max(1, len(found) // FILES_PER_TASK)
        return [JournalFiles(tuple(found[first::tasks])) for first in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from pipeline.journals.rows import rows_of  # noqa: PLC0415 - only Spark's workers need it

        if isinstance(partition, JournalFiles):
            yield from rows_of(OsFileSystem(), partition.paths)


def read_events(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the events of all journals at `paths`; raise NoJournalError if there is none."""
    from pipeline.journals.rows import find_journals  # noqa: PLC0415 - needs pyarrow

    find_journals(OsFileSystem(), paths)
    session.dataSource.register(EventsDataSource)
    return session.read.format("understudy-events").option("path", ",".join(paths)).load()
