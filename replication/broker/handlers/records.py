"""DeleteRecords: the request that moves the log start offset of partitions (KIP-107).

A partition that is named twice is moved to the offset that is named last, and answered once
(KafkaApis.handleDeleteRecordsRequest).
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.replica_manager import DeleteRecordsResult
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.types import Offset, TopicPartition

Offsets: TypeAlias = dict[TopicPartition, Offset]

_UNKNOWN = DeleteRecordsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def delete_records(
    node: BrokerNode, _: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    asked, known = await in_steps(_asked(node.metadata.image, request))
    results = await node.replica_manager.delete_records.delete(known, timeout_ms=request.timeout_ms)
    return DeleteRecordsResponse(topics=await in_steps(_answers(asked, results)))


def _asked(image: MetadataImage, request: DeleteRecordsRequest) -> Steps[tuple[Offsets, Offsets]]:
    """Return the offset of each named partition, and the same for those that exist."""
    asked: Offsets = {}
    known: Offsets = {}
    for topic in request.topics:
        yield 1
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            asked[partition] = each.offset
            if image.partition(partition) is not None:
                known[partition] = each.offset
            yield 1
    return asked, known


def _answers(
    asked: Iterable[TopicPartition], results: Mapping[TopicPartition, DeleteRecordsResult]
) -> Steps[list[DeleteRecordsTopicResult]]:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for partition in asked:
        yield 1
        result = results.get(partition, _UNKNOWN)
        answer = topics.setdefault(partition.topic, DeleteRecordsTopicResult(name=partition.topic))
        answer.partitions.append(
            DeleteRecordsPartitionResult(
                partition_index=partition.partition,
                low_watermark=result.low_watermark,
                error_code=result.error,
            )
        )
    return list(topics.values())
