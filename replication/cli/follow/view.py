"""The progress of a mirror: a table on a terminal, otherwise a line now and then.

    1 cluster, 3 partitions, 12 records behind, 48.2 MB/s          29 partitions not shown
    PARTITION   LEADER  EPOCH      START         END     LAG   A SECOND
    orders-0         2      7          0     123,456       0        420
    orders-1         3      7          0      98,120      12          0  its leader cannot be reached

The partitions in trouble and those furthest behind come first; the table has at most 30.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from replication.metrics import MetricsRegistry
from replication.mirror import PartitionProgress
from replication.replica_manager.bytes_in import REPLICATION, metric
from replication.visible import visible_line
from storage.types import Offset, TopicPartition

_ROWS = 30


@attrs.frozen(kw_only=True)
class MirrorMoment:
    """The state of a copy at one time."""

    partitions: Sequence[PartitionProgress]
    trouble: str | None
    """Why the source does not answer; None if it does."""
    missing: Sequence[str] = ()
    """Topics of the command line that the source does not have."""
    bytes_per_second: float
    offsets_per_second: Mapping[TopicPartition, float] = attrs.field(factory=dict)

    @property
    def behind(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def caught_up(self) -> bool:
        """Whether every topic is there and every partition has reached the end of the source."""
        followed = [each for each in self.partitions if each.leader is not None]
        is_whole = bool(followed) and not self.missing
        return is_whole and all(each.lag == 0 and not each.trouble for each in followed)

    def line(self) -> str:
        rate = f"{self.bytes_per_second / 1e6:,.1f} MB/s"
        counts = f"{len(self.partitions)} partitions, {self.behind:,} records behind, {rate}"
        troubled = sum(each.trouble is not None for each in self.partitions)
        if troubled:
            counts += f", {troubled} in trouble"
        if self.trouble is not None:
            return f"{counts}; the source does not answer: {self.trouble}"
        return counts + (f"; not in the source: {', '.join(self.missing)}" if self.missing else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "caught_up": self.caught_up,
            "behind": self.behind,
            "trouble": self.trouble,
            "partitions": [
                {
                    "topic": each.topic_partition.topic,
                    "partition": each.topic_partition.partition,
                    "leader": each.leader,
                    "leader_epoch": each.leader_epoch,
                    "log_start_offset": each.log_start_offset,
                    "log_end_offset": each.log_end_offset,
                    "lag": each.lag,
                    "trouble": each.trouble,
                }
                for each in self.partitions
            ],
        }

    def table(self) -> Table:
        title = Text(visible_line(self.line()))
        table = Table(title=title, title_justify="left", title_style="", box=None)
        for name in ("PARTITION", "LEADER", "EPOCH", "START", "END", "LAG", "A SECOND"):
            table.add_column(name, justify="left" if name == "PARTITION" else "right")
        table.add_column("")
        urgent = sorted(self.partitions, key=lambda each: (each.trouble is None, -(each.lag or 0)))
        for each in urgent[:_ROWS]:
            rate = self.offsets_per_second.get(each.topic_partition, 0.0)
            table.add_row(*map(Text, map(visible_line, _cells(each, rate))))
        if len(urgent) > _ROWS:
            table.caption = f"{len(urgent) - _ROWS} more"
        return table


def _cells(progress: PartitionProgress, rate: float) -> tuple[str, ...]:
    return (
        str(progress.topic_partition),
        "-" if progress.leader is None else str(progress.leader),
        str(progress.leader_epoch) if progress.leader_epoch >= 0 else "-",
        f"{progress.log_start_offset:,}",
        f"{progress.log_end_offset:,}",
        "?" if progress.lag is None else f"{progress.lag:,}",
        f"{rate:,.0f}",
        progress.trouble or "",
    )


@attrs.define
class Rates:
    """The rates since the last look: bytes in total, offsets of each partition."""

    metrics: MetricsRegistry
    _then: float
    _bytes: float = 0.0
    _ends: dict[TopicPartition, Offset] = attrs.field(factory=dict)

    def since_last(
        self, now: float, partitions: Sequence[PartitionProgress]
    ) -> tuple[float, dict[TopicPartition, float]]:
        """Return bytes and offsets per second; some time must have passed since the last look."""
        seconds = now - self._then
        name = metric(REPLICATION)
        count = self.metrics.read(name) if name in self.metrics else 0.0
        ends = {each.topic_partition: each.log_end_offset for each in partitions}
        bytes_per_second = (count - self._bytes) / seconds
        offsets = {
            partition: max(0, end - self._ends.get(partition, end)) / seconds
            for partition, end in ends.items()
        }
        self._then, self._bytes, self._ends = now, count, ends
        return bytes_per_second, offsets


def metrics_text(metrics: MetricsRegistry) -> str:
    """Return a line for each metric, sorted by name."""
    lines = sorted(f"{name} {value:g}" for name, value in metrics.snapshot())
    return "\n".join(lines) + "\n"
