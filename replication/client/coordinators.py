"""The coordinators of groups and transactional ids: finding and asking them (FindCoordinator, KIP-699).

A request about one key fits every version: the versions differ in where the key stands, in the
request and in the response.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from replication.client.cluster_view import Node
from replication.client.config import ClientConfig
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.client.retries import keep_asking
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from replication.wire.schema import MAX_VERSION

T = TypeVar("T")


def coordinator_request(kind: int, key: str) -> FindCoordinatorRequest:
    """Return the request about `key`; `kind` is GROUP or TRANSACTION of its wire module."""
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def coordinator_in(response: FindCoordinatorResponse) -> Coordinator:
    """Return the coordinator of the one key asked about; up to version 3 it stands at the top."""
    if response.coordinators:
        return response.coordinators[0]
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def some_node(metadata: Metadata) -> Node:
    """Return a node that can be asked now; KafkaError if every broker is in back-off."""
    node = metadata.any_node()
    if node is None:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "every broker is in back-off")
    return node


async def find_coordinator(network: NetworkClient, metadata: Metadata, kind: int, key: str) -> Node:
    """Return the coordinator of `key`, as the node of its second connection; KafkaError if none."""
    request = ask(coordinator_request(kind, key))
    found = coordinator_in(await network.call(some_node(metadata), request))
    error = ErrorCode.of(found.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"no coordinator of {key}")
    return Node(found.node_id, found.host, found.port).as_coordinator()


@attrs.define(eq=False, kw_only=True)
class Coordinators:
    """The coordinators that a transactional producer asks: of its id, and of its groups.

    Each is looked for when it is first asked, and again when it says that it is no coordinator
    or does not answer. One call takes at most `timeout_ms`.
    """

    config: ClientConfig
    timeout_ms: int
    network: NetworkClient
    metadata: Metadata
    clock: NodeClock
    chance: random.Random
    _known: dict[tuple[int, str], Node] = attrs.field(factory=dict, init=False)

    async def keep_asking(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await keep_asking(
            attempt,
            config=self.config,
            clock=self.clock,
            chance=self.chance,
            timeout_ms=self.timeout_ms,
            on_no_answer=self._known.clear,
        )

    async def ask(
        self, kind: int, key: str, request: object, *, max_version: int = MAX_VERSION
    ) -> Any:
        """Return the response of the coordinator of `key`, a group or a transactional id."""
        node = self._known.get((kind, key))
        if node is None:
            node = await find_coordinator(self.network, self.metadata, kind, key)
            self._known[kind, key] = node
        return await self.network.call(node, ask(request, max_version=max_version))

    def forget(self, kind: int, key: str) -> None:
        self._known.pop((kind, key), None)
