"""The requests of a follower to one leader (LeaderEndPoint, RemoteLeaderEndPoint in Kafka).

Rule 1: one request in flight. A fetch response lies in the connection's receive buffer, which
the next response overwrites; the caller of `fetch` uses its records before its next checkpoint.

Rule 2: any failure closes the connection, a cancelled request too: otherwise its response would
be taken for that of the next one. The next request connects anew, without a pause; pausing is
left to the caller.

Rule 3: every request names the follower's leader epoch, so that a leader of another epoch
refuses it (KIP-320).
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import attrs
import trio

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError, ProtocolError
from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.net.pace import Turns
from replication.net.rpc import RpcClient
from replication.net.seams import NodeClock, Transport
from replication.wire import list_offsets
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.attributes import define
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, OffsetAndEpoch, TopicPartition

FIRST_FETCH_VERSION_WITH_TRUNCATION = 12
LATEST_FETCH_VERSION = 17
LATEST_LIST_OFFSETS_VERSION = 9
LATEST_OFFSET_FOR_LEADER_EPOCH_VERSION = 4

UNDEFINED_END = OffsetAndEpoch(NO_OFFSET, NO_LEADER_EPOCH)

Response = TypeVar("Response")


class EpochWanted(NamedTuple):
    """The question about one partition's epochs."""

    current_leader_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch
    """The follower's last epoch, whose end is wanted."""


class EpochEnd(NamedTuple):
    """The leader's answer: the greatest epoch up to the one asked for, and where it ends."""

    error: ErrorCode
    end: OffsetAndEpoch = UNDEFINED_END


class LeaderEndpoint(Protocol):
    """One leader, as a fetcher sends requests to it."""

    @property
    def broker(self) -> BrokerEndPoint: ...

    @property
    def fetch_version(self) -> int:
        """The highest Fetch version to use with this leader."""

    @property
    def supports_truncation_on_fetch(self) -> bool:
        """Whether the leader finds divergence in the fetch itself (Fetch v12, KIP-595)."""

    def fetch(self, request: FetchRequest, *, version: int) -> Awaitable[FetchResponse]:
        """Send the request; raises PeerUnavailableError or ProtocolError without a response."""

    async def fetch_earliest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        """Return the leader's log start; raises KafkaError if the leader refuses."""

    async def fetch_latest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        """Return the leader's log end, not its high watermark; raises KafkaError if it refuses."""

    async def fetch_epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, EpochWanted]
    ) -> dict[TopicPartition, EpochEnd]:
        """Return where these epochs end.

        A leader that cannot be reached is an error of each partition, not an exception.
        """

    def initiate_close(self) -> None:
        """Fail the request in flight, and every later one."""

    async def close(self) -> None: ...


