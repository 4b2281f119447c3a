"""The controller's answers about its log: Fetch, ListOffsets, OffsetForLeaderEpoch, FetchSnapshot,
DescribeQuorum.

    broker, an observer      ── Fetch from 57, last epoch 3 ──>      the controller's log
                             <── records 57 .. high watermark ──     or waits for some
                             <── diverging at (2, 40) ──             the logs diverge there
                             <── snapshot (90, 4) ──                 the controller's begins later
                             ── FetchSnapshot (90, 4) from 0 ──>     piece by piece (KIP-630)

The fetches of observers do not move the high watermark. They have no fetch session: the name of one
partition is no longer than a session id. Session 0 in the answer says so (KIP-227).
"""

from collections.abc import Callable

from replication.config import ListenerConfig
from replication.controller.rules.brokers import FetchedMetadata
from replication.errors import ErrorCode, KafkaError
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from replication.leader.rules.log_reader import diverging_end
from replication.metadata.log import MetadataLog
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from replication.net.seams import NodeClock
from replication.wire import (
    describe_quorum as quorum,
    fetch as wire,
    fetch_snapshot as snapshots,
    offset_for_leader_epoch as epochs,
)
from replication.wire.control_records import VoterEndpoint
from replication.wire.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from replication.wire.metadata import LeaderIdAndEpoch
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, OffsetAndEpoch


async def fetch(
    log: MetadataLog, request: wire.FetchRequest, clock: NodeClock
) -> wire.FetchResponse:
    """Return the records after the fetch offset; wait up to `max_wait_ms` for the first one."""
    error = _refusal(log, request)
    if error is not ErrorCode.NONE:
        return wire.FetchResponse(error_code=error)
    response = _read(log, request)
    if _has_news(response) or request.max_wait_ms <= 0:
        return response
    with clock.move_on_after(request.max_wait_ms / 1000):
        await log.wait_for_advance()
    return _read(log, request)


