"""Requests to a leader of the source, in versions that both sides support.

A leader that does not answer may no longer be the leader, and no controller tells us: so the
source's metadata is requested whenever one is lost.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from replication.errors import PeerUnavailableError, ProtocolError
from replication.follower.fetcher_manager import RemoteFetcherFactory
from replication.follower.leader_endpoint import (
    EpochEnd,
    EpochWanted,
    LeaderEndpoint,
    RemoteLeaderEndpoint,
)
from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.mirror.source import MirrorSource
from replication.wire.apis import ApiKey
from replication.wire.fetch import CONSUMER_REPLICA_ID, FetchRequest, FetchResponse
from storage.types import LeaderEpoch, OffsetAndEpoch, TopicPartition

T = TypeVar("T")

CLIENT_ID = "understudy-follow"


@attrs.frozen(eq=False)
class SourceLeader:
    """A `LeaderEndpoint` that calls `on_lost` when the leader does not answer."""

    remote: RemoteLeaderEndpoint
    on_lost: Callable[[], None]

    @property
    def broker(self) -> BrokerEndPoint:
        return self.remote.broker

    @property
    def fetch_version(self) -> int:
        return self.remote.fetch_version

    @property
    def supports_truncation_on_fetch(self) -> bool:
        return self.remote.supports_truncation_on_fetch

    async def fetch(self, request: FetchRequest, *, version: int) -> FetchResponse:
        try:
            return await self.remote.fetch(request, version=version)
        except (PeerUnavailableError, ProtocolError):
            self.on_lost()
            raise

    async def fetch_earliest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        return await self.remote.fetch_earliest_offset(partition, current_leader_epoch)

    async def fetch_latest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        """Return the high watermark: a leader names its log end to no consumer."""
        return await self.remote.fetch_latest_offset(partition, current_leader_epoch)

    async def fetch_epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, EpochWanted]
    ) -> dict[TopicPartition, EpochEnd]:
        return await self.remote.fetch_epoch_end_offsets(wanted)

    def initiate_close(self) -> None:
        self.remote.initiate_close()

    async def close(self) -> None:
        await self.remote.close()


@attrs.frozen(kw_only=True)
class SourceFetcherFactory(RemoteFetcherFactory):
    """The factory of a mirror's fetchers."""

    source: MirrorSource

    def endpoint(self, leader: BrokerEndPoint, fetcher_id: int) -> LeaderEndpoint:
        version = self.source.version
        remote = RemoteLeaderEndpoint(
            broker=leader,
            replica_id=CONSUMER_REPLICA_ID,
            client_id=f"{CLIENT_ID}-{fetcher_id}",
            transport=self.transport,
            clock=self.clock,
            fetch_version=version(leader.id, ApiKey.FETCH),
            list_offsets_version=version(leader.id, ApiKey.LIST_OFFSETS),
            offset_for_leader_epoch_version=version(leader.id, ApiKey.OFFSET_FOR_LEADER_EPOCH),
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )
        return SourceLeader(remote, self.source.metadata.request_update)
