"""Exports to an Iceberg table, without a jar: workers write its files, `pyiceberg` commits them.

    DIRECTORY/catalog.db                                    pyiceberg's SQL catalog: table understudy.records
    DIRECTORY/metadata/...                                  the table's metadata
    DIRECTORY/data/run-00000003/topic=orders/date=.../...   the data of run 3
    property  understudy.position                           the offsets that run 3 has reached, and the topics' ids
    property  understudy.run                                3

Rule 1: the files and the properties are one commit, the exchange of the table's metadata in the
catalog. Properties stay when snapshots expire.

Rule 2: the directory of a run that the table does not know is that of a run that died; the next
run has the same number, and removes it first.

Rule 3: a commit is not repeated by itself (`commit.retry.num-retries`): another export might have
committed the same records meanwhile.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy import URL

from pipeline.export.target import (
    ExportError,
    ExportRun,
    check_topics,
    directory_held,
    merged_position,
    sync_file,
)
from pipeline.export.writing import Format, WrittenFile
from pipeline.source.offsets import Position
from storage.types import TopicPartition

NAMESPACE: Final = "understudy"
TABLE: Final = f"{NAMESPACE}.records"
CATALOG: Final = "catalog.db"
_POSITION: Final = "understudy.position"
_RUN: Final = "understudy.run"
# Values have no statistics (rule 4 of `writing.py`), and pyiceberg should not ask for them.
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.metrics.column.value": "none",
}
_PARTITIONED_BY: Final = ("topic", "date")


@attrs.frozen
class IcebergTarget:
    """An Iceberg table as the target of an export; its files have the columns topic and date too."""

    directory: Path
    format: Format

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory's lock; raise ExportError if another export has it."""
        return directory_held(self.directory, self.directory / ".lock")

    def begin(
        self,
        partitions: Iterable[TopicPartition],  # noqa: ARG002 - Target's
        topic_ids: Mapping[str, str],
    ) -> ExportRun:
        with self._table() as table:
            number, position = _state(table)
        check_topics(position, topic_ids)
        directory = self.directory / "data" / f"run-{number + 1:08d}"
        if directory.exists():
            shutil.rmtree(directory)
        return ExportRun(name=f"{number + 1:08d}", directory=directory, position=position)

    def commit(self, run: ExportRun, files: Sequence[WrittenFile], position: Position) -> None:
        paths = [run.directory / file.path for file in files]
        for path in paths:
            sync_file(path)
        with self._table() as table:
            number, kept = _state(table)
            if number + 1 != int(run.name):
                raise ExportError(f"another export to {self.directory} was faster")
            reached = json.dumps(merged_position(kept, position).to_json())
            with table.transaction() as transaction:
                transaction.set_properties({_POSITION: reached, _RUN: str(int(run.name))})
                if paths:
                    transaction.add_files(
                        [_uri(path) for path in paths], check_duplicate_files=False
                    )

    @contextmanager
    def _table(self) -> Iterator[Table]:
        with open_catalog(self.directory) as catalog:
            try:
                found = catalog.load_table(TABLE)
            except NoSuchTableError:
                found = self._create(catalog)
            yield found

    def _create(self, catalog: SqlCatalog) -> Table:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        with (
            catalog.create_table_transaction(
                TABLE,
                schema=self.format.schema(),
                location=_uri(self.directory),
                properties=_PROPERTIES,
            ) as transaction,
            transaction.update_spec() as spec,
        ):
            for name in _PARTITIONED_BY:
                spec.add_identity(name)
        return catalog.load_table(TABLE)


@contextmanager
def open_catalog(directory: Path) -> Iterator[SqlCatalog]:
    """Open the catalog of an export's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    database = URL.create("sqlite", database=str(directory / CATALOG)).render_as_string()
    catalog = SqlCatalog(NAMESPACE, uri=database, warehouse=_uri(directory))
    try:
        yield catalog
    finally:
        catalog.close()


def _uri(path: Path) -> str:
    """Return a path as pyiceberg takes it, which decodes no percent signs."""
    return f"file://{path}"


def _state(table: Table) -> tuple[int, Position]:
    """Return the number of the last run, and the offsets that it reached."""
    properties: Mapping[str, Any] = table.properties
    kept = Position.from_json(json.loads(properties.get(_POSITION, "{}")))
    return int(properties.get(_RUN, "0")), kept
