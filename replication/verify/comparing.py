"""The comparison of the copies of one partition, wherever each of them is.

    PartitionCopy, ... ── Comparing ──> begin, step, step, ... ──> Same, Different or Alone

Rule 1: the range that all copies have is compared, from the highest log start on.

Rule 2: batches must be equal byte for byte. If a cleaner has been at work in that range, and bytes
are not asked for, what compaction never changes must be equal (`compacted.py`).

Rule 3: steps do not wait. A caller that waits for bytes from a broker does so between them; `run`
is for sources that need no wait.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import attrs
import crc32c

from replication.verify.compacted import CompactedLockStep, KeyLedger, Readable
from replication.verify.lock_step import LockStep, Past
from replication.verify.results import (
    Alone,
    Compared,
    CopyAt,
    Difference,
    Different,
    PartitionResult,
    Same,
)
from storage.attributes import define, frozen
from storage.batch.record_batch import CRC_COVERS_FROM, HEADER_SIZE, BatchHeader
from storage.types import Offset, TopicPartition

_ALL: Final = 2**63 - 1


@frozen(kw_only=True)
class PartitionCopy:
    """One copy of a partition; `stream` begins at its first batch."""

    name: str
    stream: Readable
    start_offset: Offset
    topic_id: str | None = None
    past: Past = attrs.field(factory=Past)


@frozen(kw_only=True)
class Rules:
    """The rules by which copies count as the same."""

    copies: int | None = None
    """The number of copies that there must be, if known; fewer is a difference."""
    exact: bool = False
    """Compare byte for byte, even if a cleaner has been at work."""
    compacted: bool = False
    """Compare by keys, even without a sign of a cleaner."""
    start_offset: Offset = 0
    """The offset below which nothing is compared."""


@define(eq=False)
class Comparing:
    """The comparison of one partition; it has a `result` when `step` returns False."""

    partition: TopicPartition
    copies: Sequence[PartitionCopy]
    rules: Rules = attrs.field(factory=Rules)
    result: PartitionResult | None = attrs.field(init=False, default=None)
    _walk: LockStep = attrs.field(init=False)
    _ledger: KeyLedger | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        start = max([self.rules.start_offset, *(copy.start_offset for copy in self.copies)])
        pasts = [
            attrs.evolve(copy.past, cleaned_before=_ALL) if self.rules.compacted else copy.past
            for copy in self.copies
        ]
        streams = [copy.stream for copy in self.copies]
        compare_batches = partial(compare_bytes, streams)
        if self.rules.exact or all(past.cleaned_before <= start for past in pasts):
            self._walk = LockStep(self.names, streams, start, compare_batches, pasts=pasts)
            return
        self._ledger = KeyLedger(len(streams))
        self._walk = CompactedLockStep(
            self.names,
            streams,
            start,
            compare_batches,
            pasts=pasts,
            readable=streams,
            ledger=self._ledger,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(copy.name for copy in self.copies)

    @property
    def compared(self) -> Compared:
        """The range that was equal so far."""
        return self._walk.compared

    def run(self) -> PartitionResult:
        more = self.begin()
        while more:
            more = self.step()
        assert self.result is not None, "the last step sets it"
        return self.result

    def begin(self) -> bool:
        """Find what differs without reading; return whether there is more to do."""
        start = self._walk.start_offset
        if self.rules.copies is not None and len(self.copies) < self.rules.copies:
            views = [CopyAt(directory=name) for name in self.names]
            self.result = self._different(Difference.MISSING_COPY, start, views)
        elif len(self.copies) == 1:
            self.result = Alone(partition=self.partition, directories=self.names)
        elif len({copy.topic_id for copy in self.copies} - {None}) > 1:
            views = [CopyAt(directory=copy.name, topic_id=copy.topic_id) for copy in self.copies]
            self.result = self._different(Difference.TOPIC_ID, start, views)
        return self.result is None and (self._walk.begin() or self._end())

    def step(self) -> bool:
        return self._walk.step() or self._end()

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _end(self) -> bool:
        divergence, names = self._walk.divergence, self.names
        if divergence is None:
            self.result = Same(
                partition=self.partition,
                directories=names,
                compared=self.compared,
                keys=None if self._ledger is None else self._ledger.keys,
            )
        else:
            self.result = self._different(
                divergence.difference, divergence.offset, divergence.copies
            )
        return False

    def _different(
        self, difference: Difference, offset: Offset, views: Sequence[CopyAt]
    ) -> Different:
        return Different(
            partition=self.partition,
            directories=self.names,
            difference=difference,
            offset=offset,
            copies=tuple(views),
            compared=self.compared,
        )


def compare_bytes(
    streams: Sequence[Readable], headers: Sequence[BatchHeader]
) -> tuple[bool, list[bool]]:
    """Take a batch from each; return if all bytes are equal, and whose CRC-32C matches."""
    equal, crcs = _take_batch(streams, headers)
    return equal, [crc == header.crc for crc, header in zip(crcs, headers, strict=True)]


def _take_batch(
    streams: Sequence[Readable], headers: Sequence[BatchHeader]
) -> tuple[bool, list[int]]:
    firsts = [stream.take(HEADER_SIZE) for stream in streams]
    crcs = [crc32c.crc32c(first[CRC_COVERS_FROM:]) for first in firsts]
    if any(first != firsts[0] for first in firsts):
        for i, header in enumerate(headers):
            for pieces in _pieces(streams[i : i + 1], header.size - HEADER_SIZE):
                crcs[i] = crc32c.crc32c(pieces[0], crcs[i])
        return False, crcs
    equal = True
    for pieces in _pieces(streams, headers[0].size - HEADER_SIZE):
        equal = equal and all(piece == pieces[0] for piece in pieces)
        crcs = [crc32c.crc32c(p, crc) for p, crc in zip(pieces, crcs, strict=True)]
    return equal, crcs


def _pieces(streams: Sequence[Readable], size: int) -> Iterator[list[bytes]]:
    """Yield the next `size` bytes of every stream, in pieces that all of them have at hand."""
    while size:
        count = min(size, *(stream.available for stream in streams))
        yield [stream.take(count) for stream in streams]
        size -= count
