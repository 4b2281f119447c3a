"""ListOffsets and OffsetForLeaderEpoch: the start, the end and the epoch ends of a partition's log.

    timestamp   asks for                                             since version
    t >= 0      the first record at or after t                       1
    -1, -2      the end (as far as the asker may see), the start     1
    -3          the record with the largest timestamp (KIP-734)      7
    -4          the start of what is on this disk (KIP-405)          8
    -5          the end of what is in tiered storage (KIP-1005)      9
    -6          the start of what is not tiered yet (KIP-1023)       11

Version 0 asks for the boundaries of segments instead (legacy_offsets.py).
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from replication.broker.handlers.fetch import READ_COMMITTED
from replication.broker.handlers.legacy_offsets import as_a_consumer_sees, legacy_offsets
from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import Isolation
from replication.net.pace import in_steps
from replication.replica_manager import ListOffsetsResult
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from replication.wire.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.batch.allowance import Allowance
from storage.log.time_lookup import LongLookUpError, LongSearch
from storage.types import TopicPartition

SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
OFFSET_NOT_AVAILABLE_SINCE = 5  # KIP-207
LOOK_UP = 16
"""The work of answering for one partition, in items of a list: files may have to be read."""


async def list_offsets(
    node: BrokerNode, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    long: list[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]] = []
    topics = await in_steps(_list_topics(node, context, request, long))
    for topic, asked, answer in long:
        look_up = _look_up(node, request, TopicPartition(topic, asked.partition_index), asked)
        _fill(answer, await node.replica_manager.offsets.finish_look_up(look_up), context.version)
    return ListOffsetsResponse(topics=topics)


def _list_topics(
    node: BrokerNode,
    context: RequestContext,
    request: ListOffsetsRequest,
    long: list[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]],
) -> Steps[list[ListOffsetsTopicResponse]]:
    """Answer for each partition; one that is named twice is refused, each time.

    A partition that takes a long search is left without an answer, and added to `long`.
    """
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            named[topic.name, asked.partition_index] += 1
            yield 1
        yield 1
    topics = []
    for topic in request.topics:
        yield 1
        if not topic.partitions:
            continue
        answer = ListOffsetsTopicResponse(name=topic.name)
        topics.append(answer)
        for asked in topic.partitions:
            if named[topic.name, asked.partition_index] > 1:
                refusal = ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=ErrorCode.INVALID_REQUEST
                )
                answer.partitions.append(refusal)
                yield 1
            else:
                one = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                if context.version == 0:
                    partition = TopicPartition(topic.name, asked.partition_index)
                    one = yield from _list_segments(node, partition, request.replica_id, asked)
                    answer.partitions.append(one)
                    continue
                try:
                    one = _list_one(node, context, request, topic.name, asked)
                except LongLookUpError:
                    long.append((topic.name, asked, one))
                answer.partitions.append(one)
                yield LOOK_UP
    return topics


def _list_one(
    node: BrokerNode,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    if context.version < SINCE_VERSION.get(asked.timestamp, 0):
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION
        )
    answer = ListOffsetsPartitionResponse(partition_index=index)
    result = _look_up(node, request, TopicPartition(topic, index), asked)(None)
    _fill(answer, result, context.version)
    return answer


def _look_up(
    node: BrokerNode,
    request: ListOffsetsRequest,
    partition: TopicPartition,
    asked: ListOffsetsPartition,
) -> Callable[[LongSearch | None], ListOffsetsResult]:
    """Return the look-up of one partition; called, it raises LongLookUpError where it is long."""
    committed = request.isolation_level == READ_COMMITTED
    return lambda after: node.replica_manager.offsets.list_offsets(
        partition,
        timestamp=asked.timestamp,
        isolation=Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK,
        current_leader_epoch=asked.current_leader_epoch,
        replica_id=request.replica_id,
        allowance=Allowance(),
        after=after,
    )


def _fill(answer: ListOffsetsPartitionResponse, result: ListOffsetsResult, version: int) -> None:
    answer.error_code = _error(result, version)
    answer.timestamp = result.timestamp
    answer.offset = result.offset
    answer.leader_epoch = result.leader_epoch


def _list_segments(
    node: BrokerNode, partition: TopicPartition, replica_id: int, asked: ListOffsetsPartition
) -> Steps[ListOffsetsPartitionResponse]:
    """Answer ListOffsets 0; the look-up of the log end also shows whether this broker leads."""
    yield LOOK_UP
    end = node.replica_manager.offsets.list_offsets(
        partition, timestamp=LATEST, isolation=Isolation.HIGH_WATERMARK, replica_id=replica_id
    )
    unknown = asked.timestamp < EARLIEST
    error = ErrorCode.UNSUPPORTED_VERSION if unknown else _error(end, 0)
    log = node.logs.get(partition)
    if error is not ErrorCode.NONE or log is None:
        return ListOffsetsPartitionResponse(partition_index=partition.partition, error_code=error)
    offsets = yield from legacy_offsets(
        log,
        timestamp=asked.timestamp,
        count=asked.max_num_offsets,
        wall_ms=node.clock.wall_ms(),
    )
    if replica_id < 0:
        offsets = as_a_consumer_sees(offsets, end.offset)
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition, old_style_offsets=offsets
    )


def _error(result: ListOffsetsResult, version: int) -> ErrorCode:
    if result.error == ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return result.error


async def offset_for_leader_epoch(
    node: BrokerNode, _: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end of a leader epoch in the leader's log, for each partition (KIP-101)."""
    return OffsetForLeaderEpochResponse(topics=await in_steps(_epoch_ends(node, request)))


def _epoch_ends(
    node: BrokerNode, request: OffsetForLeaderEpochRequest
) -> Steps[list[OffsetForLeaderTopicResult]]:
    topics = []
    for topic in request.topics:
        ends = yield from each_of(partial(_epoch_end, node, topic.topic), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return topics


def _epoch_end(node: BrokerNode, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    result = node.replica_manager.offsets.end_of_leader_epoch(
        TopicPartition(topic, asked.partition),
        leader_epoch=asked.leader_epoch,
        current_leader_epoch=asked.current_leader_epoch,
    )
    return EpochEndOffset(
        error_code=result.error,
        partition=asked.partition,
        leader_epoch=result.leader_epoch,
        end_offset=result.end_offset,
    )
