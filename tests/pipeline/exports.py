"""An export without Spark: its data source is planned and read in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow.dataset as ds

from pipeline.export.deserialisers import Deserialiser
from pipeline.export.job import Exported, export
from pipeline.export.source import ExportDataSource
from pipeline.export.target import Target
from pipeline.export.writing import Format


@attrs.define
class InProcess:
    """As much of a SparkSession as an export asks for."""

    _options: dict[str, str] = attrs.field(factory=dict)

    @property
    def dataSource(self) -> "InProcess":  # noqa: N802 - Spark's name
        return self

    @property
    def read(self) -> "InProcess":
        self._options = {}
        return self

    def register(self, source: type) -> None:
        assert source is ExportDataSource

    def format(self, name: str) -> "InProcess":
        assert name == ExportDataSource.name()
        return self

    def option(self, name: str, value: str) -> "InProcess":
        self._options[name] = value
        return self

    def options(self, **given: str) -> "InProcess":
        self._options |= given
        return self

    def load(self) -> "InProcess":
        return self

    def collect(self) -> list["Row"]:
        reader = ExportDataSource(self._options).reader(None)  # type: ignore[arg-type]  # unused
        tasks = reader.partitions()
        batches = [batch for task in tasks for batch in reader.read(task)]
        return [Row(row) for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]  # of Arrow


@attrs.frozen
class Row:
    fields: dict[str, Any]

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.fields


def made(key: str = "bytes", value: str = "bytes", *, headers: bool = False) -> Format:
    return Format(
        key=Deserialiser(key), value=Deserialiser(value), headers=headers, compression="zstd"
    )


def format_for(target: Target) -> Format:
    """Return the format that a target has, or the plainest one."""
    found: Format | None = getattr(target, "format", None)
    return found or made()


def run(options: Mapping[str, str], target: Target, format_: Format | None = None) -> Exported:
    session: Any = InProcess()
    return export(session, options, target, format_ or format_for(target))


def exported(directory: Path) -> list[dict[str, Any]]:
    """Return the rows that a reader finds there, in order of partition and offset."""
    found = ds.dataset(directory, partitioning="hive", format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))
