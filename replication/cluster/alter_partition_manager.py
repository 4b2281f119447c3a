"""Asks the controller to change in-sync replica sets (AlterPartition, KIP-497).

    submit ──> queue, one place for each partition ──> one request in flight ──> answers
                   ^                                          │
                   └── a top-level error: all of them again after 50 ms

Rule 1: one request in flight for the broker, carrying everything queued when it is sent.

Rule 2: an answer about the broker as a whole (stale epoch, not the controller, no
connection) is no answer about a partition: all are asked again, for ever. Leadership
moves on by metadata, and a submitter who has seen it move cancels.

Rule 3: a partition that the answer leaves out stays queued.
"""

from collections.abc import Callable

import attrs
import trio

from replication.cluster.controller_channel import ControllerCalls
from replication.errors import ErrorCode, PeerUnavailableError
from replication.isr import IsrAnswer, IsrProposal
from replication.net.seams import NodeClock
from replication.wire.alter_partition import (
    RECOVERED,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from storage.types import TopicId, TopicPartition

RETRY_BACKOFF_SECONDS = 0.05


@attrs.define(eq=False)
class _Change:
    """One partition's place in the queue."""

    topic_id: TopicId
    proposal: IsrProposal
    answer: IsrAnswer | None = None
    answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, kw_only=True)
class AlterPartitionManager:
    """One for each broker; `run` sends what `submit` queues."""

    broker_id: int
    broker_epoch: Callable[[], int]
    channel: ControllerCalls
    clock: NodeClock
    timeout_ms: int
    _queued: dict[TopicPartition, _Change] = attrs.field(factory=dict, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        """What the controller says; OPERATION_NOT_ATTEMPTED while an earlier change is out."""
        if partition in self._queued:
            return IsrAnswer(error=ErrorCode.OPERATION_NOT_ATTEMPTED)
        change = _Change(topic_id, proposal)
        self._queued[partition] = change
        self._work.set()
        try:
            await change.answered.wait()
        finally:
            if self._queued.get(partition) is change:
                del self._queued[partition]
        assert change.answer is not None, "an answered change has its answer"
        return change.answer

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            if not self._queued:
                self._work = trio.Event()
            elif not await self._send(dict(self._queued)):
                await self.clock.sleep(RETRY_BACKOFF_SECONDS)

    async def _send(self, changes: dict[TopicPartition, _Change]) -> bool:
        """Whether the controller answered for the partitions one by one."""
        try:
            response = await self.channel.call(self._request(changes), timeout_ms=self.timeout_ms)
        except PeerUnavailableError:
            return False
        assert isinstance(response, AlterPartitionResponse), "an answer decodes as what was asked"
        if response.error_code != ErrorCode.NONE:
            return False
        return self._settle(changes, response)

    def _request(self, changes: dict[TopicPartition, _Change]) -> AlterPartitionRequest:
        topics: dict[TopicId, list[PartitionData]] = {}
        for partition, change in changes.items():
            topics.setdefault(change.topic_id, []).append(
                PartitionData(
                    partition_index=partition.partition,
                    leader_epoch=change.proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                        for member in change.proposal.isr
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=change.proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch(),
            topics=[
                TopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _settle(
        self, changes: dict[TopicPartition, _Change], response: AlterPartitionResponse
    ) -> bool:
        """Hand out the answers; whether every change got one (those left out are sent again)."""
        answers = {
            (topic.topic_id, data.partition_index): IsrAnswer(
                error=ErrorCode.of(data.error_code),
                leader_epoch=data.leader_epoch,
                partition_epoch=data.partition_epoch,
                isr=frozenset(data.isr),
            )
            for topic in response.topics
            for data in topic.partitions
        }
        complete = True
        for partition, change in changes.items():
            answer = answers.get((change.topic_id, partition.partition))
            if answer is None:
                complete = False
                continue
            change.answer = answer
            change.answered.set()
            # At once, not when the submitter wakes up: it may submit its next change first.
            if self._queued.get(partition) is change:
                del self._queued[partition]
        return complete
