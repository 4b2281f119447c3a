"""The transactions that a cleaner has to know of, batch by batch through the log.

    [p7: 10-12][p8: 13-13][abort p7: 14][commit p8: 15]
     aborted     committed
     goes        its keys count       │            │
                                      │            └ may go: in a later round, p8's data gone
                                      └ stays in this round, and so does its index entry

Rule 1: a batch of an aborted transaction goes, and its keys replace nothing.

Rule 2: a marker may go once nothing of its transaction was met before it. When it does go is
its delete horizon's to say, so that a reader half-way through still meets it.

Rule 3: the entry of an aborted transaction is kept for as long as something of it was met:
the segment that takes its marker in takes the entry too.

(CleanedTransactionMetadata in Kafka.)
"""

import heapq
from collections.abc import Iterable

import attrs

from storage.attributes import define
from storage.batch.record_batch import BatchHeader
from storage.batch.records import ControlRecordType, EndTransactionMarker
from storage.log.index.transaction_index import AbortedTransaction
from storage.types import Offset


@define(eq=False)
class CleanedTransactions:
    # Of the markers met, in their order: for the index of the segment that is being written.
    met: list[AbortedTransaction] = attrs.field(factory=list)
    _coming: list[tuple[Offset, AbortedTransaction]] = attrs.field(factory=list)
    _aborting: dict[int, AbortedTransaction] = attrs.field(factory=dict)
    # Of those, the producers of whose data something was met.
    _seen: set[int] = attrs.field(factory=set)
    _committing: set[int] = attrs.field(factory=set)

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions that overlap what is read next; adding one twice does no
        harm.
        """
        for each in aborted:
            heapq.heappush(self._coming, (each.first_offset, each))

    def take_met(self) -> list[AbortedTransaction]:
        met, self.met = self.met, []
        return met

    def on_batch(self, header: BatchHeader) -> bool:
        """Return whether the data batch of `header` was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._seen.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def on_control_batch(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Return whether `marker` ends a transaction of which nothing is left. It is None for an empty
        batch, and for a type that is not known.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            # Emptied before. What is not known stays.
            return header.record_count == 0
        producer_id = header.producer_id
        if marker.type is ControlRecordType.COMMIT:
            left = producer_id in self._committing
            self._committing.discard(producer_id)
            return not left
        aborted = self._aborting.pop(producer_id, None)
        left = aborted is not None and producer_id in self._seen
        self._seen.discard(producer_id)
        if left and aborted is not None:
            self.met.append(aborted)
        return not left

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, aborted = heapq.heappop(self._coming)
            # One that has ended before was added twice, by two segments that it spans.
            if aborted.last_offset >= offset:
                self._aborting.setdefault(aborted.producer_id, aborted)
