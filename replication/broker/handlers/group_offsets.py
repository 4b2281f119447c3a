"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: the offsets of groups.

An unknown partition, or metadata that is too long, is refused, and the offsets of the other
partitions are committed. (KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.)
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.topic_ids import add_ids, are_by_id, refused, with_names
from replication.coordinator.log import is_too_long
from replication.errors import ErrorCode, KafkaError
from replication.groups.administration import FetchedOffset, delete_offsets, fetch_offsets
from replication.groups.commits import commit_in_transaction, commit_offsets
from replication.groups.rules.offsets import CommittedOffset
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.replica_manager import TransactionalBatches, support_of_offset_commit
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.apis import ApiKey
from replication.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetCommitTopic,
)
from replication.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from replication.wire.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchTopic,
)
from replication.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.batch.record_batch import NO_SEQUENCE
from storage.producers.verification import VerificationGuard
from storage.types import NO_OFFSET, NO_TOPIC_ID, TopicPartition

EPOCHS_SINCE = 9  # of OffsetCommit (KIP-848)
GROUP_NOT_FOUND_IN_TRANSACTION_SINCE = 6  # of TxnOffsetCommit (KIP-1319), and stale epochs too
GROUP_ERROR_SINCE = 2  # of OffsetFetch; before, each partition had it
MANY_GROUPS_SINCE = 8  # KIP-709
OWN_RETENTION = -1

Answer = TypeVar("Answer")


