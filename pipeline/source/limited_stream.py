"""A stream with admission control, as Spark has it since 4.2.

maxOffsetsPerTrigger=600     waiting 2000 ──> batches of 600, 600, 600, 200
Trigger.AvailableNow         only the records that are there when the query starts
"""

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.source.offsets import Position
from pipeline.source.stream import RecordsStream


class LimitedStream(RecordsStream, SupportsTriggerAvailableNow):
    """A stream whose micro-batches have a limit."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.progress.next(Position.from_json(start), most).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.progress.target = self.progress.latest()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self.progress.seen().to_json()
