"""A broker's channels to the active controller, whichever of the controllers that is.

    metadata fetch ── who leads, who does not ──> Controllers ──> ControllerChannel (heartbeats)
                                                       └────────> ControllerChannel (forwarding), ...

A controller answers a connection's requests in order, and a topic creation may take as
long as its client is willing to wait. So heartbeats, ISR changes and forwarded requests
have a channel each, as Kafka gives each its own NodeToControllerChannelManager.

Rule 1: a call either returns the response of the active controller or raises PeerUnavailableError.
The caller decides whether to try again, since only the caller knows whether a second request does
harm.

Rule 2: while the leader of the metadata log is known, every call goes to it. While it is not known,
calls go to one address after the other: a user who finds that an address does not lead moves all users
to the next one.

Rule 3: the fetch of the metadata log decides whether a known leader is still there. A channel does
not: its call may have failed because its client would not wait, or because a decision takes long. It
does where the controller itself says NOT_CONTROLLER. The broker of a node with both roles fetches
nothing: its controller knows who leads (`find_leader`).

Rule 4: where the leader is another, the connections to the old one are closed at once. A call that a
frozen controller never answers fails then, and its caller repeats it at the new one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import attrs
import trio

from replication.config.listeners import HostPort
from replication.errors import ErrorCode, PeerUnavailableError, ProtocolError
from replication.net.exchange import Versions, ask_versions
from replication.net.rpc import RpcClient
from replication.net.seams import Seams
from replication.wire.add_raft_voter import AddRaftVoterRequest
from replication.wire.apis import ApiKey, api_of
from replication.wire.describe_quorum import DescribeQuorumResponse
from replication.wire.refusals import error_of_whole
from storage.attributes import define
from storage.types import NO_LEADER_EPOCH, LeaderEpoch

SENT_VERSIONS: Final = {ApiKey.BROKER_HEARTBEAT: 1, ApiKey.API_VERSIONS: 4}
"""The versions of requests whose newest version has nothing that is used here.

The heartbeat's has cordoned log directories (KIP-1066), that of ApiVersions names the node that is
meant (KIP-1242); controllers of Kafka 4.1 do not know them.
"""


class ControllerCalls(Protocol):
    """The calls that most users of a channel need."""

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the controller's response; PeerUnavailableError if none comes in time."""


