"""The answers of a controller about its log: Fetch, FetchSnapshot, DescribeQuorum.

    another node             ── Fetch from 57, last epoch 3 ──>      the leader's log
                             <── records from 57 on ─────────        or waits for some
                             <── diverging at (2, 40) ──             the logs diverge there
                             <── snapshot (90, 4) ──                 the leader's begins later
                             ── FetchSnapshot (90, 4) from 0 ──>     piece by piece (KIP-630)

Rule 1: a voter gets all that there is, an observer only what is committed, so that a broker never has
to undo what it has applied. Kafka's observers get all, and apply what is committed.

Rule 2: a fetch that waits is answered as soon as there are records for it, or the high watermark is
above the one that it names (KIP-1166): a standby knows what is committed.

There is no fetch session: the name of one partition is no longer than a session id. Session 0 in the
answer says so (KIP-227).

"""

from collections.abc import Callable, Collection
from typing import Protocol

import trio

from replication.errors import ErrorCode
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from replication.metadata.log import MetadataLog
from replication.metadata.rules.checkpoint import BOOTSTRAP_SNAPSHOT_ID
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from replication.raft.envelopes import leader_id_of, node_endpoints
from replication.raft.node import RaftNode
from replication.raft.rules.log_view import (
    BelowStart,
    Diverging,
)
from replication.raft.rules.messages import FetchReceived, Reply
from replication.raft.rules.states import Leading
from replication.raft.rules.types import NO_DIRECTORY_ID, Endpoints, ReplicaKey
from replication.raft.rules.voters import VoterNode, to_wire
from replication.wire import (
    describe_cluster as cluster,
    describe_quorum as quorum,
    fetch as wire,
    fetch_snapshot as snapshots,
)
from replication.wire.metadata import NO_LEADER, LeaderIdAndEpoch, NodeEndpoint
from storage.types import NO_TOPIC_ID, Offset, OffsetAndEpoch


async def fetch(node: RaftNode, request: wire.FetchRequest) -> wire.FetchResponse:
    """Return the records after the fetch offset; wait up to `max_wait_ms` for news."""
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    known = min(
        (asked.high_watermark for topic in request.topics for asked in topic.partitions),
        default=wire.NO_HIGH_WATERMARK_ASKED,
    )
    response = await _fetch_now(node, request)
    with node.seams.clock.move_on_after(request.max_wait_ms / 1000):
        while not _has_news(response, known):
            reader = _reader(node, request.replica.replica_id)
            sees_all = node.quorum.voters.is_voter(reader)
            await node.log.wait_for_movement(until_committed=not sees_all)
            response = await _fetch_now(node, request, has_waited=True)
    return response


def _reader(node: RaftNode, replica_id: int, directory_id: bytes = NO_DIRECTORY_ID) -> ReplicaKey:
    """Return the reader's key. The broker of a combined node has this node's id, and observes."""
    is_here = replica_id == node.quorum.me.id
    return ReplicaKey(wire.CONSUMER_REPLICA_ID if is_here else replica_id, directory_id)


async def _fetch_now(
    node: RaftNode, request: wire.FetchRequest, *, has_waited: bool = False
) -> wire.FetchResponse:
    """Return what there is now for the partitions of `request`, which may have waited."""
    left = request.max_bytes
    response = wire.FetchResponse()
    for topic in request.topics:
        error = _topic_error(topic)
        answers = []
        for asked in topic.partitions:
            if error is not ErrorCode.NONE or asked.partition != METADATA_PARTITION.partition:
                unknown = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answers.append(
                    wire.PartitionData(partition_index=asked.partition, error_code=unknown)
                )
                continue
            reader = _reader(node, request.replica.replica_id, asked.replica_directory_id)
            reply = await node.replied(
                FetchReceived(
                    replica=reader,
                    leader_epoch=asked.current_leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    cluster_id=request.cluster_id,
                    has_waited=has_waited,
                )
            )
            if reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                return wire.FetchResponse(error_code=reply.error)
            is_voter = node.quorum.voters.is_voter(reader)
            data = _read(
                node.log,
                asked,
                reply,
                end=node.log.log_end_offset if is_voter else node.log.high_watermark,
                max_bytes=min(left, asked.partition_max_bytes),
            )
            left = max(0, left - _size(data))
            answers.append(data)
            if reply.error is not ErrorCode.NONE:
                response.node_endpoints = _nodes(node, reply)
        response.responses.append(
            wire.FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=answers
            )
        )
    return response


