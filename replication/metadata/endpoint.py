"""The leader of the metadata log, as another node fetches from it: its log, and its snapshot (KIP-630).

    Fetch ── records, or a divergence ─────────────> the fetcher
      └───── snapshot (90, 4) ── FetchSnapshot until it is whole ── installed
                                                        └─> OFFSET_OUT_OF_RANGE, to the fetcher

Rule 1: the fetcher knows nothing of snapshots. After one, its log is elsewhere, so its answer is
OFFSET_OUT_OF_RANGE; the ends that it asks for are those of the copy, and it goes on from there.
The leader is not asked for the ends of its log: Apache Kafka's controller does not serve ListOffsets.

Rule 2: each fetch begins at the end of the local copy. Where the fetcher is elsewhere, because the
copy was begun anew, the request is moved to that end, and the answer is the same error. It names the
high watermark that is known here, so that the leader answers once it knows a higher one (KIP-1166).

Rule 3: the fetch of a broker, an observer, is how it finds the leader, for its channels too (`Controllers`). A controller
that does not lead names the leader, which is asked at once, or says that it knows none: then the next
address is tried by the next fetch. A leader that does not answer in
`controller.quorum.request.timeout.ms` is left in the same way. One that closes the connection
instead of answering may have died; where that happens UNSERVED times in a row, it is reported.

Rule 4: a broker names the largest leader epoch that it knows: of the last record of its copy, and of
the refusals. The leader of an earlier epoch refuses it, and no copy is truncated to such a log.
"""

from typing import Protocol

import attrs
import trio

from replication.config.listeners import HostPort
from replication.errors import (
    ErrorCode,
    MetadataError,
    PeerUnavailableError,
    ProtocolError,
    UnansweredError,
)
from replication.events import MetadataNotServed, RareReporter
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
from storage.attributes import define
from storage.errors import KafkaStorageError
from storage.types import NO_TOPIC_ID, LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition

FETCH_SNAPSHOT_VERSION = 1
FETCH_VERSION = 18  # the first that names a high watermark
UNSERVED = 3
ELSEWHERE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""The errors of a controller that does not lead in the epoch that a request names."""


class MetadataCopy(Protocol):
    """The part of `MetadataFollower` that the endpoint uses."""

    def log_end_offset(self, partition: TopicPartition, /) -> Offset: ...

    def log_start_offset(self, partition: TopicPartition, /) -> Offset: ...

    def latest_epoch(self, partition: TopicPartition, /) -> LeaderEpoch | None: ...

    def high_watermark(self, partition: TopicPartition, /) -> Offset: ...

    async def apply_appended(self) -> None: ...

    def receive_snapshot(self, end: OffsetAndEpoch, /) -> SnapshotWriter: ...

    async def install(self, received: SnapshotWriter, /) -> None: ...

    def fail(self, error: Exception, /) -> None: ...


@define(kw_only=True)
class MetadataEndpoint(RemoteLeaderEndpoint):
    """A leader endpoint for the metadata log."""

    follower: MetadataCopy
    snapshot_max_bytes: int
    """The number of bytes of a snapshot that one request asks for."""
    fetch_version: int = FETCH_VERSION
    leader_epoch: LeaderEpoch = 0
    """The leader epoch that requests name."""
    cluster_id: str | None = None
    directory_id: bytes = NO_TOPIC_ID
    """The directory of this node; a voter names it."""

    async def fetch(self, request: wire.FetchRequest, *, version: int) -> wire.FetchResponse:
        await self.follower.apply_appended()
        moved = [self._begin_at_the_end(asked) for asked in asked_partitions(request)]
        request.cluster_id = self.cluster_id
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

    async def fetch_earliest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        """Return where the copy begins (rule 1)."""
        await trio.lowlevel.checkpoint()
        return OffsetAndEpoch(self.follower.log_start_offset(partition), current_leader_epoch)

    async def fetch_latest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        """Return where the copy ends (rule 1)."""
        await trio.lowlevel.checkpoint()
        return OffsetAndEpoch(self.follower.log_end_offset(partition), current_leader_epoch)

    @property
    def _last_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record of the copy; 0, as in Kafka, where it is empty."""
        return self.follower.latest_epoch(METADATA_PARTITION) or 0

    def _begin_at_the_end(self, asked: wire.FetchPartition) -> bool:
        """Ask for what follows the copy (rule 2); return whether the fetcher was elsewhere."""
        end = self.follower.log_end_offset(METADATA_PARTITION)
        moved = asked.fetch_offset != end
        asked.fetch_offset, asked.last_fetched_epoch = end, self._last_epoch
        asked.replica_directory_id = self.directory_id
        asked.high_watermark = self.follower.high_watermark(METADATA_PARTITION)
        return moved

    async def _fetch_snapshot(self, wanted: wire.FetchSnapshotId) -> None:
        end = OffsetAndEpoch(wanted.end_offset, wanted.epoch)
        if wanted.end_offset < 0 or wanted.epoch < 0:
            raise ProtocolError(f"the controller names a snapshot that cannot be: {end}")
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
            replica_directory_id=self.directory_id,
        )
        request = FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=self.replica_id,
            max_bytes=self.snapshot_max_bytes,
            topics=[TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[asked])],
        )
        response = await self._call(request, FetchSnapshotResponse, version=FETCH_SNAPSHOT_VERSION)
        pieces = [piece for topic in response.topics for piece in topic.partitions]
        error = ErrorCode.of(response.error_code or (pieces[0].error_code if pieces else -1))
        if error is not ErrorCode.NONE:
            # Most likely a newer snapshot has replaced it: the next fetch names that one.
            raise PeerUnavailableError(f"no snapshot up to {wanted.end_offset}: {error.name}")
        found = pieces[0]
        if (found.snapshot_id, found.position) != (asked.snapshot_id, position):
            raise ProtocolError(
                "the controller sends another piece of a snapshot than is asked for"
            )
        return found


@define(kw_only=True)
class ObserverEndpoint(MetadataEndpoint):
    """The leader as a broker finds it, among the controllers that it knows (rule 3)."""

    controllers: Controllers
    not_served: RareReporter
    _unanswered: int = attrs.field(default=0, init=False)
    """How many fetches in a row ended with the connection."""

    async def fetch_log(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        try:
            response = await self._fetch_from_leader(request, version)
        except (PeerUnavailableError, ProtocolError) as error:
            self.controllers.not_at(self._address)
            self._note_unanswered(error)
            raise
        self._unanswered = 0
        return response

    def _note_unanswered(self, error: Exception) -> None:
        self._unanswered = self._unanswered + 1 if isinstance(error, UnansweredError) else 0
        if self._unanswered >= UNSERVED:
            self.not_served.report(
                lambda left_out: MetadataNotServed(cause=str(error), left_out=left_out)
            )

    @property
    def _address(self) -> HostPort:
        return HostPort(self.broker.host, self.broker.port)

    async def _fetch_from_leader(
        self, request: wire.FetchRequest, version: int
    ) -> wire.FetchResponse:
        for _ in range(len(self.controllers.bootstrap) + 1):
            self._turn_to(self.controllers.address)
            self.leader_epoch = max(self.leader_epoch, self._last_epoch)
            for asked in asked_partitions(request):
                asked.current_leader_epoch = self.leader_epoch
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
            is_new_epoch = leader.leader_epoch > self.leader_epoch
            self.leader_epoch = max(self.leader_epoch, leader.leader_epoch)
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
