"""DeleteRecords: move each log's start, and wait for the followers.

    leader    log start 0 ──────> 5        at once; the retention job deletes the segments below
    follower                 0 ──────> 5   by the response to its next fetch;
                                           the fetch after that carries it to the leader
    low watermark      0 ──────────> 5     the least log start: the request is answered

Rule 1: a replica that is not alive is not waited for; it moves its log start when it is back.

Rule 2: the log start is not on disk before its next checkpoint. A crash before that brings back
what the segments still hold, as it does in Kafka.

(ReplicaManager.deleteRecords in Kafka; KIP-107.)
"""

from collections.abc import Callable, Mapping

import trio

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.net.pace import in_steps
from replication.replica_manager.delayed import DelayedOutcomes
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import DeleteRecordsResult, code_of
from replication.steps import Steps, each_of
from replication.wire.metadata import INTERNAL_TOPICS
from storage.attributes import define
from storage.errors import KafkaStorageError, StorageError
from storage.types import Offset, TopicPartition


@define(eq=False, kw_only=True)
class DeleteRecordsPath:
    """The path of DeleteRecords requests, which wait for followers in `purgatory`."""

    hosted: HostedPartitions
    purgatory: Purgatory[TopicPartition]
    fetches: Purgatory[TopicPartition]
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]

    async def delete(
        self, offsets: Mapping[TopicPartition, Offset], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Delete the records below each offset; -1 stands for the high watermark.

        Return one result per entry, once every live follower has done so or the time is up.
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        required = await in_steps(self._delete_each(offsets, results))
        delayed = DelayedOutcomes(self.hosted, dict(required), Partition.deleted)
        await in_steps(each_of(delayed.satisfied_by, list(required)))
        if not delayed.satisfied():
            await self.purgatory.wait(delayed, list(delayed.required), timeout_ms=timeout_ms)
        else:
            await trio.lowlevel.checkpoint()
        return await in_steps(self._results(offsets, results, required, delayed.outcomes))

    def _delete_each(
        self,
        offsets: Mapping[TopicPartition, Offset],
        results: dict[TopicPartition, DeleteRecordsResult],
    ) -> Steps[dict[TopicPartition, Offset]]:
        """Return the log starts to wait for; add to `results` the partitions that are refused."""
        required: dict[TopicPartition, Offset] = {}
        for topic_partition, offset in offsets.items():
            yield 1
            try:
                required[topic_partition] = self._delete_before(topic_partition, offset)
            except KafkaError as error:
                results[topic_partition] = DeleteRecordsResult(error=error.code)
            except StorageError as error:
                results[topic_partition] = DeleteRecordsResult(error=code_of(error))
        return required

    def _results(
        self,
        offsets: Mapping[TopicPartition, Offset],
        refused: Mapping[TopicPartition, DeleteRecordsResult],
        required: Mapping[TopicPartition, Offset],
        outcomes: Mapping[TopicPartition, ErrorCode],
    ) -> Steps[dict[TopicPartition, DeleteRecordsResult]]:
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        for each in offsets:
            yield 1
            outcome = outcomes.get(each, ErrorCode.REQUEST_TIMED_OUT)
            results[each] = refused.get(each) or self._result(each, required[each], outcome)
        return results

    def _delete_before(self, topic_partition: TopicPartition, offset: Offset) -> Offset:
        if topic_partition.topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_partition} is internal")
        partition = self.hosted.get(topic_partition)
        try:
            start = partition.delete_records(offset)
        except KafkaStorageError as error:
            self.on_storage_failure(partition, error)
            raise
        # A fetch that waits has read the old log start, and must be answered with the new one.
        self.fetches.check(topic_partition)
        return start

    def _result(
        self, topic_partition: TopicPartition, offset: Offset, error: ErrorCode
    ) -> DeleteRecordsResult:
        partition = self.hosted.find(topic_partition)
        if error not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            return DeleteRecordsResult(error=error)
        if partition is None or partition.leadership is None:
            # The partition had reached its offset before this broker stopped leading it.
            low = offset if error is ErrorCode.NONE else -1
            return DeleteRecordsResult(error=error, low_watermark=low)
        return DeleteRecordsResult(error=error, low_watermark=partition.leadership.low_watermark)
