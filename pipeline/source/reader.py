"""From options to tasks, and from a task to Arrow: reads of a batch.

    options ──> what is there ──> [start, end) of each partition ──> tasks ──> record batches
                (Directories, Brokers)        filters ──┘

Rule 1: where to begin and to end is decided once, on the driver. A task reads those offsets
and no others, as often as Spark runs it.

Rule 2: Spark calls `pushFilters` only where `spark.sql.python.filterPushdown.enabled` is on,
and where it is off refuses every reader that has such a method. It plans the two in workers of
different modules, so the worker that is here says which reader to be.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.source.columns import Projection
from pipeline.source.errors import OptionError
from pipeline.source.filters import Narrowing, narrow
from pipeline.source.offsets import EARLIEST, LATEST, check_same_partitions
from pipeline.source.options import Bound, ReadOptions
from pipeline.source.plan import OffsetRange, ranges_between
from pipeline.source.settings import ReadSettings
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class Part(Protocol):
    """What a task reads without a break: one partition, some offsets."""

    def read(self, settings: ReadSettings) -> Iterator["pa.RecordBatch"]: ...


class Logs(Protocol):
    """What there is to be read, in directories or at brokers, as of now."""

    expects_all: bool
    """Whether a topic that is named and not there is an error; a stream has more to say of it."""

    def partitions(self) -> set[TopicPartition]: ...

    def topic_ids(self) -> dict[str, str]: ...

    def earliest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def latest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def log_ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Of all that is there, committed or not."""

    def at_time(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]: ...

    def tasks(
        self, ranges: Sequence[OffsetRange], narrowing: Narrowing
    ) -> Sequence[tuple[Part, ...]]: ...

    def refresh(self) -> None:
        """What is there now."""


@attrs.frozen
class Task(InputPartition):
    """What Spark hands to an executor."""

    parts: tuple[Part, ...]


def logs_of(options: ReadOptions) -> Logs:
    """The directories or the brokers that the options name."""
    if options.fetching is None:
        from pipeline.source.directories import LogDirectories  # noqa: PLC0415 - one of the two

        return LogDirectories(options)
    from pipeline.source.brokers import Brokers  # noqa: PLC0415 - the other

    return Brokers(options, options.fetching)


def settings_of(
    options: ReadOptions, names: Sequence[str], narrowing: Narrowing | None = None
) -> ReadSettings:
    return ReadSettings(
        projection=Projection(tuple(names)),
        narrowing=narrowing or Narrowing(),
        fetching=options.fetching,
        read_committed=options.read_committed,
        check_crcs=options.check_crcs,
        skip_corrupt=options.skip_corrupt,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def resolve(
    bound: Bound, logs: Logs, partitions: set[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """The offsets that an option means, now."""
    if bound.each is not None:
        check_same_partitions(bound.option, bound.each, partitions)
    told = {tp: _told(bound, tp) for tp in partitions}
    if not bound.are_timestamps:
        found = {tp: number for tp, number in told.items() if number >= 0}
        found |= logs.earliest([tp for tp, number in told.items() if number == EARLIEST])
        return found | logs.latest([tp for tp, number in told.items() if number == LATEST])
    at_time = logs.at_time(told)
    found = {tp: offset for tp, offset in at_time.items() if offset is not None}
    late = sorted(partitions - found.keys())
    if late and bound.strict:
        raise OptionError(
            f"option {bound.option}: nothing at or after {told[late[0]]} in"
            f" {', '.join(map(str, late))}; startingOffsetsByTimestampStrategy=latest begins at the end"
        )
    return found | logs.latest(late)


def _told(bound: Bound, tp: TopicPartition) -> int:
    number = bound.everywhere if bound.each is None else bound.each[tp]
    assert number is not None, "a bound says something for each partition"
    return number


@attrs.define
class RecordsReader(DataSourceReader):
    """A batch of records, by offsets."""

    options: ReadOptions
    names: Sequence[str]
    narrowing: Narrowing = attrs.field(factory=Narrowing)

    def partitions(self) -> Sequence[InputPartition]:
        logs = logs_of(self.options)
        wanted = {tp for tp in logs.partitions() if self.narrowing.admits(tp)}
        # Options are held against all partitions: a filter does not make one right.
        start = resolve(self.options.starting, logs, logs.partitions())
        end = resolve(self.options.ending, logs, logs.partitions())
        ranges = [each for each in ranges_between(start, end) if each.tp in wanted]
        return [Task(parts) for parts in logs.tasks(ranges, self.narrowing)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        settings = settings_of(self.options, self.names, self.narrowing)
        return read_task(partition, settings)


class PushdownReader(RecordsReader):
    """The same, where Spark pushes filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        self.narrowing, left = narrow(filters)
        return left


def reader_class() -> type[RecordsReader]:
    """Rule 2."""
    return PushdownReader if _PUSHDOWN_WORKER in sys.modules else RecordsReader


def read_task(task: InputPartition, settings: ReadSettings) -> Iterator["pa.RecordBatch"]:
    """What stands in its parts; a plan without tasks is one that is none of ours."""
    if isinstance(task, Task):
        for part in task.parts:
            yield from part.read(settings)
