"""The leader of the metadata log, as another node fetches from it: its log, and its snapshot (KIP-630).

    Fetch ── records, or a divergence ─────────────> the fetcher
      └───── snapshot (90, 4) ── FetchSnapshot until it is whole ── installed
                                                        └─> OFFSET_OUT_OF_RANGE, to the fetcher

Rule 1: the fetcher knows nothing of snapshots. After one, its log is elsewhere, so its answer is
OFFSET_OUT_OF_RANGE; it asks for the log's ends and goes on from there.

Rule 2: each fetch begins at the end of the local copy. Where the fetcher is elsewhere, because the
copy was begun anew, the request is moved to that end, and the answer is the same error.

Rule 3: the fetch of a broker, an observer, is how it finds the leader, for its channels too (`Controllers`). A controller
that does not lead names the leader, which is asked at once, or says that it knows none: then the next
address is tried by the next fetch. A leader that does not answer in
`controller.quorum.request.timeout.ms` is left in the same way.

Rule 4: a broker names no leader epoch at first, and then the one that the last refusal has named:
Apache Kafka's controller answers FENCED_LEADER_EPOCH to a fetch of another epoch than its own.
"""

from typing import Protocol

import attrs

from replication.config.listeners import HostPort
from replication.errors import ErrorCode, MetadataError, PeerUnavailableError, ProtocolError
from replication.follower.leader_endpoint import RemoteLeaderEndpoint
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC
from replication.metadata.snapshots import SnapshotWriter
from replication.net.controller_channel import Controllers
from replication.wire import fetch as wire
from replication.wire.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    SnapshotId,
    TopicSnapshotRequest,
)
from replication.wire.metadata import LeaderIdAndEpoch
from storage.errors import KafkaStorageError
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition

PIECE_BYTES = 1 << 20
FETCH_SNAPSHOT_VERSION = 1
ELSEWHERE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""The errors of a controller that does not lead in the epoch that a request names."""


class MetadataCopy(Protocol):
    """The part of `MetadataFollower` that the endpoint uses."""

    def log_end_offset(self, partition: TopicPartition, /) -> Offset: ...

    def latest_epoch(self, partition: TopicPartition, /) -> LeaderEpoch | None: ...

    async def apply_appended(self) -> None: ...

    def receive_snapshot(self, end: OffsetAndEpoch, /) -> SnapshotWriter: ...

    async def install(self, received: SnapshotWriter, /) -> None: ...

    def fail(self, error: Exception, /) -> None: ...


@attrs.define(kw_only=True)
class MetadataEndpoint(RemoteLeaderEndpoint):
    """A leader endpoint for the metadata log."""

    follower: MetadataCopy

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch that requests name; NO_LEADER_EPOCH where they follow any leader."""
        return NO_LEADER_EPOCH

    async def fetch(self, request: wire.FetchRequest, *, version: int) -> wire.FetchResponse:
        await self.follower.apply_appended()
        moved = [self._move_to_the_end(asked) for asked in asked_partitions(request)]
        response = await self.fetch_log(request, version)
        for data in [data for topic in response.responses for data in topic.partitions]:
            wanted = data.snapshot_id
            if wanted != wire.NO_SNAPSHOT:
                await self._fetch_snapshot(wanted)
            if data.error_code == ErrorCode.NONE and (any(moved) or wanted != wire.NO_SNAPSHOT):
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                data.records, data.diverging_epoch = b"", wire.NO_DIVERGENCE
        return response

    async def fetch_log(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        """Return the leader's response; PeerUnavailableError where this node has no leader."""
        return await super().fetch(request, version=version)

    def _move_to_the_end(self, asked: wire.FetchPartition) -> bool:
        """Move the request to the end of the copy; return whether the fetcher was elsewhere."""
        end = self.follower.log_end_offset(METADATA_PARTITION)
        if asked.fetch_offset == end:
            return False
        epoch = self.follower.latest_epoch(METADATA_PARTITION)
        asked.fetch_offset = end
        asked.last_fetched_epoch = NO_LEADER_EPOCH if epoch is None else epoch
        return True

    async def _fetch_snapshot(self, wanted: wire.FetchSnapshotId) -> None:
        end = OffsetAndEpoch(wanted.end_offset, wanted.epoch)
        try:
            received = self.follower.receive_snapshot(end)
            try:
                await self._fetch_pieces(wanted, received)
                await self.follower.install(received)
            finally:
                received.discard()
        except (MetadataError, KafkaStorageError) as error:
            self.follower.fail(error)
            raise PeerUnavailableError(f"the snapshot could not be taken up: {error}") from error

    async def _fetch_pieces(self, wanted: wire.FetchSnapshotId, received: SnapshotWriter) -> None:
        size = 1
        while received.size < size:
            piece = await self._fetch_piece(wanted, position=received.size)
            if not piece.unaligned_records:
                raise ProtocolError("the controller sends nothing of a snapshot that it has")
            size = piece.size
            assert isinstance(piece.unaligned_records, memoryview), "it came over the wire"
            try:
                received.append(piece.unaligned_records)
            except OSError as error:
                raise KafkaStorageError(f"{received.path}: {error}") from error

    async def _fetch_piece(
        self, wanted: wire.FetchSnapshotId, *, position: int
    ) -> PartitionSnapshot:
        asked = PartitionSnapshotRequest(
            partition=METADATA_PARTITION.partition,
            current_leader_epoch=self.leader_epoch,
            snapshot_id=SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
            position=position,
        )
        request = FetchSnapshotRequest(
            replica_id=self.replica_id,
            max_bytes=PIECE_BYTES,
            topics=[TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[asked])],
        )
        response = await self._call(request, FetchSnapshotResponse, version=FETCH_SNAPSHOT_VERSION)
        pieces = [piece for topic in response.topics for piece in topic.partitions]
        error = ErrorCode.of(response.error_code or (pieces[0].error_code if pieces else -1))
        if error is not ErrorCode.NONE:
            # Most likely a newer snapshot has replaced it: the next fetch names that one.
            raise PeerUnavailableError(f"no snapshot up to {wanted.end_offset}: {error.name}")
        return pieces[0]