def _nodes(node: RaftNode, reply: Reply) -> list[NodeEndpoint]:
    return [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port)
        for each in node_endpoints(reply, node.listener.listener)
    ]


def _has_news(response: wire.FetchResponse, known: Offset) -> bool:
    """Return whether a response need not wait: it has an error, records, or a high watermark above
    the one that the reader knows.
    """
    partitions = [data for topic in response.responses for data in topic.partitions]
    return not partitions or any(
        data.error_code
        or data.records
        or data.diverging_epoch != wire.NO_DIVERGENCE
        or data.snapshot_id != wire.NO_SNAPSHOT
        or data.high_watermark > known
        for data in partitions
    )


def _topic_error(topic: wire.FetchTopic) -> ErrorCode:
    if topic.topic_id == METADATA_TOPIC_ID:
        return ErrorCode.NONE
    if topic.topic_id != NO_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_ID
    known = topic.topic == METADATA_TOPIC
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read(
    log: MetadataLog, asked: wire.FetchPartition, reply: Reply, *, end: Offset, max_bytes: int
) -> wire.PartitionData:
    """Return the records below `end` for a reader whose place in the log `reply` says."""
    data = wire.PartitionData(
        partition_index=asked.partition,
        error_code=reply.error,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=log.log.log_start_offset,
        current_leader=LeaderIdAndEpoch(
            leader_id=leader_id_of(reply), leader_epoch=reply.leader_epoch
        ),
    )
    if reply.error is not ErrorCode.NONE:
        return data
    match reply.position:
        case BelowStart(snapshot):
            data.snapshot_id = wire.FetchSnapshotId(
                end_offset=snapshot.offset, epoch=snapshot.leader_epoch
            )
        case Diverging(diverging):
            data.diverging_epoch = wire.DivergingEpoch(
                epoch=diverging.leader_epoch, end_offset=diverging.offset
            )
        case _:
            found = log.log.read(
                asked.fetch_offset, max_bytes, max_offset_exclusive=end, min_one=True
            )
            if found.records is not None:
                data.records = found.records
    return data


def _size(data: wire.PartitionData) -> int:
    records = data.records
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.size


async def fetch_snapshot(
    node: RaftNode, request: snapshots.FetchSnapshotRequest
) -> snapshots.FetchSnapshotResponse:
    """Return the next piece of a snapshot."""
    response = snapshots.FetchSnapshotResponse()
    for topic in request.topics:
        pieces = []
        for asked in topic.partitions:
            reader = _reader(node, request.replica_id, asked.replica_directory_id)
            reply = await node.replied(
                FetchReceived(
                    replica=reader,
                    leader_epoch=asked.current_leader_epoch,
                    cluster_id=request.cluster_id,
                )
            )
            if reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                return snapshots.FetchSnapshotResponse(error_code=reply.error)
            pieces.append(_piece(node.log, topic.name, asked, reply, request.max_bytes))
            if reply.error is not ErrorCode.NONE:
                response.node_endpoints = node_endpoints(reply, node.listener.listener)
        response.topics.append(snapshots.TopicSnapshot(name=topic.name, partitions=pieces))
    return response


def _piece(
    log: MetadataLog,
    topic: str,
    asked: snapshots.PartitionSnapshotRequest,
    reply: Reply,
    max_bytes: int,
) -> snapshots.PartitionSnapshot:
    answer = snapshots.PartitionSnapshot(
        index=asked.partition,
        snapshot_id=asked.snapshot_id,
        position=asked.position,
        current_leader=snapshots.SnapshotLeader(
            leader_id=leader_id_of(reply), leader_epoch=reply.leader_epoch
        ),
    )
    answer.error_code = _hosting_error(topic, asked.partition, reply)
    if answer.error_code != ErrorCode.NONE:
        return answer
    wanted = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    # Each node has the first one from its own formatting (KIP-630, KafkaRaftClient).
    if log.snapshot is None or wanted != log.snapshot.id or wanted == BOOTSTRAP_SNAPSHOT_ID:
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