@define(eq=False)
class PeerChannel:
    """A channel to the node at `host:port`: one connection, made again whenever it is lost, until
    the channel is closed.
    """

    host: str
    port: int
    client_id: str
    seams: Seams
    longest_connect_ms: int | None = None
    """The time limit for a connection, where it is less than that of the call."""
    asks_versions: bool = False
    """Whether the node is of another release, and says by ApiVersions what it serves."""
    _versions: Versions = attrs.field(factory=dict, init=False)
    _client: RpcClient | None = attrs.field(default=None, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _connecting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the response, in the newest version that the node serves and that has something new.

        PeerUnavailableError if none comes in time.
        """
        client = self._client
        try:
            if client is None or client.closed:
                client = await self._connected(timeout_ms)
            api = api_of(type(request))
            _, newest = self._versions.get(api.key, (api.min_version, api.max_version))
            version = min(newest, _sent_version(request))
            return await client.call(request, version=version, timeout_ms=timeout_ms)
        except ProtocolError as error:
            raise PeerUnavailableError(f"{self.host}:{self.port} is no node: {error}") from error

    async def _connected(self, timeout_ms: int) -> RpcClient:
        if self.longest_connect_ms is not None:
            timeout_ms = min(timeout_ms, self.longest_connect_ms)
        async with self._connecting:
            if self._client is None or self._client.closed:
                client = await RpcClient.connect(
                    self.seams.transport,
                    self.host,
                    self.port,
                    client_id=self.client_id,
                    clock=self.seams.clock,
                    timeout_ms=timeout_ms,
                )
                if self._is_closed:
                    client.close()
                    raise PeerUnavailableError(f"nobody asks {self.host}:{self.port} any more")
                self._client = client
                if self.asks_versions:
                    ask = partial(_ask, client, timeout_ms)
                    self._versions, _ = await ask_versions(f"{self.host}:{self.port}", ask)
            return self._client

    def close(self) -> None:
        """Close the connection, also one that is being made."""
        self._is_closed = True
        if self._client is not None:
            self._client.close()


def _sent_version(request: object) -> int:
    """Return the newest version of a request that has something that is used here."""
    if isinstance(request, AddRaftVoterRequest) and request.ack_when_committed:
        return 0  # 1 names the other choice (KIP-1186)
    api = api_of(type(request))
    return SENT_VERSIONS.get(api.key, api.max_version)


async def _ask(client: RpcClient, timeout_ms: int, request: object, version: int) -> object:
    response: object = await client.call(request, version=version, timeout_ms=timeout_ms)
    return response


ELSEWHERE = {ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""The errors of a controller that is not the active one; the second is of requests to the quorum."""


@define(eq=False)
class Controllers:
    """The controllers as one broker knows them, and its channels to the active one."""

    bootstrap: Sequence[HostPort]
    """The addresses at which the active controller is looked for."""
    longest_connect_ms: int
    """The time limit for a connection to one of them (`controller.quorum.request.timeout.ms`)."""
    find_leader: Callable[[], HostPort | None] = lambda: None
    """The leader as the controller of this node knows it, in a node with both roles."""
    leader: HostPort | None = attrs.field(default=None, init=False)
    """The address of the leader of the metadata log, if it is known."""
    _leader_epoch: LeaderEpoch = attrs.field(default=NO_LEADER_EPOCH, init=False)
    _turn: int = attrs.field(default=0, init=False)
    _channels: list["ControllerChannel"] = attrs.field(factory=list, init=False)

    @property
    def address(self) -> HostPort:
        """The address to send the next request to."""
        return self.leader or self.bootstrap[self._turn % len(self.bootstrap)]

    def channel(self, client_id: str, seams: Seams) -> "ControllerChannel":
        """Return a new channel."""
        channel = ControllerChannel(self, client_id, seams)
        self._channels.append(channel)
        return channel

    def leads(self, address: HostPort, leader_epoch: LeaderEpoch) -> None:
        """Note a leader; one of an earlier epoch than the last is no news."""
        if leader_epoch >= self._leader_epoch:
            self._leader_epoch = leader_epoch
            self.leader = address
            self._leave_others()

    def answered(self, address: HostPort) -> None:
        """Note that the controller at `address` serves the metadata log, which only its leader does."""
        if address == self.address:
            self.leader = address

    def not_at(self, address: HostPort) -> None:
        """Note that no active controller answers at `address`; the next address is tried then."""
        if address == self.address:
            self._turn += 1
            self.look_again()

    def look_again(self) -> None:
        """Call the leader that this node's own controller knows; without one, any address in turn."""
        self.leader = self.find_leader()
        self._leave_others()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _leave_others(self) -> None:
        for channel in self._channels:
            channel.leave_others()


@define(eq=False)
class ControllerChannel:
    """A channel to the active controller; made by `Controllers.channel`."""

    controllers: Controllers
    client_id: str
    seams: Seams
    _peer: PeerChannel | None = attrs.field(default=None, init=False)

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the response of the active controller; PeerUnavailableError if there is none in time."""
        address = self.controllers.address
        if self._peer is None:
            self._peer = PeerChannel(
                address.host,
                address.port,
                self.client_id,
                self.seams,
                self.controllers.longest_connect_ms,
            )
        try:
            response = await self._peer.call(request, timeout_ms=timeout_ms)
        except PeerUnavailableError:
            if self.controllers.leader is None:
                self.controllers.not_at(address)
            raise
        if _error(response) in ELSEWHERE:
            self.controllers.not_at(address)
            raise PeerUnavailableError(f"the controller at {address} is not active")
        return response

    def leave_others(self) -> None:
        """Close the connection to any other controller than the one that is called next."""
        address = self.controllers.address
        if self._peer is not None and (self._peer.host, self._peer.port) != (
            address.host,
            address.port,
        ):
            self.close()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def _error(response: Any) -> int:
    """Return the error of the whole request. Apache Kafka's controller gives that of DescribeQuorum
    to its one partition, which is the whole request.
    """
    if isinstance(response, DescribeQuorumResponse) and not response.error_code:
        return next((error_of_whole(topic) for topic in response.topics), ErrorCode.NONE)
    return error_of_whole(response)
