"""DeleteRecords: each partition's log begins at an offset from now on (KIP-107).

A partition that is named twice is moved to the offset that is named last, and answered once
(KafkaApis.handleDeleteRecordsRequest).
"""

from replication.cluster.handlers.node import BrokerNode
from replication.cluster.server import RequestContext
from replication.errors import ErrorCode
from replication.replica_manager import DeleteRecordsResult
from replication.wire.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.types import Offset, TopicPartition

_UNKNOWN = DeleteRecordsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def delete_records(
    node: BrokerNode, _: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    asked: dict[TopicPartition, Offset] = {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in request.topics
        for each in topic.partitions
    }
    image = node.metadata.image
    known = {each: offset for each, offset in asked.items() if image.partition(each) is not None}
    results = await node.replica_manager.delete_records(known, timeout_ms=request.timeout_ms)
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for partition in asked:
        result = results.get(partition, _UNKNOWN)
        answer = topics.setdefault(partition.topic, DeleteRecordsTopicResult(name=partition.topic))
        answer.partitions.append(
            DeleteRecordsPartitionResult(
                partition_index=partition.partition,
                low_watermark=result.low_watermark,
                error_code=result.error,
            )
        )
    return DeleteRecordsResponse(topics=list(topics.values()))
