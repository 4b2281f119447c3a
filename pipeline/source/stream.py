"""A stream of records: the next offsets, and what counts as a loss.

    checkpoint  {"orders": {"0": 120, "1": 98}}                 the position passed so far
    latest      {"orders": {"0": 131, "1": 98, "2": 4}}   ──>   [120, 131)  nothing  [0, 4)
                                                                                     a new partition

Rule 1: a position never goes back. A log that ends below it has lost records, by an unclean
election or because the topic was created again. A topic's id tells the two apart (KIP-516).

Rule 2: planned offsets are read as planned. After a restart Spark asks for the same offsets
again; if they are gone, that is a loss and is reported.

Rule 3: before a loss is reported, the logs are looked at `fetchOffset.numRetries` times more: a
broker may have just become the leader, or a file is being replaced.

Rule 4: Spark asks an idle query for the latest offsets a hundred times a second. The answer waits
until a tenth of a second has passed since the last look, and is that of a new look: it covers all
that was there when Spark asked, as `processAllAvailable` needs.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pipeline.source.columns import FormatColumns
from pipeline.source.errors import (
    DataLossError,
    OptionError,
    TopicReplacedError,
    UnknownTopicError,
)
from pipeline.source.filters import Narrowing
from pipeline.source.offsets import Position
from pipeline.source.options import ReadOptions
from pipeline.source.plan import limit, ranges_between
from pipeline.source.reader import Logs, Task, logs_of, read_task, resolve, settings_of
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

LEAST_POLL_SECONDS: Final = 0.1

_T = TypeVar("_T")


@attrs.define(eq=False)
class Progress:
    """The state of one stream; it stays on the driver."""

    options: ReadOptions
    logs: Logs
    target: Position | None = None
    """The end of a query that runs once (Trigger.AvailableNow)."""
    _latest: Position | None = attrs.field(init=False, default=None)
    _looked_at: float = attrs.field(init=False, default=-math.inf)
    _moved_at: float = attrs.field(init=False, factory=time.monotonic)

    def initial(self) -> Position:
        logs = self.logs
        # Named topics have to be there when a query begins; later, a missing topic is a loss.
        logs.expects_all = True
        logs.refresh()
        return Position(
            resolve(self.options.starting, logs, logs.partitions()), dict(logs.topic_ids())
        )

    def latest(self) -> Position:
        """Return the latest position, at most once in `LEAST_POLL_SECONDS`."""
        time.sleep(max(0.0, self._looked_at + LEAST_POLL_SECONDS - time.monotonic()))
        return self._look_now()

    def seen(self) -> Position:
        """Return the latest position as of the last look, for reports."""
        return self._look_now() if self._latest is None else self._latest

    def _look_now(self) -> Position:
        self.logs.expects_all = False
        self._latest = self._looked(self._look)
        self._looked_at = time.monotonic()
        return self._latest

    def _look(self) -> Position:
        there = self.logs.partitions()
        return Position(self.logs.latest(there), dict(self.logs.topic_ids()))

    def _looked(self, look: Callable[[], _T]) -> _T:
        """Return what `look` finds now; repeat it if a topic was deleted meanwhile."""
        for _ in range(self.options.num_retries):
            self.logs.refresh()
            try:
                return look()
            except UnknownTopicError as error:
                log.info("%s", error)
        self.logs.refresh()
        return look()

    def next(self, start: Position, most: int | None) -> Position:
        """Return the end of the batch that begins at `start`."""
        latest = self._without_loss(start, self.latest())
        if self.target is not None:
            latest = self._up_to(self.target, start, latest)
        begins = self._begins(start, latest)
        ends = {tp: max(end, begins.get(tp, 0)) for tp, end in latest.offsets.items()}
        if not self._is_worth_it(begins, ends):
            return start
        if most is not None:
            ends = limit(begins, ends, most)
        if any(ends[tp] > begins.get(tp, 0) for tp in ends):
            self._moved_at = time.monotonic()
        return Position(ends, latest.topic_ids)

    def tasks(self, start: Position, end: Position) -> list[InputPartition]:
        self.logs.expects_all = False
        return self._looked(lambda: self._planned(start, end))

    def _planned(self, start: Position, end: Position) -> list[InputPartition]:
        there = Position({}, self.logs.topic_ids())
        self._check_topics(end, there)
        # The next batch begins with the topics that now have these names.
        replaced = _replaced(end, there)
        planned = ranges_between(self._begins(start, end), end.offsets)
        ranges = [each for each in planned if each.tp.topic not in replaced]
        if gone := {each.tp for each in ranges} - self.logs.partitions():
            self._lost(f"{_names(gone)} cannot be read any more: deleted")
            ranges = [each for each in ranges if each.tp not in gone]
        return [Task(parts) for parts in self.logs.tasks(ranges, Narrowing())]

    # -- within

    def _up_to(self, target: Position, start: Position, latest: Position) -> Position:
        """Limit `latest` to `target`; partitions that are newer wait for another query."""
        ends = {**start.offsets, **target.offsets}
        found = {tp: min(end, ends[tp]) for tp, end in latest.offsets.items() if tp in ends}
        return Position(found, latest.topic_ids)

    def _begins(self, start: Position, end: Position) -> dict[TopicPartition, Offset]:
        """Return where each partition of `end` goes on; a new one starts at its beginning."""
        replaced = _replaced(start, end)
        return {tp: 0 if tp.topic in replaced else start.offsets.get(tp, 0) for tp in end.offsets}

    def _without_loss(self, start: Position, latest: Position) -> Position:
        """Return `latest` once it covers `start`; raise DataLossError if it does not and must."""
        for _ in range(self.options.num_retries):
            if not self._missing(start, latest) and not _replaced(start, latest):
                return latest
            time.sleep(self.options.retry_interval_ms / 1000)
            latest = self._look_now()
        self._check_topics(start, latest)
        for said in self._missing(start, latest):
            self._lost(said)
        return latest

    def _missing(self, start: Position, latest: Position) -> list[str]:
        replaced = _replaced(start, latest)
        gone = [tp for tp in start.offsets if tp not in latest.offsets]
        short = [
            tp
            for tp, offset in start.offsets.items()
            if latest.offsets.get(tp, offset) < offset and tp.topic not in replaced
        ]
        ends = self.logs.log_ends(short)
        said = [f"{_names(gone)} cannot be read any more: deleted"] if gone else []
        return said + [
            f"{tp} ends at offset {ends[tp]}, before {start.offsets[tp]}, which was passed:"
            " its log was cut"
            for tp in short
            if ends[tp] < start.offsets[tp]
        ]

    def _check_topics(self, known: Position, there: Position) -> None:
        for topic in sorted(_replaced(known, there)):
            self._lost(
                f"topic {topic} is another than that of the checkpoint: its id was"
                f" {known.topic_ids[topic]} and is {there.topic_ids[topic]}; it was deleted and"
                " made again",
                TopicReplacedError,
            )

    def _is_worth_it(
        self, begins: dict[TopicPartition, Offset], ends: dict[TopicPartition, Offset]
    ) -> bool:
        """Return whether `minOffsetsPerTrigger` records wait, or `maxTriggerDelay` is over."""
        least = self.options.min_offsets_per_trigger
        if least is None or self.target is not None:
            return True
        waited_ms = (time.monotonic() - self._moved_at) * 1000
        waiting = sum(ends[tp] - begins.get(tp, 0) for tp in ends)
        return waiting >= least or waited_ms >= self.options.max_trigger_delay_ms

    def _lost(self, said: str, kind: type[DataLossError] = DataLossError) -> None:
        if self.options.fail_on_data_loss:
            raise kind(f"{said}; failOnDataLoss=false goes on without what is lost")
        log.warning("%s", said)


def _replaced(known: Position, there: Position) -> set[str]:
    """Return the topics whose ids differ: they were deleted and created again."""
    return {
        topic
        for topic, topic_id in known.topic_ids.items()
        if there.topic_ids.get(topic, topic_id) != topic_id
    }


def _names(partitions: Any) -> str:
    return ", ".join(map(str, sorted(partitions)))


@attrs.define(eq=False)
class RecordsStream(DataSourceStreamReader):
    """A stream reader for any version of Spark."""

    options: ReadOptions
    names: Sequence[str]
    formats: tuple[FormatColumns, ...] = ()
    _progress: Progress | None = attrs.field(init=False, default=None)

    @property
    def progress(self) -> Progress:
        """The progress; it is made on the driver on first use, and does not travel with the reader."""
        if self._progress is None:
            self._progress = Progress(self.options, logs_of(self.options))
        return self._progress

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return self.progress.initial().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.progress.tasks(Position.from_json(start), Position.from_json(end))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_task(partition, settings_of(self.options, self.names, self.formats))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps the checkpoint."""


class UnlimitedStream(RecordsStream):
    """A stream reader for Spark 4.1, which has no admission control, and no streams from us."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - as it was in 4.1
        raise OptionError(
            "streams need Spark 4.2: earlier versions do not pass a source the current offset"
        )


def stream_class() -> type[RecordsStream]:
    """Return the stream reader for this Spark; sources with limits have a base class since 4.2."""
    try:
        from pipeline.source.limited_stream import LimitedStream  # noqa: PLC0415 - not in Spark 4.1
    except ImportError:
        return UnlimitedStream
    return LimitedStream
