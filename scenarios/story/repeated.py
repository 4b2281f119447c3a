"""The values that may be in a log twice, though nothing is wrong.

A producer writes a record twice if its answer was lost and a broker does not know the second
attempt for what it is: it carries no sequence, the records by which the broker knew its sequence
are deleted, or it carries another sequence.

A copier copies records twice if what it was to read next is deleted, and the next leader has not
heard of that: it begins where that log does.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from replication.errors import ErrorCode
from scenarios.world.client import NoAnswer, SentRecords
from scenarios.world.clients.witness import Ending, WitnessedTransaction
from storage.types import Offset, TopicPartition

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE.name, ErrorCode.RECORD_LIST_TOO_LARGE.name)


def repeated_values(batches: Sequence[SentRecords], *, trimmed: bool) -> frozenset[str]:
    """Return the values that may be there twice: they were sent again without a sequence, with one
    whose records, by which brokers know it, may be deleted, or with another one.
    """
    again = (
        each
        for each in batches
        if each.attempts > 1 and (trimmed or (each.sequence is None and each.producer is None))
    )
    return frozenset(value for batch in [*again, *_renumbered(batches)] for value in batch.values)


def _renumbered(batches: Iterable[SentRecords]) -> Iterator[SentRecords]:
    """Yield the batches that were under way when one of the same idempotent producer was too large.

    The producer begins its sequences anew, and numbers those that have no answer again: one whose
    answer was lost is written twice, as by Kafka's producer (KIP-360).
    """
    of_producers = defaultdict(list)
    for each in batches:
        if each.producer is not None:
            of_producers[each.producer, each.partition].append(each)
    for sent in of_producers.values():
        given_up = [
            each.answered_at
            for each in sent
            if isinstance(each.outcome, NoAnswer) and each.outcome.cause in _TOO_LARGE
        ]
        for each in sent:
            until = each.answered_at if each.acked else math.inf
            if any(each.sent_at <= at <= until for at in given_up):
                yield each


def copied_twice(
    transactions: Iterable[WitnessedTransaction], log_starts: Mapping[TopicPartition, Offset]
) -> frozenset[str]:
    """Return the values that copiers have read again because the next record was deleted.

    `log_starts` has the latest log start of all replicas of each partition.
    """
    again = set()
    positions: dict[tuple[TopicPartition, TopicPartition], Offset] = defaultdict(int)
    for each in transactions:
        if each.ending is Ending.ABORTED or not each.copied:
            continue
        for batch, (source, offset, value) in zip(each.batches, each.copied, strict=True):
            copy = source, batch.partition
            if offset < positions[copy] < log_starts.get(source, 0):
                again.add(value)
            positions[copy] = max(positions[copy], offset + 1)
    return frozenset(again)