def _hosting_error(topic: str, partition: int, reply: Reply) -> ErrorCode:
    if (topic, partition) != METADATA_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return reply.error


class FetchedLog(Protocol):
    """How far an observer has read the log, and when it fetched last, in wall-clock time."""

    @property
    def offset(self) -> Offset: ...

    @property
    def fetch_ms(self) -> int: ...

    @property
    def caught_up_ms(self) -> int: ...


def describe_quorum(
    node: RaftNode, *, brokers: Collection[int], fetched: Callable[[int], FetchedLog | None]
) -> quorum.DescribeQuorumResponse:
    """Describe the quorum as its leader sees it: the voters, and what observes, which are brokers and
    controllers that do not vote.

    Its log has the name of Kafka's, which clients ask for.
    """
    described = quorum.DescribedQuorum(
        partition_index=METADATA_PARTITION.partition,
        leader_id=node.config.node_id,
        leader_epoch=node.quorum.leader_epoch,
        high_watermark=node.log.high_watermark,
        current_voters=[_replica(node, each.key) for each in node.quorum.voters.nodes],
        observers=[
            quorum.QuorumReplica(
                replica_id=broker_id,
                log_end_offset=last.offset,
                last_fetch_timestamp=last.fetch_ms,
                last_caught_up_timestamp=last.caught_up_ms,
            )
            for broker_id in sorted(brokers)
            if (last := fetched(broker_id)) is not None
        ]
        + [_replica(node, key) for key in _observers(node) if key.id not in brokers],
    )
    nodes = [
        quorum.QuorumNode(node_id=voter.key.id, listeners=to_wire(_where(node, voter)))
        for voter in node.quorum.voters.nodes
    ]
    return quorum.DescribeQuorumResponse(
        topics=[
            quorum.DescribedQuorumTopic(topic_name=quorum.QUORUM_TOPIC, partitions=[described])
        ],
        nodes=nodes,
    )


async def describe_cluster(
    node: RaftNode, request: cluster.DescribeClusterRequest
) -> cluster.DescribeClusterResponse:
    """Describe the voters; a new broker learns of its cluster so (KIP-919)."""
    await trio.lowlevel.checkpoint()
    if request.endpoint_type != cluster.CONTROLLERS:
        return cluster.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener describes controllers",
        )
    leader_id = node.quorum.leader_id
    return cluster.DescribeClusterResponse(
        endpoint_type=cluster.CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=NO_LEADER if leader_id is None else leader_id,
        brokers=[
            cluster.DescribeClusterBroker(broker_id=voter.key.id, host=each.host, port=each.port)
            for voter in node.quorum.voters.nodes
            for each in _where(node, voter).addresses[:1]
        ],
    )


def _where(node: RaftNode, voter: VoterNode) -> Endpoints:
    return node.endpoints if voter.key.id == node.config.node_id else voter.endpoints


def _observers(node: RaftNode) -> list[ReplicaKey]:
    state = node.quorum.state
    if not isinstance(state, Leading):
        return []
    return sorted(state.progress.observers(node.seams.clock.now_ms()))


def _replica(node: RaftNode, key: ReplicaKey) -> quorum.QuorumReplica:
    clock, state = node.seams.clock, node.quorum.state
    to_wall_ms = clock.wall_ms() - clock.now_ms()
    described = quorum.QuorumReplica(
        replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=-1
    )
    if key.id == node.config.node_id:
        described.log_end_offset = node.log.log_end_offset
        described.last_fetch_timestamp = described.last_caught_up_timestamp = clock.wall_ms()
    elif isinstance(state, Leading):
        progress = state.progress.of(key)
        if progress.end_offset is not None:
            described.log_end_offset = progress.end_offset
        if progress.last_fetch_ms is not None:
            described.last_fetch_timestamp = progress.last_fetch_ms + to_wall_ms
        if progress.last_caught_up_ms is not None:
            described.last_caught_up_timestamp = progress.last_caught_up_ms + to_wall_ms
    return described
