"""The requests for changes of the ISR to the controller (AlterPartition, KIP-497).

    submit ──> the queue, one place for each partition ──> AlterPartition ──> answers

If the controller does not answer, the queue sends the request again, without end. A submitter that
learns from the metadata of another leader cancels its request.
"""

import attrs
import trio

from replication.broker.controller_queue import ControllerQueue
from replication.errors import ErrorCode
from replication.leader.rules.isr import IsrAnswer, IsrProposal
from replication.wire.alter_partition import (
    RECOVERED,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerIdAndEpoch,
)
from storage.attributes import define
from storage.types import TopicId, TopicPartition


@define(eq=False)
class _Change:
    """The requested change of one partition, in the queue."""

    topic_id: TopicId
    proposal: IsrProposal
    answer: IsrAnswer | None = None
    answered: trio.Event = attrs.field(factory=trio.Event)


@define(eq=False, kw_only=True)
class AlterPartitionManager(ControllerQueue[TopicPartition, _Change]):
    """One for each broker."""

    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        """Return the controller's answer; OPERATION_NOT_ATTEMPTED while an earlier change is out."""
        if partition in self._queued:
            return IsrAnswer(error=ErrorCode.OPERATION_NOT_ATTEMPTED)
        change = _Change(topic_id, proposal)
        self._put(partition, change)
        try:
            await change.answered.wait()
        finally:
            self._remove(partition, change)
        assert change.answer is not None, "an answered change has its answer"
        return change.answer

    def _request(self, queued: dict[TopicPartition, _Change]) -> AlterPartitionRequest:
        topics: dict[TopicId, list[AlterPartitionData]] = {}
        for partition, change in queued.items():
            topics.setdefault(change.topic_id, []).append(
                AlterPartitionData(
                    partition_index=partition.partition,
                    leader_epoch=change.proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerIdAndEpoch(
                            broker_id=member.broker_id, broker_epoch=member.broker_epoch
                        )
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
                AlterPartitionTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _settle(
        self, queued: dict[TopicPartition, _Change], response: AlterPartitionResponse
    ) -> bool:
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
        for partition, change in queued.items():
            answer = answers.get((change.topic_id, partition.partition))
            if answer is None:
                complete = False
                continue
            change.answer = answer
            change.answered.set()
            # At once, not when the submitter wakes up: it may submit its next change first.
            self._remove(partition, change)
        return complete
