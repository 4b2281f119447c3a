"""What the clients of a story did and received, as the operations of a history.

`judge` and `judge-clients` build their histories of them, and `checkers.anomalies` judges both.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from replication.errors import ErrorCode
from replication.wire.produce import ACKS_ALL
from scenarios.checkers.client_accounts import FinalRecords
from scenarios.world.client import AckedBatch, Refused, SentRecords
from scenarios.world.clients.witness import (
    Began,
    Ending,
    Given,
    Happening,
    WitnessedTransaction,
)
from scenarios.world.history import At, ClientOperation, OperationOutcome, Poll, SentValue
from storage.types import Offset, TopicPartition


def sent_operation(batch: SentRecords, *, may_lose_acks_1: bool, in_order: bool) -> ClientOperation:
    """Return the operation that sent a batch, without an ack that may be lost.

    Its order is promised only while the records last by which brokers know the sequences.
    """
    promised = batch.acks == ACKS_ALL or not may_lose_acks_1
    outcome = OperationOutcome.INFO
    offsets: list[Offset | None] = [None] * len(batch.values)
    if isinstance(batch.outcome, AckedBatch) and promised:
        outcome = OperationOutcome.OK
        offsets = [batch.outcome.base_offset + number for number in range(len(batch.values))]
    elif batch.outcome == Refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        outcome = OperationOutcome.FAIL
    return ClientOperation(
        process=batch.producer or "producer",
        outcome=outcome,
        sends=tuple(
            SentValue(partition=batch.partition, value=value, offset=offset)
            for value, offset in zip(batch.values, offsets, strict=True)
        ),
        invoked=batch.sent_at,
        completed=batch.answered_at,
        in_order=in_order and batch.producer is not None,
    )


def transaction_operation(
    transaction: WitnessedTransaction,
    sound: Collection[TopicPartition],
    counted: Collection[int],
) -> ClientOperation:
    outcome = {Ending.COMMITTED: OperationOutcome.OK, Ending.ABORTED: OperationOutcome.FAIL}
    who = f"{transaction.producer} at {transaction.began_at}"
    return ClientOperation(
        process=transaction.producer,
        outcome=outcome.get(transaction.ending, OperationOutcome.INFO),
        sends=tuple(
            SentValue(partition=batch.partition, value=batch.values[0], offset=_acked_at(batch))
            for batch in transaction.batches
            if id(batch) in counted
        ),
        polls=tuple(
            # Each record by itself: whether a copier skips one, `copies` judges.
            Poll(partition=partition, records=((offset, value),), session=f"{who}: {offset}")
            for partition, offset, value in transaction.copied
            if partition in sound
        ),
        invoked=transaction.began_at,
        completed=transaction.ended_at,
        transactional=True,
        commit_asked=transaction.commit_asked_at,
    )


def _acked_at(batch: SentRecords) -> Offset | None:
    return batch.outcome.base_offset if isinstance(batch.outcome, AckedBatch) else None


def reader_operations(
    partition: TopicPartition, happened: Sequence[Happening], *, log_start: Offset = 0
) -> Iterator[ClientOperation]:
    """Yield the records that readers received; each begins a session where it begins to read.

    A reader begins another one where it goes back from a position below `log_start`, the latest of
    all replicas: its leader had deleted what it was to read next, and the next leader had not yet.
    """
    began: dict[str, Began] = {}
    positions: dict[str, Offset] = {}
    sessions = Counter[str]()
    for each in happened:
        if isinstance(each, Began):
            began[each.reader] = each
            positions.pop(each.reader, None)
            sessions[each.reader] += 1
        elif isinstance(each, Given):
            if each.offset < positions.get(each.reader, 0) < log_start:
                began[each.reader] = attrs.evolve(began[each.reader], at=None)
                sessions[each.reader] += 1
            positions[each.reader] = each.offset + 1
            poll = Poll(
                partition=partition,
                records=((each.offset, each.value),),
                session=f"{each.reader} {sessions[each.reader]}",
                begins=began[each.reader].at,
                read_committed=began[each.reader].read_committed,
                at=each.at,
            )
            yield ClientOperation(process=each.reader, outcome=OperationOutcome.OK, polls=(poll,))


def final_operations(partition: TopicPartition, there: FinalRecords) -> Iterator[ClientOperation]:
    for read_committed in (True, False):
        records = there.visible(read_committed=read_committed).items()
        yield final_operation(partition, records, read_committed=read_committed)


def final_operation(
    partition: TopicPartition, records: Iterable[At], *, read_committed: bool
) -> ClientOperation:
    """Return the poll of everything, once nobody appends any more."""
    poll = Poll(
        partition=partition,
        records=tuple(records),
        session=f"in the end, {read_committed}",
        begins=0,
        to_end=True,
        read_committed=read_committed,
    )
    return ClientOperation(
        process="a reader in the end", outcome=OperationOutcome.OK, polls=(poll,)
    )
