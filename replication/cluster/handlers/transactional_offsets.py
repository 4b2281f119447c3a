"""TxnOffsetCommit: how far a group has read, if the transaction commits (KIP-98, KIP-447)."""

from replication.cluster.groups.commits import commit_in_transaction
from replication.cluster.handlers.group_offsets import fault_of
from replication.cluster.handlers.node import BrokerNode
from replication.cluster.server import RequestContext
from replication.errors import ErrorCode
from replication.groups import CommittedOffset
from replication.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.types import TopicPartition


async def txn_offset_commit(
    node: BrokerNode, _: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    now = node.clock.wall_ms()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            errors[partition] = fault_of(node, partition, each.committed_metadata)
            if errors[partition] is ErrorCode.NONE:
                offsets[partition] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    commit_timestamp=now,
                )
    error = await commit_in_transaction(
        node.groups,
        request.group_id,
        offsets,
        producer=(request.producer_id, request.producer_epoch),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    errors |= dict.fromkeys(offsets, error)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
