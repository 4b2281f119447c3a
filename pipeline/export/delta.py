"""Exports to a Delta table, without a jar: workers write its files, `deltalake` commits them.

    txn  understudy:orders-0            version 900   every offset below is in the table
    txn  understudy:orders-0:topic-id   version ...   the topic's id, as a number
    add  topic=orders/date=2026-11-21/00000003-00007.parquet

Rule 1: the position of a partition is the version of an application's transaction, which Delta
keeps for as long as the table and puts into the same commit as the files (SetTransaction in
its protocol).

Rule 2: the files of a run that died are no part of the table. `DeltaTable.vacuum` removes them.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from pipeline.export.target import ExportRun, topic_made_again
from pipeline.export.writing import Format, WrittenFile
from pipeline.source.offsets import Position
from storage.checkpoint import uuid_bytes
from storage.types import TopicPartition

_APPLICATION: Final = "understudy"
_PARTITIONED_BY: Final = ["topic", "date"]


@attrs.frozen
class DeltaTarget:
    """A Delta table as the target of an export."""

    directory: Path
    format: Format

    def held(self) -> contextlib.nullcontext[None]:
        """Hold nothing: Delta refuses the second commit of the same transaction's version."""
        return contextlib.nullcontext()

    def begin(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> ExportRun:
        table = self._table()
        for topic, topic_id in topic_ids.items():
            if _version(table, _topic_id_name(topic)) not in (None, _as_number(topic_id)):
                raise topic_made_again(topic)
        offsets = {tp: _version(table, str(tp)) for tp in partitions}
        known = {tp: offset for tp, offset in offsets.items() if offset is not None}
        name = uuid.uuid4().hex
        return ExportRun(name=name, directory=self.directory, position=Position(known))

    def commit(
        self,
        run: ExportRun,  # noqa: ARG002 - Target's
        files: Sequence[WrittenFile],
        position: Position,
    ) -> None:
        versions = {str(tp): offset for tp, offset in position.offsets.items()}
        versions |= {_topic_id_name(t): _as_number(id_) for t, id_ in position.topic_ids.items()}
        transactions = [Transaction(_name(each), version) for each, version in versions.items()]
        self._table().create_write_transaction(
            [_add(file) for file in files],
            mode="append",
            schema=self._schema(),
            partition_by=_PARTITIONED_BY,
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def _table(self) -> DeltaTable:
        try:
            return DeltaTable(self.directory)
        except TableNotFoundError:
            return DeltaTable.create(
                self.directory, schema=self._schema(), partition_by=_PARTITIONED_BY
            )

    def _schema(self) -> Any:
        return attrs.evolve(self.format, partition_columns=True).schema()


def _version(table: DeltaTable, of: str) -> int | None:
    found: int | None = table.transaction_version(_name(of))
    return found


def _name(of: str) -> str:
    return f"{_APPLICATION}:{of}"


def _topic_id_name(topic: str) -> str:
    return f"{topic}:topic-id"


def _as_number(topic_id: str) -> int:
    """Return 63 bits of an id, for which a transaction's version has room."""
    return int.from_bytes(uuid_bytes(topic_id)[:8], "big") >> 1


def _add(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={"topic": file.topic, "date": file.date},
        modification_time=int(time.time() * 1000),  # noqa: TID251 - of a file, to be vacuumed by
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
