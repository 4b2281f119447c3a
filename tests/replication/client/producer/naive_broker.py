"""One partition of a broker that knows its producers, as plainly as it can be put (KIP-98).

A producer that it does not know may begin at any sequence (KIP-360).
"""

from collections.abc import Sequence

import attrs

from replication.client.producer.accumulator import BatchAnswer
from replication.client.producer.batch import Stamp
from replication.errors import ErrorCode

REMEMBERED = 5


@attrs.define(eq=False)
class NaiveBroker:
    log: list[int] = attrs.field(factory=list)
    most_records: int = 1000
    """In a batch; what has more is too large."""
    refuses_every: int = 1
    """Every so many values one is no valid record; with 1, all are valid."""
    # By producer id: its epoch, and (base sequence, how many, base offset) of its last batches.
    _producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = attrs.field(factory=dict)

    def restart(self) -> None:
        """Forget all but the last batch of each producer, as a snapshot does."""
        for producer_id, (epoch, batches) in self._producers.items():
            self._producers[producer_id] = epoch, batches[-1:]

    def append(self, stamp: Stamp, values: Sequence[int]) -> BatchAnswer:
        if len(values) > self.most_records:
            return BatchAnswer(error=ErrorCode.MESSAGE_TOO_LARGE)
        if any(value % self.refuses_every == 1 for value in values):
            return BatchAnswer(error=ErrorCode.INVALID_RECORD)
        (producer_id, producer_epoch), sequence = stamp
        is_known = producer_id in self._producers
        epoch, batches = self._producers.get(producer_id, (producer_epoch, []))
        if producer_epoch < epoch:
            return BatchAnswer(error=ErrorCode.INVALID_PRODUCER_EPOCH)
        if producer_epoch > epoch:
            batches = []
        for base_sequence, count, base_offset in batches:
            if (base_sequence, count) == (sequence, len(values)):
                return BatchAnswer(base_offset=base_offset)
        expected = batches[-1][0] + batches[-1][1] if batches else 0
        if is_known and sequence != expected:
            return BatchAnswer(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        batches = [*batches, (sequence, len(values), len(self.log))][-REMEMBERED:]
        self._producers[producer_id] = (producer_epoch, batches)
        base_offset = len(self.log)
        self.log.extend(values)
        return BatchAnswer(base_offset=base_offset)
