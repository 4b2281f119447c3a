"""AddPartitionsToTxn: the partitions that may not be added, and the answer to the request.

A request is carried out as a whole or not at all: if one partition may not be added, the others
are answered OPERATION_NOT_ATTEMPTED (KafkaApis.handleAddPartitionsToTxnRequest).
"""

from collections.abc import Container, Iterable, Mapping
from functools import partial

from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.steps import Steps, each_of
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from storage.types import TopicPartition


def not_attempted(
    image: MetadataImage, topics: Iterable[AddPartitionsToTxnTopic], denied: Container[str] = ()
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Return the errors of all partitions if some may not be added; else an empty dictionary."""
    partitions = yield from partitions_of(topics)
    faults = yield from each_of(lambda each: _fault_of(image, each, denied), partitions)
    if set(faults) <= {ErrorCode.NONE}:
        return {}
    others = ErrorCode.OPERATION_NOT_ATTEMPTED
    return {each: fault or others for each, fault in zip(partitions, faults, strict=True)}


def _fault_of(image: MetadataImage, partition: TopicPartition, denied: Container[str]) -> ErrorCode:
    if partition.topic in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if image.partition(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> Steps[list[TopicPartition]]:
    partitions = []
    for topic in topics:
        partitions += yield from each_of(partial(TopicPartition, topic.name), topic.partitions)
    return partitions


def by_topic(
    errors: Mapping[TopicPartition, ErrorCode],
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for partition, error in errors.items():
        name = partition.topic
        answer = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        answer.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition.partition, partition_error_code=error
            )
        )
        yield 1
    return list(topics.values())