@define(kw_only=True)
class RemoteLeaderEndpoint:
    """A leader across the network, over one connection of its own."""

    broker: BrokerEndPoint
    replica_id: int
    client_id: str
    transport: Transport
    clock: NodeClock
    fetch_version: int = LATEST_FETCH_VERSION
    list_offsets_version: int = LATEST_LIST_OFFSETS_VERSION
    offset_for_leader_epoch_version: int = LATEST_OFFSET_FOR_LEADER_EPOCH_VERSION
    connect_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000
    _client: RpcClient | None = attrs.field(init=False, default=None)
    _connecting: trio.CancelScope | None = attrs.field(init=False, default=None)
    _turns: Turns = attrs.field(init=False, factory=Turns)
    _closing: bool = attrs.field(init=False, default=False)

    @property
    def supports_truncation_on_fetch(self) -> bool:
        return self.fetch_version >= FIRST_FETCH_VERSION_WITH_TRUNCATION

    def fetch(self, request: FetchRequest, *, version: int) -> Awaitable[FetchResponse]:
        return self._call(request, FetchResponse, version=version)

    # -- offsets --------------------------------------------------------------

    async def fetch_earliest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        return await self._list_offset(partition, current_leader_epoch, list_offsets.EARLIEST)

    async def fetch_latest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        return await self._list_offset(partition, current_leader_epoch, list_offsets.LATEST)

    async def _list_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch, timestamp: int
    ) -> OffsetAndEpoch:
        asked = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=current_leader_epoch,
            timestamp=timestamp,
        )
        # A replica gets the log's end, a consumer the high watermark.
        request = ListOffsetsRequest(
            replica_id=self.replica_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )
        response = await self._call(request, ListOffsetsResponse, version=self.list_offsets_version)
        answer = self._answer_for(partition, response)
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"{partition} at epoch {current_leader_epoch}")
        if answer.offset < 0:
            raise ProtocolError(f"broker {self.broker.id} knows no end of {partition}")
        return OffsetAndEpoch(answer.offset, answer.leader_epoch)

    def _answer_for(
        self, partition: TopicPartition, response: ListOffsetsResponse
    ) -> ListOffsetsPartitionResponse:
        for topic in response.topics:
            for answer in topic.partitions:
                if (topic.name, answer.partition_index) == partition:
                    return answer
        raise ProtocolError(f"broker {self.broker.id} left {partition} out of its offsets")

    # -- epochs ---------------------------------------------------------------

    async def fetch_epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, EpochWanted]
    ) -> dict[TopicPartition, EpochEnd]:
        if not wanted:
            return {}
        request = OffsetForLeaderEpochRequest(
            replica_id=self.replica_id, topics=_epoch_topics(wanted.items())
        )
        try:
            response = await self._call(
                request,
                OffsetForLeaderEpochResponse,
                version=self.offset_for_leader_epoch_version,
            )
        except (PeerUnavailableError, ProtocolError):
            return dict.fromkeys(wanted, EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
        return {
            TopicPartition(topic.topic, answer.partition): EpochEnd(
                ErrorCode.of(answer.error_code),
                OffsetAndEpoch(answer.end_offset, answer.leader_epoch),
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    # -- the connection -------------------------------------------------------

    async def _call(self, request: object, expected: type[Response], *, version: int) -> Response:
        async with self._turns:
            client = self._client or await self._connect()
            try:
                response = await client.call(
                    request, version=version, timeout_ms=self.request_timeout_ms
                )
            except BaseException:
                self._drop()
                raise
            assert isinstance(response, expected), f"{response!r} answers {request!r}"
            return response

    async def _connect(self) -> RpcClient:
        self._refuse_when_closing()
        with self.clock.move_on_after(self.connect_timeout_ms / 1000) as scope:
            self._connecting = scope
            connection = await self.transport.connect(self.broker.host, self.broker.port)
        if scope.cancelled_caught:
            raise self._unavailable("no connection in time")
        client = self._client = RpcClient(
            connection, client_id=self.client_id, clock=self.clock, reuse_buffer=True
        )
        self._refuse_when_closing()
        return client

    def _refuse_when_closing(self) -> None:
        if self._closing:
            self._drop()
            raise self._unavailable("this follower is shutting down")

    def _unavailable(self, why: str) -> PeerUnavailableError:
        broker = self.broker
        return PeerUnavailableError(f"broker {broker.id} at {broker.host}:{broker.port}: {why}")

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def initiate_close(self) -> None:
        self._closing = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._drop()

    async def close(self) -> None:
        self.initiate_close()
        await trio.lowlevel.checkpoint()


def _epoch_topics(
    wanted: Iterable[tuple[TopicPartition, EpochWanted]],
) -> list[OffsetForLeaderTopic]:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, partition), asked in wanted:
        group = topics.setdefault(topic, OffsetForLeaderTopic(topic=topic, partitions=[]))
        group.partitions.append(
            OffsetForLeaderPartition(
                partition=partition,
                current_leader_epoch=asked.current_leader_epoch,
                leader_epoch=asked.leader_epoch,
            )
        )
    return list(topics.values())
