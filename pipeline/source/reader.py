"""Batch reads: from options to tasks, and from a task to Arrow.

    options ──> what is there ──> [start, end) of each partition ──> tasks ──> record batches
                (Directories, Brokers)        filters ──┘

Rule 1: the driver decides once where a read begins and ends. A task reads exactly those offsets,
as often as Spark runs it.

Rule 2: Spark calls `pushFilters` only if `spark.sql.python.filterPushdown.enabled` is on, and if
it is off refuses every reader that has this method. It plans the two in workers of different
modules, so the module of the worker shows which reader to use.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.source.columns import FormatColumns, Projection, SourceReadSettings
from pipeline.source.errors import OptionError
from pipeline.source.filters import Narrowing, narrow
from pipeline.source.offsets import check_same_partitions
from pipeline.source.options import Bound, ReadOptions
from pipeline.source.plan import OffsetRange, ranges_between
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ReadRange(Protocol):
    """A range of offsets of one partition that a task reads in one go."""

    def read(self, settings: SourceReadSettings) -> Iterator["pa.RecordBatch"]: ...


class Logs(Protocol):
    """The logs to be read, in directories or at brokers, as of now."""

    expects_all: bool
    """Whether a named topic that is not there is an error; a stream treats it as a loss."""

    def partitions(self) -> set[TopicPartition]: ...

    def topic_ids(self) -> dict[str, str]: ...

    def earliest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def latest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def log_ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the log end offsets, committed or not."""

    def at_time(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]: ...

    def tasks(
        self, ranges: Sequence[OffsetRange], narrowing: Narrowing
    ) -> Sequence[tuple[ReadRange, ...]]: ...

    def refresh(self) -> None:
        """Forget the view of the logs, so that the next call looks again."""


@attrs.frozen
class Task(InputPartition):
    """A task for an executor."""

    parts: tuple[ReadRange, ...]


def logs_of(options: ReadOptions) -> Logs:
    """Return the directories or the brokers that the options name."""
    if options.fetching is None:
        from pipeline.source.directories import LogDirectories  # noqa: PLC0415 - one of the two

        return LogDirectories(options)
    from pipeline.source.brokers import Brokers  # noqa: PLC0415 - the other

    return Brokers(options, options.fetching)


def settings_of(
    options: ReadOptions,
    names: Sequence[str],
    formats: tuple[FormatColumns, ...] = (),
    narrowing: Narrowing | None = None,
) -> SourceReadSettings:
    return SourceReadSettings(Projection(tuple(names), formats), narrowing or Narrowing(), options)


def resolve(
    bound: Bound, logs: Logs, partitions: set[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return the offsets that an option means now; raise OptionError if it has none."""
    if bound.each is not None:
        check_same_partitions(bound.option, bound.each, partitions)
    given = {tp: _given(bound, tp) for tp in partitions}
    if not bound.are_timestamps:
        found = {tp: number for tp, number in given.items() if number >= 0}
        found |= logs.earliest([tp for tp, number in given.items() if number == EARLIEST])
        return found | logs.latest([tp for tp, number in given.items() if number == LATEST])
    at_time = logs.at_time(given)
    found = {tp: offset for tp, offset in at_time.items() if offset is not None}
    late = sorted(partitions - found.keys())
    if late and bound.strict:
        raise OptionError(
            f"option {bound.option}: nothing at or after {given[late[0]]} in"
            f" {', '.join(map(str, late))}; startingOffsetsByTimestampStrategy=latest begins at the end"
        )
    return found | logs.latest(late)


def _given(bound: Bound, tp: TopicPartition) -> int:
    number = bound.everywhere if bound.each is None else bound.each[tp]
    assert number is not None, "a bound has a number for each partition"
    return number


@attrs.define
class RecordsReader(DataSourceReader):
    """A batch read of records by offsets."""

    options: ReadOptions
    names: Sequence[str]
    formats: tuple[FormatColumns, ...] = ()
    narrowing: Narrowing = attrs.field(factory=Narrowing)

    def partitions(self) -> Sequence[InputPartition]:
        logs = logs_of(self.options)
        wanted = {tp for tp in logs.partitions() if self.narrowing.admits(tp)}
        # Options are checked against all partitions, whatever filters leave.
        start = resolve(self.options.starting, logs, logs.partitions())
        end = resolve(self.options.ending, logs, logs.partitions())
        ranges = [each for each in ranges_between(start, end) if each.tp in wanted]
        return [Task(parts) for parts in logs.tasks(ranges, self.narrowing)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        settings = settings_of(self.options, self.names, self.formats, self.narrowing)
        return read_task(partition, settings)


class PushdownReader(RecordsReader):
    """A batch read into which Spark pushes filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        self.narrowing, left = narrow(filters)
        return left


def reader_class() -> type[RecordsReader]:
    """Return the reader for this worker of Spark: rule 2."""
    return PushdownReader if _PUSHDOWN_WORKER in sys.modules else RecordsReader


def read_task(task: InputPartition, settings: SourceReadSettings) -> Iterator["pa.RecordBatch"]:
    """Yield the records of a task; Spark passes another kind for a plan without tasks."""
    if isinstance(task, Task):
        for part in task.parts:
            yield from part.read(settings)
