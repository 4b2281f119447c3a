"""A broker's channel to the controller: one connection, made again whenever it is lost.

The controller answers a connection's requests in order, and a topic creation may take as
long as its client is willing to wait. So heartbeats, ISR changes and forwarded requests
have a channel each, as Kafka gives each its own NodeToControllerChannelManager.

A call either returns the response or raises PeerUnavailableError. The caller decides whether to
try again, since only the caller knows whether a second request does harm.
"""

from typing import Any, Protocol

import attrs
import trio

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.rpc import RpcClient
from replication.net.seams import Seams
from replication.wire.apis import api_of


class ControllerCalls(Protocol):
    """The calls that most users of a channel need."""

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the controller's response; PeerUnavailableError if none comes in time."""


@attrs.define(eq=False)
class ControllerChannel:
    """A channel to the controller at `host:port`."""

    host: str
    port: int
    client_id: str
    seams: Seams
    _client: RpcClient | None = attrs.field(default=None, init=False)
    _connecting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the response, in the newest version: both sides are of one release."""
        client = self._client
        if client is None or client.closed:
            client = await self._connected(timeout_ms)
        version = api_of(type(request)).max_version
        try:
            return await client.call(request, version=version, timeout_ms=timeout_ms)
        except ProtocolError as error:
            raise PeerUnavailableError(f"the controller does not speak to us: {error}") from error

    async def _connected(self, timeout_ms: int) -> RpcClient:
        async with self._connecting:
            if self._client is None or self._client.closed:
                self._client = await RpcClient.connect(
                    self.seams.transport,
                    self.host,
                    self.port,
                    client_id=self.client_id,
                    clock=self.seams.clock,
                    timeout_ms=timeout_ms,
                )
            return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