async def offset_commit(
    node: BrokerNode, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    now = node.clock.wall_ms()
    retention_ms = request.retention_time_ms
    expires = -1 if retention_ms == OWN_RETENTION else now + retention_ms
    errors, offsets = await in_steps(
        _offsets_to_commit(node, request.topics, now=now, expires=expires)
    )
    error = await commit_offsets(
        node.groups,
        request.group_id,
        offsets,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        knows_epochs=context.version >= EPOCHS_SINCE,
    )
    if isinstance(error, dict):
        errors |= error
    elif error is not ErrorCode.NONE:
        # What is unknown is so at any coordinator; all else failed with the group.
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors = {each: code if code is unknown else error for each, code in errors.items()}
    topics = _answer_each(
        request.topics, errors.__getitem__, OffsetCommitResponseTopic, OffsetCommitResponsePartition
    )
    return OffsetCommitResponse(topics=await in_steps(topics))


async def txn_offset_commit(
    node: BrokerNode, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit offsets that count once the transaction commits (KIP-98, KIP-447)."""
    now = node.clock.wall_ms()
    errors, offsets = await in_steps(_offsets_to_commit(node, request.topics, now=now))

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
        names_faults=context.version >= GROUP_NOT_FOUND_IN_TRANSACTION_SINCE,
        verify=verify,
    )
    errors |= error if isinstance(error, dict) else dict.fromkeys(offsets, error)
    topics = _answer_each(
        request.topics,
        errors.__getitem__,
        TxnOffsetCommitResponseTopic,
        TxnOffsetCommitResponsePartition,
    )
    return TxnOffsetCommitResponse(topics=await in_steps(topics))


def _offsets_to_commit(
    node: BrokerNode,
    topics: Iterable[OffsetCommitTopic] | Iterable[TxnOffsetCommitRequestTopic],
    *,
    now: int,
    expires: int = -1,
) -> Steps[tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, CommittedOffset]]]:
    """Return the error of each offset that cannot be committed, and the offsets that can."""
    errors: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        yield 1
        for each in topic.partitions:
            yield 1
            partition = TopicPartition(topic.name, each.partition_index)
            errors[partition] = _fault_of(node, partition, each.committed_metadata)
            if errors[partition] is ErrorCode.NONE:
                offsets[partition] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    commit_timestamp=now,
                    expire_timestamp=expires,
                )
    return errors, offsets


def _answer_each(
    topics: Iterable[Any],
    error_of: Callable[[TopicPartition], ErrorCode],
    answer_topic: Callable[..., Answer],
    answer_partition: Callable[..., Any],
) -> Steps[list[Answer]]:
    """Return an answer for each topic with partitions, in which each partition has its error."""
    answers = []
    for topic in topics:
        yield 1
        partitions = []
        for each in topic.partitions:
            error = error_of(TopicPartition(topic.name, each.partition_index))
            partitions.append(
                answer_partition(partition_index=each.partition_index, error_code=error)
            )
            yield 1
        if partitions:
            answers.append(answer_topic(name=topic.name, partitions=partitions))
    return answers


def _fault_of(node: BrokerNode, partition: TopicPartition, metadata: str | None) -> ErrorCode:
    """Return the error of one offset of a commit."""
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
        by_id = are_by_id(ApiKey.OFFSET_FETCH, context.version)
        group = partial(_group_by_id if by_id else _group, node, stable=request.require_stable)
        return OffsetFetchResponse(groups=await in_steps(_groups(group, request)))
    asked = OffsetFetchGroup(group_id=request.group_id, topics=request.topics)
    answer = await in_steps(_group(node, asked, stable=request.require_stable))
    if answer.error_code != ErrorCode.NONE and context.version < GROUP_ERROR_SINCE:
        failed = FetchedOffset(error=ErrorCode.of(answer.error_code))
        topics = request.topics or []
        named = await in_steps(_named(topics))
        answers = await in_steps(_topics(topics, dict.fromkeys(named, failed)))
        return OffsetFetchResponse(topics=answers)
    return OffsetFetchResponse(topics=answer.topics, error_code=answer.error_code)


def _groups(
    group: Callable[[OffsetFetchGroup], Steps[OffsetFetchResponseGroup]],
    request: OffsetFetchRequest,
) -> Steps[list[OffsetFetchResponseGroup]]:
    """Answer a request for all offsets of a group once, even if it names the group several times."""
    answers = []
    whole: set[str] = set()
    for asked in request.groups:
        yield 1
        if asked.topics is None and asked.group_id in whole:
            continue
        answers.append((yield from group(asked)))
        if asked.topics is None:
            whole.add(asked.group_id)
    return answers


def _group_by_id(
    node: BrokerNode, asked: OffsetFetchGroup, *, stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    """Answer with ids; leave out topics that were not named and have none (KafkaApis)."""
    image = node.metadata.image
    unknown: list[OffsetFetchTopic] = []
    if asked.topics is not None:
        asked.topics, unknown = yield from with_names(image, asked.topics)
    answer = yield from _group(node, asked, stable=stable)
    if answer.error_code == ErrorCode.NONE:
        yield from add_ids(image.topics, answer.topics)
        answer.topics = [each for each in answer.topics if each.topic_id != NO_TOPIC_ID]
        answer.topics += yield from refused(OffsetFetchResponseTopic, unknown)
    return answer


def _group(
    node: BrokerNode, asked: OffsetFetchGroup, *, stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    partitions = None
    if asked.topics is not None:
        partitions = yield from _named(asked.topics)
    try:
        found = yield from fetch_offsets(
            node.groups,
            asked.group_id,
            partitions,
            require_stable=stable,
            member_id=asked.member_id,
            member_epoch=asked.member_epoch,
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    topics = (yield from _topics_of(found)) if asked.topics is None else asked.topics
    answers = yield from _topics(topics, found)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=answers)


def _named(topics: Iterable[OffsetFetchTopic]) -> Steps[list[TopicPartition]]:
    named = []
    for topic in topics:
        named += yield from each_of(partial(TopicPartition, topic.name), topic.partition_indexes)
    return named


def _topics_of(found: Iterable[TopicPartition]) -> Steps[list[OffsetFetchTopic]]:
    topics: dict[str, OffsetFetchTopic] = {}
    for partition in found:
        yield 1
        topic = topics.setdefault(partition.topic, OffsetFetchTopic(name=partition.topic))
        topic.partition_indexes.append(partition.partition)
    return list(topics.values())


def _topics(
    asked: Iterable[OffsetFetchTopic], found: Mapping[TopicPartition, FetchedOffset]
) -> Steps[list[OffsetFetchResponseTopic]]:
    """Answer each topic that was asked about, also one without partitions."""
    answers = []
    for topic in asked:
        fetched = yield from each_of(partial(_fetched, found, topic.name), topic.partition_indexes)
        answers.append(OffsetFetchResponseTopic(name=topic.name, partitions=fetched))
    return answers


def _fetched(
    found: Mapping[TopicPartition, FetchedOffset], topic: str, index: int
) -> OffsetFetchResponsePartition:
    fetched = found[TopicPartition(topic, index)]
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
    known = await in_steps(_known(node.metadata.image, request))
    try:
        errors = dict(await delete_offsets(node.groups, request.group_id, known))
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    topics = _answer_each(
        request.topics,
        lambda partition: errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        OffsetDeleteResponseTopic,
        OffsetDeleteResponsePartition,
    )
    return OffsetDeleteResponse(topics=await in_steps(topics))


def _known(image: MetadataImage, request: OffsetDeleteRequest) -> Steps[list[TopicPartition]]:
    known = []
    for topic in request.topics:
        yield 1
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if image.partition(partition) is not None:
                known.append(partition)
            yield 1
    return known
