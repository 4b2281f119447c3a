"""One run of an export, from where the last run ended to what is committed now.

    target.begin ──> where it ended ──┐
    the logs ─────> where they end ───┴─> tasks write files ──> target.commit

A run may be killed at any point; after the next run each record is there once (`target.py`).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
from pyspark.sql import SparkSession

from pipeline.export.source import write_files
from pipeline.export.target import ExportError, ExportRun, Target
from pipeline.export.writing import Format, WrittenFile
from pipeline.source.offsets import Position
from pipeline.source.options import parse_read_options
from pipeline.source.reader import Logs, logs_of, resolve
from storage.types import Offset, TopicPartition

_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")


@attrs.frozen
class Exported:
    """The files and offsets of a run."""

    run: str
    files: tuple[WrittenFile, ...]
    offsets: dict[TopicPartition, tuple[Offset, Offset]]

    @property
    def records(self) -> int:
        """The number of records that were written."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the run as the command prints it; spans of offsets end exclusively."""
        offsets = {str(tp): list(span) for tp, span in sorted(self.offsets.items())}
        files = [attrs.asdict(file) for file in self.files]
        return {"run": self.run, "records": self.records, "offsets": offsets, "files": files}


def export(
    session: SparkSession,
    options: Mapping[str, str],
    target: Target,
    made: Format,
    *,
    on_step: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Export what is new; `options` are those of `spark.read.format("understudy")`.

    Options that say where to begin count for partitions that were not exported before.
    """
    for deserialiser in (made.key, made.value):
        deserialiser.check()
    for each in made.formats:
        if each.part in made.deserialised:
            raise ExportError(f"give either a deserialiser or {each.part}.format, not both")
    # Records that are not committed may be truncated, and an export removes nothing.
    read = attrs.evolve(parse_read_options(options, streaming=False), stop_at_high_watermark=True)
    on_step("asking what is there")
    logs = logs_of(read)
    partitions = logs.partitions()
    topic_ids = logs.topic_ids()
    with target.held():
        run = target.begin(partitions, topic_ids)
        start = resolve(read.starting, logs, partitions)
        start |= {tp: run.position.offsets[tp] for tp in partitions & run.position.offsets.keys()}
        if read.fail_on_data_loss:
            _check_nothing_aged_out(logs, run, partitions)
        end = resolve(read.ending, logs, partitions)
        wanted = {tp: (start[tp], end[tp]) for tp in sorted(partitions) if end[tp] > start[tp]}
        if not wanted:
            return Exported(run.name, (), {})
        on_step(f"writing what is new in {len(wanted)} partitions")
        rows = write_files(session, _of_run(options, wanted), run, made).collect()
        files = tuple(WrittenFile(**row.asDict()) for row in rows)
        position = Position({tp: last for tp, (_, last) in wanted.items()}, topic_ids)
        target.commit(run, files, position)
    return Exported(run.name, files, wanted)


def _check_nothing_aged_out(
    logs: Logs, run: ExportRun, partitions: Iterable[TopicPartition]
) -> None:
    earliest = logs.earliest(partitions)
    for tp, kept in sorted(run.position.offsets.items()):
        if earliest.get(tp, kept) > kept:
            raise ExportError(
                f"{tp} begins at offset {earliest[tp]} now, and was exported up to {kept}: what"
                " is between has been deleted. failOnDataLoss=false goes on without it"
            )


def _of_run(
    options: Mapping[str, str], wanted: Mapping[TopicPartition, tuple[Offset, Offset]]
) -> dict[str, str]:
    """Return the options with exactly these offsets."""
    dropped = {name.lower() for name in _SELECTIONS}
    kept = {
        name: text
        for name, text in options.items()
        if name.lower() not in dropped and not name.lower().startswith(("starting", "ending"))
    }
    assigned: dict[str, list[int]] = {}
    for topic, partition in wanted:
        assigned.setdefault(topic, []).append(partition)
    starts = Position({tp: span[0] for tp, span in wanted.items()}).to_json()
    ends = Position({tp: span[1] for tp, span in wanted.items()}).to_json()
    return kept | {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
