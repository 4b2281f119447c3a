"""Offsets of the logs held here: by timestamp (ListOffsets), and where a leader epoch ends.

A search that is too long for the event loop raises LongLookUpError; `finish_look_up` runs it in a
thread.
"""

from collections.abc import Callable

from replication.errors import KafkaError
from replication.leader.list_offsets import offset_for_timestamp
from replication.leader.rules.fetch_data import Isolation
from replication.net.seams import Offload
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import EpochEndResult, ListOffsetsResult, code_of
from storage.attributes import define
from storage.batch.allowance import Allowance
from storage.errors import StorageError
from storage.log.time_lookup import LongLookUpError, LongSearch
from storage.types import LeaderEpoch, TopicPartition


@define(eq=False, kw_only=True)
class OffsetsPath:
    """Answers requests for offsets."""

    hosted: HostedPartitions
    offload: Offload
    on_storage_failure: Callable[[], None]

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        *,
        timestamp: int,
        isolation: Isolation | None,
        current_leader_epoch: LeaderEpoch = -1,
        replica_id: int = -1,
        allowance: Allowance | None = None,
        after: LongSearch | None = None,
    ) -> ListOffsetsResult:
        """Return the offset for `timestamp`; `isolation` counts for consumers (`replica_id` -1).

        Raise LongLookUpError if that takes more than `allowance`: see `finish_look_up`.
        """
        try:
            found, offset, epoch = offset_for_timestamp(
                self.hosted.get(topic_partition),
                timestamp=timestamp,
                isolation=isolation,
                current_leader_epoch=current_leader_epoch,
                replica_id=replica_id,
                allowance=allowance,
                after=after,
            )
        except LongLookUpError:
            raise
        except KafkaError as error:
            return ListOffsetsResult(error=error.code)
        except StorageError as error:
            return self._failed(error)
        return ListOffsetsResult(timestamp=found, offset=offset, leader_epoch=epoch)

    async def finish_look_up(
        self, look_up: Callable[[LongSearch | None], ListOffsetsResult]
    ) -> ListOffsetsResult:
        """Return the result of `look_up`, a call of `list_offsets`; run long searches in threads.

        The log may change meanwhile, so `look_up` finds the replica anew each time.
        """
        search = None
        while True:
            try:
                return look_up(search)
            except LongLookUpError as error:
                search = error.search
            try:
                await self.offload(search.run)
            except StorageError as error:
                return self._failed(error)

    def _failed(self, error: StorageError) -> ListOffsetsResult:
        self.on_storage_failure()
        return ListOffsetsResult(error=code_of(error))

    def end_of_leader_epoch(
        self,
        topic_partition: TopicPartition,
        *,
        leader_epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch = -1,
    ) -> EpochEndResult:
        """Return where `leader_epoch`, or the greatest one below it, ends in the log led here."""
        try:
            partition = self.hosted.get(topic_partition)
            partition.check_access(current_leader_epoch, leader_only=True)
        except KafkaError as error:
            return EpochEndResult(error=error.code)
        end = partition.log.end_offset_for_epoch(leader_epoch)
        return EpochEndResult(leader_epoch=end.leader_epoch, end_offset=end.offset)
