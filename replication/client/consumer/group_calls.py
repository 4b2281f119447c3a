"""What a program asks of its consumer's group: to commit, and what is committed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from replication.client.arguments import as_partition
from replication.client.consumer.opened import AnyPartition, OpenConsumer
from replication.client.consumer.records import OffsetAndMetadata
from replication.client.errors import KafkaTimeoutError
from replication.client.offsets import ConsumerGroupMetadata
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    from replication.client.consumer.group.commits import OnCommitted


class GroupCalls(OpenConsumer):
    """Also for a group that it is not a member of, where partitions are assigned by hand."""

    async def commit(
        self,
        offsets: Mapping[AnyPartition, Offset | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit `offsets`, or everything that was handed over.

        CommitFailedError where the group has gone on without us, RebalanceInProgressError
        where a poll has to join first, KafkaTimeoutError where nobody answered in time.
        """
        coordinator = self._open_coordinator
        wanted = coordinator.consumed() if offsets is None else _offsets(offsets)
        await coordinator.commits.commit(wanted, timeout_ms=self._timeout(timeout_ms))

    def commit_soon(
        self,
        offsets: Mapping[AnyPartition, Offset | OffsetAndMetadata] | None = None,
        callback: "OnCommitted" = lambda _offsets, _error: None,
    ) -> None:
        """The same beside the program, once (commitAsync); `callback` is told what came of it."""
        coordinator = self._open_coordinator
        wanted = coordinator.consumed() if offsets is None else _offsets(offsets)
        coordinator.commits.commit_soon(wanted, callback)

    async def committed(
        self, partition: AnyPartition, *, timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None:
        """What the group has committed of it; None where nothing is."""
        tp, coordinator = as_partition(partition), self._open_coordinator
        timeout_ms = self._timeout(timeout_ms)
        with self._seams.clock.move_on_after(timeout_ms / 1000):
            return (await coordinator.commits.committed([tp]))[tp]
        raise KafkaTimeoutError(
            f"what is committed of {tp} was not told within {timeout_ms:.0f} ms"
        )

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who we are in the group, for a producer's transaction."""
        member = self._open_coordinator.membership
        return ConsumerGroupMetadata(
            group_id=member.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )

    def enforce_rebalance(self, reason: str = "the program wants it") -> None:
        """Join again at the next poll."""
        self._open_coordinator.membership.request_rejoin(reason)
        self._wake()


def _offsets(
    given: Mapping[AnyPartition, Offset | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        as_partition(tp): OffsetAndMetadata(each) if isinstance(each, int) else each
        for tp, each in given.items()
    }
