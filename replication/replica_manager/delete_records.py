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

import attrs
import trio

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.replica_manager.delayed import DelayedOutcomes
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import DeleteRecordsResult, code_of
from replication.wire.metadata import INTERNAL_TOPICS
from storage.errors import KafkaStorageError, StorageError
from storage.types import Offset, TopicPartition


@attrs.define(eq=False, kw_only=True)
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
        required: dict[TopicPartition, Offset] = {}
        for topic_partition, offset in offsets.items():
            try:
                required[topic_partition] = self._delete_before(topic_partition, offset)
            except KafkaError as error:
                results[topic_partition] = DeleteRecordsResult(error=error.code)
            except StorageError as error:
                results[topic_partition] = DeleteRecordsResult(error=code_of(error))
        delayed = DelayedOutcomes(self.hosted, dict(required), Partition.deleted)
        if not delayed.satisfied():
            await self.purgatory.wait(delayed, required, timeout_ms=timeout_ms)
        else:
            await trio.lowlevel.checkpoint()
        for topic_partition, offset in required.items():
            error_code = delayed.outcomes.get(topic_partition, ErrorCode.REQUEST_TIMED_OUT)
            results[topic_partition] = self._result(topic_partition, offset, error_code)
        return {each: results[each] for each in offsets}

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
