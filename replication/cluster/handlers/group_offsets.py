"""OffsetCommit, OffsetFetch, OffsetDelete: how far groups have read.

A partition that there is not is answered for itself, and the others are committed; so is
metadata that is too long. (KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.)
"""

from collections.abc import Iterable

from replication.cluster.coordinator_log import is_too_long
from replication.cluster.groups.administration import FetchedOffset, delete_offsets, fetch_offsets
from replication.cluster.groups.commits import commit_offsets
from replication.cluster.handlers.node import BrokerNode
from replication.cluster.server import RequestContext
from replication.errors import ErrorCode, KafkaError
from replication.groups import CommittedOffset
from replication.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from replication.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from replication.wire.offset_fetch import (
    NO_OFFSET,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchTopic,
)
from storage.types import TopicPartition

GROUP_NOT_FOUND_SINCE = 9  # of OffsetCommit (KIP-848)
GROUP_ERROR_SINCE = 2  # of OffsetFetch; before, each partition had it
MANY_GROUPS_SINCE = 8  # KIP-709
OWN_RETENTION = -1


async def offset_commit(
    node: BrokerNode, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    errors: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    now = node.clock.wall_ms()
    retention_ms = request.retention_time_ms
    expires = -1 if retention_ms == OWN_RETENTION else now + retention_ms
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
                    expire_timestamp=expires,
                )
    found = context.version >= GROUP_NOT_FOUND_SINCE
    error = await commit_offsets(
        node.groups,
        request.group_id,
        offsets,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND if found else ErrorCode.ILLEGAL_GENERATION,
    )
    if error is not ErrorCode.NONE:
        # What is unknown is unknown whoever coordinates; all else failed with the group.
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors = {each: code if code is unknown else error for each, code in errors.items()}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


def fault_of(node: BrokerNode, partition: TopicPartition, metadata: str | None) -> ErrorCode:
    """What is wrong with one offset, whoever commits it."""
    if node.metadata.image.partition(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    size = len(metadata or "")
    if size > node.config.offset_metadata_max_bytes or is_too_long(metadata):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def offset_fetch(
    node: BrokerNode, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if context.version >= MANY_GROUPS_SINCE:
        stable = request.require_stable
        return OffsetFetchResponse(groups=[_group(node, each, stable) for each in request.groups])
    asked = OffsetFetchGroup(group_id=request.group_id, topics=request.topics)
    answer = _group(node, asked, request.require_stable)
    if answer.error_code != ErrorCode.NONE and context.version < GROUP_ERROR_SINCE:
        failed = FetchedOffset(error=ErrorCode.of(answer.error_code))
        topics = request.topics or []
        return OffsetFetchResponse(topics=_topics(topics, dict.fromkeys(_named(topics), failed)))
    return OffsetFetchResponse(topics=answer.topics, error_code=answer.error_code)


def _group(node: BrokerNode, asked: OffsetFetchGroup, stable: bool) -> OffsetFetchResponseGroup:  # noqa: FBT001 a field of the request
    partitions = None if asked.topics is None else _named(asked.topics)
    try:
        found = fetch_offsets(node.groups, asked.group_id, partitions, require_stable=stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    topics = _topics_of(found) if asked.topics is None else asked.topics
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=_topics(topics, found))


def _named(topics: Iterable[OffsetFetchTopic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes
    ]


def _topics_of(found: Iterable[TopicPartition]) -> list[OffsetFetchTopic]:
    topics: dict[str, OffsetFetchTopic] = {}
    for partition in found:
        topic = topics.setdefault(partition.topic, OffsetFetchTopic(name=partition.topic))
        topic.partition_indexes.append(partition.partition)
    return list(topics.values())


def _topics(
    asked: Iterable[OffsetFetchTopic], found: dict[TopicPartition, FetchedOffset]
) -> list[OffsetFetchResponseTopic]:
    """Answer each topic that was asked about, also one without partitions."""
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                _fetched(index, found[TopicPartition(topic.name, index)])
                for index in topic.partition_indexes
            ],
        )
        for topic in asked
    ]


def _fetched(index: int, fetched: FetchedOffset) -> OffsetFetchResponsePartition:
    answer = OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=fetched.error
    )
    if (committed := fetched.committed) is not None:
        answer.committed_offset = committed.offset
        answer.committed_leader_epoch = committed.leader_epoch
        answer.metadata = committed.metadata
    return answer


async def offset_delete(
    node: BrokerNode, _: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    asked = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    known = [each for each in asked if node.metadata.image.partition(each) is not None]
    try:
        errors = dict(await delete_offsets(node.groups, request.group_id, known))
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, each.partition_index), unknown
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )
