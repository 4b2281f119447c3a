"""AddPartitionsToTxn: which partitions may not be added, and the answer that says so.

A request is carried out as a whole or not at all: one partition that may not be added leaves the
others OPERATION_NOT_ATTEMPTED (KafkaApis.handleAddPartitionsToTxnRequest).
"""

from collections.abc import Container, Iterable, Mapping

from replication.errors import ErrorCode
from replication.metadata import MetadataImage
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from storage.types import TopicPartition


def not_attempted(
    image: MetadataImage, topics: Iterable[AddPartitionsToTxnTopic], denied: Container[str] = ()
) -> dict[TopicPartition, ErrorCode]:
    """Return the errors of all partitions if some may not be added; nothing if all may be."""
    errors = {each: _fault_of(image, each, denied) for each in partitions_of(topics)}
    if set(errors.values()) <= {ErrorCode.NONE}:
        return {}
    return {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}


def _fault_of(image: MetadataImage, partition: TopicPartition, denied: Container[str]) -> ErrorCode:
    if partition.topic in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if image.partition(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def by_topic(
    errors: Mapping[TopicPartition, ErrorCode],
) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for partition, error in errors.items():
        topics.setdefault(partition.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition.partition, partition_error_code=error
            )
        )
    return [
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
        for topic, results in topics.items()
    ]
