"""The tasks of a run as a Spark data source: each row stands for a file that was written.

    format("understudy-export")   the options of `understudy`, with offsets at both ends, and
        export                    JSON: the files' directory, names and contents

Rule: bytes go from the log to the Parquet file inside the worker. One row for each file travels
through Spark: its name, and its number of records.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.source.columns import FormatColumns, formats_for
from pipeline.source.options import ReadOptions, parse_read_options
from pipeline.source.reader import RecordsReader, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.export.target import ExportRun
    from pipeline.export.writing import Format

OPTION: Final = "export"
# Names that no field of a value can have in the files.
RESERVED: Final = ("date",)
DECLARED: Final = "path string, topic string, date string, rows bigint, size bigint"


@attrs.frozen
class NumberedTask(InputPartition):
    """A task, and the number in the names of its files."""

    number: int
    task: Task


class ExportDataSource(DataSource):
    """The data source `understudy-export`."""

    @classmethod
    def name(cls) -> str:
        return "understudy-export"

    def schema(self) -> str:
        return DECLARED

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        options = {name: self.options[name] for name in self.options}
        plan = json.loads(options.pop(OPTION))
        read = parse_read_options(options, streaming=False)
        return ExportReader(read, plan, formats_for(read, reserved=RESERVED))


@attrs.frozen
class ExportReader(DataSourceReader):
    """A reader that plans the tasks of the records' reader, and writes their records to files."""

    options: ReadOptions
    plan: Mapping[str, Any]
    formats: tuple[FormatColumns, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        planned = RecordsReader(self.options, []).partitions()
        tasks = (task for task in planned if isinstance(task, Task))
        return [NumberedTask(number, task) for number, task in enumerate(tasks)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa  # noqa: PLC0415 - only Spark's workers need it

        from pipeline.export.writing import TaskWriter  # noqa: PLC0415 - as above

        if not isinstance(partition, NumberedTask):  # None stands for a plan without tasks
            return
        made = format_of(self.plan, self.formats)
        name = f"{self.plan['name']}-{partition.number:05d}"
        writer = TaskWriter(Path(self.plan["directory"]), name, made)
        reader = RecordsReader(self.options, made.read_columns(), self.formats)
        for batch in reader.read(partition.task):
            writer.write(batch)
        rows = [attrs.asdict(written) for written in writer.close()]
        types = [pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64()]
        names = ("path", "topic", "date", "rows", "size")
        schema = pa.schema(list(zip(names, types, strict=True)))
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def format_of(plan: Mapping[str, Any], formats: tuple[FormatColumns, ...]) -> "Format":
    """Return the format of the files in a plan."""
    from pipeline.export.deserialisers import Deserialiser  # noqa: PLC0415 - needs pyarrow
    from pipeline.export.writing import Format  # noqa: PLC0415 - as above

    return Format(
        key=Deserialiser(plan["key"]),
        value=Deserialiser(plan["value"]),
        headers=plan["headers"],
        compression=plan["compression"],
        formats=formats,
        partition_columns=plan["partition_columns"],
    )


def write_files(
    session: SparkSession, options: Mapping[str, str], run: "ExportRun", made: "Format"
) -> DataFrame:
    """Return a table that writes the run's files when it is read: a row for each file."""
    session.dataSource.register(ExportDataSource)
    plan = {
        "directory": str(run.directory),
        "name": run.name,
        "key": made.key.name,
        "value": made.value.name,
        "headers": made.headers,
        "compression": made.compression,
        "partition_columns": made.partition_columns,
    }
    reader = session.read.format(ExportDataSource.name()).options(**options)
    return reader.option(OPTION, json.dumps(plan)).load()