@attrs.define(kw_only=True)
class ObserverEndpoint(MetadataEndpoint):
    """The leader as a broker finds it, among the controllers that it knows (rule 3)."""

    controllers: Controllers
    _named_epoch: LeaderEpoch = attrs.field(default=NO_LEADER_EPOCH, init=False)
    """The leader epoch that requests name."""

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._named_epoch

    async def fetch_log(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        try:
            return await self._fetch_from_leader(request, version)
        except (PeerUnavailableError, ProtocolError):
            self.controllers.not_at(self._address)
            raise

    @property
    def _address(self) -> HostPort:
        return HostPort(self.broker.host, self.broker.port)

    async def _fetch_from_leader(
        self, request: wire.FetchRequest, version: int
    ) -> wire.FetchResponse:
        for _ in range(len(self.controllers.bootstrap) + 1):
            self._turn_to(self.controllers.address)
            for asked in asked_partitions(request):
                asked.current_leader_epoch = self._named_epoch
            response = await super().fetch_log(request, version)
            leader = _leader_elsewhere(response)
            if leader is None:
                self.controllers.answered(self._address)
                return response
            if leader.leader_id < 0:
                break
            where = [each for each in response.node_endpoints if each.node_id == leader.leader_id]
            if not where:
                break
            address = HostPort(where[0].host, where[0].port)
            self.controllers.leads(address, leader.leader_epoch)
            is_new_epoch = leader.leader_epoch != self._named_epoch
            self._named_epoch = leader.leader_epoch
            if self.controllers.address == self._address and not is_new_epoch:
                break  # it names a leader of the past, or itself
        raise PeerUnavailableError(f"the controller at {self._address} does not lead")

    def _turn_to(self, address: HostPort) -> None:
        if address != self._address:
            self._drop()
            self.broker = attrs.evolve(self.broker, host=address.host, port=address.port)


def asked_partitions(request: wire.FetchRequest) -> list[wire.FetchPartition]:
    """Return what `request` asks about each partition."""
    return [asked for topic in request.topics for asked in topic.partitions]


def _leader_elsewhere(response: wire.FetchResponse) -> LeaderIdAndEpoch | None:
    """Return the leader that a controller names which does not lead itself; None if it leads."""
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in ELSEWHERE:
                return data.current_leader
    return None