def _refusal(log: MetadataLog, request: wire.FetchRequest) -> ErrorCode:
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if request.cluster_id not in (None, log.image.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.NONE


def _has_news(response: wire.FetchResponse) -> bool:
    partitions = [data for topic in response.responses for data in topic.partitions]
    return not partitions or any(
        data.error_code
        or data.records
        or data.diverging_epoch != wire.NO_DIVERGENCE
        or data.snapshot_id != wire.NO_SNAPSHOT
        for data in partitions
    )


def _read(log: MetadataLog, request: wire.FetchRequest) -> wire.FetchResponse:
    left = request.max_bytes
    responses = []
    for topic in request.topics:
        error = _topic_error(topic)
        answers = []
        for asked in topic.partitions:
            if error is not ErrorCode.NONE or asked.partition != METADATA_PARTITION.partition:
                answers.append(
                    _answer(log, asked, error=error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )
                continue
            data = _read_partition(log, asked, max_bytes=min(left, asked.partition_max_bytes))
            left = max(0, left - _size(data))
            answers.append(data)
        responses.append(
            wire.FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=answers
            )
        )
    return wire.FetchResponse(responses=responses)


def _topic_error(topic: wire.FetchTopic) -> ErrorCode:
    if topic.topic_id == METADATA_TOPIC_ID:
        return ErrorCode.NONE
    if topic.topic_id != NO_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_ID
    known = topic.topic == METADATA_TOPIC
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read_partition(
    log: MetadataLog, asked: wire.FetchPartition, *, max_bytes: int
) -> wire.PartitionData:
    error = _epoch_error(log, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _answer(log, asked, error=error)
    if _needs_snapshot(log, asked):
        assert log.snapshot is not None, "a needed snapshot is there"
        end = log.snapshot.id
        answer = _answer(log, asked)
        answer.snapshot_id = wire.FetchSnapshotId(end_offset=end.offset, epoch=end.leader_epoch)
        return answer
    if asked.fetch_offset < log.log.log_start_offset:
        return _answer(log, asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    diverging = _divergence(log, asked)
    if diverging is not None:
        epoch, offset = diverging.leader_epoch, diverging.offset
        return _answer(log, asked, diverging=wire.DivergingEpoch(epoch=epoch, end_offset=offset))
    if asked.fetch_offset > log.log_end_offset:
        return _answer(log, asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    found = log.log.read(
        asked.fetch_offset, max_bytes, max_offset_exclusive=log.high_watermark, min_one=True
    )
    answer = _answer(log, asked)
    if found.records is not None:
        answer.records = found.records
    return answer


def _needs_snapshot(log: MetadataLog, asked: wire.FetchPartition) -> bool:
    """Return whether the observer's log ends before this one begins, or in a leader epoch that
    this one no longer has (KafkaRaftClient.validateFetchOffsetAndEpoch).
    """
    if log.snapshot is None:
        return False
    end, epoch = log.snapshot.id, asked.last_fetched_epoch
    if asked.fetch_offset < end.offset:
        return True
    if epoch == NO_LEADER_EPOCH:
        return False
    return epoch < end.leader_epoch or (
        asked.fetch_offset == end.offset and epoch != end.leader_epoch
    )


def _divergence(log: MetadataLog, asked: wire.FetchPartition) -> OffsetAndEpoch | None:
    """Return where the two logs diverge, or None if they do not (KIP-595)."""
    try:
        return diverging_end(
            log.log, fetch_offset=asked.fetch_offset, last_fetched_epoch=asked.last_fetched_epoch
        )
    except KafkaError:
        # This disk has lost that leader epoch: no record of the observer can be trusted.
        return OffsetAndEpoch(log.log.log_start_offset, asked.last_fetched_epoch)


def _epoch_error(log: MetadataLog, current_leader_epoch: LeaderEpoch) -> ErrorCode:
    if current_leader_epoch in (NO_LEADER_EPOCH, log.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < log.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def _answer(
    log: MetadataLog,
    asked: wire.FetchPartition,
    *,
    error: ErrorCode = ErrorCode.NONE,
    diverging: wire.DivergingEpoch = wire.NO_DIVERGENCE,
) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=asked.partition,
        error_code=error,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=log.log.log_start_offset,
        diverging_epoch=diverging,
        current_leader=LeaderIdAndEpoch(
            leader_id=log.image.controller_id, leader_epoch=log.leader_epoch
        ),
    )


def _size(data: wire.PartitionData) -> int:
    records = data.records
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.size


def fetch_snapshot(
    log: MetadataLog, request: snapshots.FetchSnapshotRequest
) -> snapshots.FetchSnapshotResponse:
    if request.cluster_id not in (None, log.image.cluster_id):
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    return snapshots.FetchSnapshotResponse(
        topics=[
            snapshots.TopicSnapshot(
                name=topic.name,
                partitions=[
                    _snapshot(log, topic.name, asked, max_bytes=request.max_bytes)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _snapshot(
    log: MetadataLog, topic: str, asked: snapshots.PartitionSnapshotRequest, *, max_bytes: int
) -> snapshots.PartitionSnapshot:
    answer = snapshots.PartitionSnapshot(
        index=asked.partition, snapshot_id=asked.snapshot_id, position=asked.position
    )
    answer.error_code = _hosting_error(log, topic, asked.partition, asked.current_leader_epoch)
    if answer.error_code != ErrorCode.NONE:
        return answer
    wanted = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if log.snapshot is None or wanted != log.snapshot.id:
        answer.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        return answer
    answer.size = log.snapshot.size
    if not 0 <= asked.position < answer.size:
        answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        return answer
    try:
        answer.unaligned_records = log.snapshot.region(asked.position, max(1, max_bytes))
    except OSError as error:
        raise log.log.fail(error) from error
    return answer


def list_offsets(log: MetadataLog, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return the earliest or the latest offset; the latest is always the high watermark."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_offset(log, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _offset(
    log: MetadataLog, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    answer.error_code = _hosting_error(
        log, topic, asked.partition_index, asked.current_leader_epoch
    )
    if answer.error_code != ErrorCode.NONE:
        return answer
    if asked.timestamp == LATEST:
        answer.offset, answer.leader_epoch = log.high_watermark, log.leader_epoch
    elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.log.earliest_epoch
        answer.offset = log.log.log_start_offset
        answer.leader_epoch = NO_LEADER_EPOCH if epoch is None else epoch
    else:
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
    return answer


def offset_for_leader_epoch(
    log: MetadataLog, request: epochs.OffsetForLeaderEpochRequest
) -> epochs.OffsetForLeaderEpochResponse:
    def end(topic: str, asked: epochs.OffsetForLeaderPartition) -> epochs.EpochEndOffset:
        answer = epochs.EpochEndOffset(partition=asked.partition)
        answer.error_code = _hosting_error(log, topic, asked.partition, asked.current_leader_epoch)
        if answer.error_code == ErrorCode.NONE:
            found = log.log.end_offset_for_epoch(asked.leader_epoch)
            answer.leader_epoch, answer.end_offset = found.leader_epoch, found.offset
        return answer

    return epochs.OffsetForLeaderEpochResponse(
        topics=[
            epochs.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[end(topic.topic, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _hosting_error(
    log: MetadataLog, topic: str, partition: int, current_leader_epoch: LeaderEpoch
) -> ErrorCode:
    if (topic, partition) != METADATA_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _epoch_error(log, current_leader_epoch)


def describe_quorum(
    log: MetadataLog,
    *,
    listener: ListenerConfig,
    fetched: Callable[[int], FetchedMetadata | None],
) -> quorum.DescribeQuorumResponse:
    """Describe a quorum of one voter, this controller, whose observers are the brokers.

    Its log has the name of Kafka's, which clients ask for.
    """
    now_ms = log.seams.clock.wall_ms()
    leader = quorum.QuorumReplica(
        replica_id=log.image.controller_id,
        log_end_offset=log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    described = quorum.DescribedQuorum(
        partition_index=METADATA_PARTITION.partition,
        leader_id=log.image.controller_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[leader],
        observers=[
            quorum.QuorumReplica(
                replica_id=broker_id,
                log_end_offset=last.offset,
                last_fetch_timestamp=last.fetch_ms,
                last_caught_up_timestamp=last.caught_up_ms,
            )
            for broker_id in sorted(log.image.brokers)
            if (last := fetched(broker_id)) is not None
        ],
    )
    where = VoterEndpoint(name=listener.name, host=listener.host, port=listener.port)
    return quorum.DescribeQuorumResponse(
        topics=[
            quorum.DescribedQuorumTopic(topic_name=quorum.QUORUM_TOPIC, partitions=[described])
        ],
        nodes=[quorum.QuorumNode(node_id=log.image.controller_id, listeners=[where])],
    )
