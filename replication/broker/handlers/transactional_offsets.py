"""TxnOffsetCommit: how far a group has read, if the transaction commits (KIP-98, KIP-447)."""

from collections.abc import Mapping

from replication.broker.handlers.group_offsets import offsets_to_commit
from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.groups.commits import commit_in_transaction
from replication.net.pace import in_steps
from replication.replica_manager import TransactionalBatches, support_of_offset_commit
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.batch.record_batch import NO_SEQUENCE
from storage.producers.verification import VerificationGuard
from storage.types import TopicPartition


async def txn_offset_commit(
    node: BrokerNode, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    now = node.clock.wall_ms()
    errors, offsets = await in_steps(offsets_to_commit(node, request.topics, now=now))

    async def verify(partition: TopicPartition) -> VerificationGuard | None:
        batches = TransactionalBatches(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            sequences={partition: NO_SEQUENCE},
        )
        support = support_of_offset_commit(context.version)
        verified = await node.verification.verify(batches, support)
        if partition in verified.errors:
            raise KafkaError(verified.errors[partition], "the group's offsets are not in it")
        return verified.guards.get(partition)

    error = await commit_in_transaction(
        node.groups,
        request.group_id,
        offsets,
        producer=(request.producer_id, request.producer_epoch),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        verify=verify,
    )
    errors |= dict.fromkeys(offsets, error)
    return TxnOffsetCommitResponse(topics=await in_steps(_answers(request, errors)))


def _answers(
    request: TxnOffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    topics = []
    for topic in request.topics:
        yield 1
        if topic.partitions:
            answer = TxnOffsetCommitResponseTopic(name=topic.name)
            topics.append(answer)
            for each in topic.partitions:
                error = errors[TopicPartition(topic.name, each.partition_index)]
                answer.partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                )
                yield 1
    return topics
