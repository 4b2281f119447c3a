"""The verdict on a batch after a broker's answer.

    it is written               NONE, DUPLICATE_SEQUENCE_NUMBER           ACKED
    it is too large             MESSAGE_TOO_LARGE, of several records     SPLIT
    send it again               any retriable error                       RETRY
    its producer is unknown     UNKNOWN_PRODUCER_ID                       see below
    one before it is missing    OUT_OF_ORDER_SEQUENCE_NUMBER              see below
    it is refused               all other errors                          FAILED

A missing batch is on its way or waits to be sent again: then this one is sent again as well,
behind it. If all before it have been acked, the broker has lost records, or never had a batch that
was given up: an idempotent producer goes on under its next epoch, from sequence 0, and a
transactional one cannot (its transaction is aborted).

(Sender.completeBatch, TransactionManager.canRetry.)
"""

import enum

from replication.client.producer.batch import ProducerBatch
from replication.client.producer.partition_queue import PartitionQueue
from replication.errors import ErrorCode
from storage.types import NO_OFFSET, Offset


class Verdict(enum.Enum):
    """The verdicts of the table above."""

    ACKED = "acked"
    SPLIT = "split"
    RETRY = "retry"
    BUMP_AND_RETRY = "bump and retry"
    """Begin sequences anew under the next epoch, then send it again."""
    RESTART_AND_RETRY = "restart and retry"
    """Begin sequences anew under the same epoch, then send it again."""
    FAILED = "failed"


def judge(
    error: ErrorCode,
    batch: ProducerBatch,
    queue: PartitionQueue,
    *,
    log_start_offset: Offset = NO_OFFSET,
) -> Verdict:
    """Return the verdict on `batch`, whether or not there is time left to send it again."""
    match error:
        case ErrorCode.NONE | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return Verdict.ACKED
        case ErrorCode.MESSAGE_TOO_LARGE if batch.count > 1:
            return Verdict.SPLIT
        case ErrorCode.UNKNOWN_PRODUCER_ID if batch.has_sequence:
            return _of_unknown_producer(batch, queue, log_start_offset)
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.has_sequence:
            return _of_out_of_order(batch, queue)
        case _:
            return Verdict.RETRY if error.retriable else Verdict.FAILED


def _of_unknown_producer(
    batch: ProducerBatch, queue: PartitionQueue, log_start_offset: Offset
) -> Verdict:
    if log_start_offset == NO_OFFSET or batch.sequence_was_reset:
        return Verdict.RETRY
    if not batch.transactional:
        return Verdict.BUMP_AND_RETRY
    # All of its records have been deleted, and the state of the producer with them.
    if queue.last_acked_offset < log_start_offset:
        return Verdict.RESTART_AND_RETRY
    return Verdict.FAILED


def _of_out_of_order(batch: ProducerBatch, queue: PartitionQueue) -> Verdict:
    settled = queue.unresolved is None
    if settled and (batch.sequence_was_reset or not queue.is_next_sequence(batch.base_sequence)):
        return Verdict.RETRY
    if batch.transactional:
        return Verdict.FAILED
    if settled or batch.base_sequence == queue.unresolved:
        return Verdict.BUMP_AND_RETRY
    return Verdict.RETRY
