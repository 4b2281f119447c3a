"""Rules about the producers of one log: how their batches follow each other, and what the log knows.

I18  a producer's batches follow each other: its epoch never falls and begins with sequence 0, no
     sequence is left out or comes twice, and no marker is of a coordinator that had been replaced
I19  a log knows of its producers what its batches say: the last one of each, the transactions that
     are open, and the offset from which on it is not stable; it may forget who has been silent for
     `producer.id.expiration.ms` and has no transaction open

    batches   p7 e0: 0-4    p7 e0: 5-5    p8 e0: 0-0 (transaction)    p8 e0: commit
    known     p7 e0 last 4  p7 e0 last 5  p8 e0 last 0, open from 6   p8 e0 last 0
                                          unstable from 6             so until 7 is committed

A log begins where records were deleted. What a producer wrote before that may be forgotten, so
nothing is compared with it. Compaction leaves gaps: compacted logs are not looked at.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import attrs

from scenarios.checkers.observed import Batch, Written, Wrong
from storage.batch.record_batch import MAX_SEQUENCE, NO_SEQUENCE, NO_TIMESTAMP
from storage.producers.state import ProducerStateManager
from storage.types import Offset

FOLLOW = "a producer's batches follow each other"
KNOWN = "a log knows of its producers what its batches say"


class EndedTransaction(NamedTuple):
    """A transaction that has ended: its first offset, and that of the marker."""

    first: Offset
    marker: Offset


@attrs.define(eq=False)
class KnownProducer:
    """One producer, by its batches alone."""

    epoch: int
    last_sequence: int = NO_SEQUENCE
    sequence_at: Offset = -1
    """The offset of the last record, which has that sequence."""
    last_offset: Offset = -1
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    open_from: Offset | None = None


@attrs.define(eq=False)
class ProducersOfLog:
    """The producers of one log, replayed batch by batch."""

    producers: dict[int, KnownProducer] = attrs.field(factory=dict, init=False)
    ended: list[EndedTransaction] = attrs.field(factory=list, init=False)
    replayed: int = attrs.field(default=0, init=False)
    """The number of the log's batches that have been replayed."""
    began: Offset = attrs.field(default=0, init=False)
    """The offset of the first of them: a transaction may have begun earlier, in batches that were
    deleted, which only a snapshot remembers.
    """
    early_marker: Offset = attrs.field(default=-1, init=False)
    """The last marker whose transaction has no batch among them."""
    stable_until: Offset = attrs.field(default=0, init=False)
    """Nothing that ended before this offset has to wait: it was once below the high watermark, which
    a follower takes from each new leader, or before the log end when producers were read again.
    """

    def forget(self, log_end: Offset) -> None:
        """Begin anew: the log was cut to `log_end`."""
        self.producers.clear()
        self.ended.clear()
        self.replayed, self.stable_until, self.early_marker = 0, log_end, -1

    def follow(self, where: str, batches: Sequence[Batch], *, log_start: Offset) -> Iterator[Wrong]:
        """Replay the batches that are new, and check I18. Before `log_start` any replica may have
        forgotten what there was.
        """
        if not self.replayed:
            self.began = batches[0].base_offset if batches else log_start
        for batch in batches[self.replayed :]:
            self.replayed += 1
            written = batch.written
            if written is not None:
                before = self.producers.get(written.producer_id)
                if before is not None and before.last_offset >= log_start:
                    for what in _misplaced(before, written):
                        yield Wrong(
                            FOLLOW,
                            f"{where}, offset {batch.base_offset}: producer {written.producer_id}"
                            f" in epoch {written.epoch} {what}",
                        )
                self._take(batch, written)

    def _take(self, batch: Batch, written: Written) -> None:
        producer = self.producers.setdefault(written.producer_id, KnownProducer(written.epoch))
        if producer.epoch != written.epoch:
            producer.epoch, producer.last_sequence = written.epoch, NO_SEQUENCE
        producer.last_offset, producer.last_timestamp = batch.last_offset, written.timestamp
        if written.coordinator_epoch is not None:
            producer.coordinator_epoch = written.coordinator_epoch
            if producer.open_from is not None:
                self.ended.append(EndedTransaction(producer.open_from, batch.base_offset))
            else:
                self.early_marker = batch.base_offset
            producer.open_from = None
        else:
            producer.last_sequence, producer.sequence_at = written.last_sequence, batch.last_offset
            if written.is_transactional and producer.open_from is None:
                producer.open_from = batch.base_offset

    def known(
        self,
        where: str,
        state: ProducerStateManager,
        *,
        log_start: Offset,
        high_watermark: Offset,
        now_ms: int,
    ) -> Iterator[Wrong]:
        """Check I19, at `now_ms` of the broker's wall clock."""
        for producer_id, producer in self.producers.items():
            if producer.last_offset < log_start:
                continue
            there = state.producers.get(producer_id)
            is_silent = now_ms - producer.last_timestamp >= state.expiration_ms
            if there is None and is_silent and producer.open_from is None:
                continue
            said, knows = [producer.epoch, producer.last_sequence, producer.open_from], []
            opened = None
            if there is not None:
                opened = there.transaction_first_offset
                knows = [there.producer_epoch, there.last_sequence, opened]
            has_begun_early = opened is not None and opened < self.began
            if producer.open_from is not None and (
                producer.open_from < log_start or has_begun_early
            ):
                said, knows = said[:2], knows[:2]
            # Its records may be deleted, and its last marker still there to be read again.
            if producer.sequence_at < log_start and NO_SEQUENCE in knows[1:2]:
                said[1] = NO_SEQUENCE
            if producer.sequence_at < 0 < self.began:  # a snapshot may have it
                said[1:2] = knows[1:2]
            if knows != said:
                yield Wrong(
                    KNOWN,
                    f"{where}: producer {producer_id} has, as [epoch, last sequence, open from],"
                    f" {said}, and is known by {knows}",
                )
        yield from self._stable(where, state, log_start, high_watermark)

    def _stable(
        self,
        where: str,
        state: ProducerStateManager,
        log_start: Offset,
        high_watermark: Offset,
    ) -> Iterator[Wrong]:
        self.stable_until = max(self.stable_until, high_watermark)
        still_open = [
            each.open_from for each in self.producers.values() if each.open_from is not None
        ]
        waiting = [each for each in self.ended if each.marker >= high_watermark]
        least = min([*still_open, *(each.first for each in waiting)], default=math.inf)
        most = min(
            [
                *(first for first in still_open if first >= log_start),
                *(
                    each.first
                    for each in waiting
                    if each.first >= log_start and each.marker >= self.stable_until
                ),
            ],
            default=math.inf,
        )
        unstable = state.first_unstable_offset
        knows = math.inf if unstable is None else unstable
        if knows < self.began and self._may_have_begun_early(state, high_watermark):
            return
        if not least <= knows <= most:
            yield Wrong(
                KNOWN,
                f"{where}: by its batches it is not stable from {least} to {most} on, and it says"
                f" {knows}; its high watermark is {high_watermark}",
            )

    def _may_have_begun_early(self, state: ProducerStateManager, high_watermark: Offset) -> bool:
        """Return whether a transaction from before the first batch is open, or ends with a marker
        that is not replicated.
        """
        return self.early_marker >= high_watermark or any(
            producer.transaction_first_offset is not None
            and producer.transaction_first_offset < self.began
            for producer in state.producers.values()
        )


def _misplaced(before: KnownProducer, written: Written) -> Iterator[str]:
    """Yield what is wrong with a batch that follows `before`."""
    if written.epoch < before.epoch:
        yield f"comes after epoch {before.epoch}"
    elif written.coordinator_epoch is not None:
        if written.coordinator_epoch < before.coordinator_epoch:
            yield (
                f"has a marker of coordinator epoch {written.coordinator_epoch} after one of"
                f" {before.coordinator_epoch}"
            )
    else:
        last = before.last_sequence if written.epoch == before.epoch else NO_SEQUENCE
        if written.first_sequence != (last + 1) & MAX_SEQUENCE:
            yield f"has sequence {written.first_sequence} after {last}"
