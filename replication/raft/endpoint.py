"""The leader of the quorum, as a voter fetches from it.

    flush what was fetched ─> step (LogChanged) ─> Fetch at the log's end ─> step (FetchAnswered)
            ^                                                                     │ TakeFetched
            └──────────── appended, truncated, or a snapshot installed <──────────┘

Rule 1: the next fetch acknowledges everything before its offset, so all of it is flushed first.

Rule 2: an answer is used only if the rules take it: the leader may have been replaced meanwhile.

Rule 3: a high watermark counts only where the log may be read on. One truncation may not be enough,
and what is left of a log that diverges may be other records than those that were committed.
"""

from typing import TYPE_CHECKING

import attrs

from replication.errors import ErrorCode, PeerUnavailableError, ProtocolError
from replication.metadata.endpoint import MetadataEndpoint
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.raft.envelopes import answer_about
from replication.raft.rules.log_view import BelowStart, Diverging, LogView, ReadOn
from replication.raft.rules.messages import FetchAnswered, LogChanged, Reply, TakeFetched
from replication.raft.rules.quorum import Quorum
from replication.wire import fetch as wire
from storage.attributes import define
from storage.errors import KafkaStorageError, ShortageError
from storage.types import NO_LEADER_EPOCH, Offset, OffsetAndEpoch

if TYPE_CHECKING:
    from replication.raft.node import RaftNode


@define(kw_only=True)
class EpochEndpoint(MetadataEndpoint):
    """The leader of one epoch."""

    node: "RaftNode"
    _high_watermark: Offset | None = attrs.field(default=None, init=False)

    async def fetch(self, request: wire.FetchRequest, *, version: int) -> wire.FetchResponse:
        log = self.node.log
        if log.flushed_end_offset < log.log_end_offset:
            try:
                await log.flush()
            except ShortageError as error:
                raise PeerUnavailableError(f"nothing can be synced now: {error}") from error
            except KafkaStorageError as error:
                self.follower.fail(error)
                raise PeerUnavailableError(f"this node ends: {error}") from error
        await self.node.happened(LogChanged(self._high_watermark))
        return await super().fetch(request, version=version)

    async def fetch_log(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        response = await super().fetch_log(request, version)
        reply = fetch_reply(response, self.node.listener.listener)
        effects = await self.node.happened(FetchAnswered(reply))
        if not any(isinstance(each, TakeFetched) for each in effects):
            raise PeerUnavailableError(f"node {self.broker.id} does not lead in this epoch")
        self._high_watermark = reply.high_watermark
        return response


def first_fetch(quorum: Quorum, log: LogView) -> wire.FetchRequest:
    """Return a fetch that finds out who leads."""
    asked = wire.FetchPartition(
        partition=METADATA_PARTITION.partition,
        current_leader_epoch=quorum.leader_epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.last_epoch,
        partition_max_bytes=0,
        replica_directory_id=quorum.me.directory_id,
    )
    topic = wire.FetchTopic(
        topic=METADATA_PARTITION.topic, topic_id=METADATA_TOPIC_ID, partitions=[asked]
    )
    return wire.FetchRequest(
        cluster_id=quorum.cluster_id,
        replica_state=wire.ReplicaState(replica_id=quorum.me.id),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[topic],
    )


def fetch_reply(response: wire.FetchResponse, listener: str) -> Reply:
    """Return what a response says of the leader, and of our place in its log."""
    if response.error_code != ErrorCode.NONE:
        return Reply(error=ErrorCode.of(response.error_code), leader_epoch=NO_LEADER_EPOCH)
    answered = [each for topic in response.responses for each in topic.partitions]
    if len(answered) != 1:
        raise ProtocolError("a controller answers for another log than the metadata log")
    data = answered[0]
    leader = data.current_leader
    nodes = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    reply = answer_about(
        error=data.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        nodes=nodes,
        listener=listener,
    )
    if reply.error != ErrorCode.NONE:
        return reply
    position = _position(data)
    is_known = data.high_watermark >= 0 and position == ReadOn()
    high_watermark = data.high_watermark if is_known else None
    return attrs.evolve(reply, position=position, high_watermark=high_watermark)


def _position(data: wire.PartitionData) -> ReadOn | Diverging | BelowStart:
    diverging, snapshot = data.diverging_epoch, data.snapshot_id
    if diverging != wire.NO_DIVERGENCE:
        return Diverging(OffsetAndEpoch(diverging.end_offset, diverging.epoch))
    if snapshot != wire.NO_SNAPSHOT:
        return BelowStart(OffsetAndEpoch(snapshot.end_offset, snapshot.epoch))
    return ReadOn()
