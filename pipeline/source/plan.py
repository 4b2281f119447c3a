"""Offset ranges cut into tasks.

    partition 0  [0 ....................... 900)      -> task 1 [0, 450)   task 2 [450, 900)
    partition 1  [40 .. 90)    partition 2  [7 .. 9)  -> task 3: both

Rule 1: each record is in exactly one task, however ranges are cut.

Rule 2: a task is about `TASK_BYTES` of files, or less if `minPartitions` asks for more tasks;
small ranges share a task. A read from brokers has one task for each partition, unless
`minPartitions` or `maxRecordsPerPartition` ask for more (KafkaOffsetRangeCalculator in Spark).
"""

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from pipeline.source.offsets import Offsets
from storage.types import Offset, TopicPartition

TASK_BYTES: Final = 64 * 1024 * 1024

_T = TypeVar("_T")


class OffsetRange(NamedTuple):
    """Records of `tp` from offset `start` to `end`, which is exclusive."""

    tp: TopicPartition
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges between two positions; partitions whose end is not beyond their start have none."""
    found = (OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end.keys() & start.keys()))
    return [each for each in found if each.size > 0]


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Cut ranges so that none is longer than `max_records`, and there are `min_partitions`.

    Larger ranges are cut into more parts. There are fewer parts if there are not enough offsets.
    """
    found = [part for each in ranges for part in cut(each, _parts(each.size, max_records))]
    if min_partitions is None or len(found) >= min_partitions or not found:
        return found
    total = sum(each.size for each in found)
    wanted = [max(1, round(each.size / total * min_partitions)) for each in found]
    while sum(wanted) < min_partitions:
        # The range with the longest parts is cut once more.
        longest = max(range(len(found)), key=lambda at: found[at].size / wanted[at])
        if found[longest].size <= wanted[longest]:
            break
        wanted[longest] += 1
    return [part for each, count in zip(found, wanted, strict=True) for part in cut(each, count)]


def _parts(size: int, most: int | None) -> int:
    return 1 if most is None else -(-size // most)


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into `count` parts whose sizes differ by at most one."""
    count = max(1, min(count, whole.size))
    marks = [whole.start + whole.size * part // count for part in range(count + 1)]
    return [OffsetRange(whole.tp, low, high) for low, high in itertools.pairwise(marks)]


def limit(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, Offset]:
    """Return an end about `most` offsets after the start, in proportion to what waits.

    As in Spark's source (KafkaMicroBatchStream.rateLimit), every partition that has waiting
    records moves on by at least one, and their sum may exceed `most` by as many.
    """
    waiting = {tp: max(0, end[tp] - start.get(tp, end[tp])) for tp in end}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    found = {}
    for tp, size in waiting.items():
        share = most * size / total
        step = int(share) if share >= 1 else -(-most * size // total)
        found[tp] = end[tp] - size + min(step, size)
    return found


def group(pieces: Sequence[tuple[_T, int]], most: int) -> list[tuple[_T, ...]]:
    """Group neighbours while the sum of their sizes stays within `most`."""
    groups: list[tuple[_T, ...]] = []
    waiting: list[_T] = []
    total = 0
    for piece, size in pieces:
        if waiting and total + size > most:
            groups.append(tuple(waiting))
            waiting, total = [], 0
        waiting.append(piece)
        total += size
    return [*groups, tuple(waiting)] if waiting else groups
