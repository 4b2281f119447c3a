"""The coordinators of groups and transactional ids: finding and asking them (FindCoordinator, KIP-699).

    find_coordinator     one search
    CoordinatorFinder    the coordinator of a consumer's group, searched for until it is found
    Coordinators         those of a transactional producer: of its id, and of groups

Rule 1: tasks of a consumer that need the coordinator at the same time share one search.

Rule 2: a coordinator that does not answer, or says that it is no coordinator, is forgotten; the
next request searches again, after a back-off.

A request about one key fits every version: the versions differ in where the key stands, in the
request and in the response.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.errors import GroupAuthorizationFailedError, UnsupportedVersionError
from replication.client.metadata import Metadata
from replication.client.requests import ClientRequest, ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.wire.find_coordinator import GROUP, FindCoordinatorRequest
from replication.wire.schema import MAX_VERSION
from storage.attributes import define

T = TypeVar("T")


async def find_coordinator(metadata: Metadata, kind: int, key: str) -> Node:
    """Return the coordinator of `key`, as the node of its second connection; KafkaError if none.

    `kind` is GROUP or TRANSACTION of the wire module.
    """
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    response = await metadata.ask_any(request)
    # Up to version 3 the response itself has the fields of the coordinator.
    found = response.coordinators[0] if response.coordinators else response
    error = ErrorCode.of(found.error_code)
    if error is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        raise GroupAuthorizationFailedError(key)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"no coordinator of {key}")
    return Node(found.node_id, found.host, found.port).as_coordinator()


@define(eq=False)
class CoordinatorFinder:
    """The coordinator of one group, as far as it is known."""

    group_id: str
    metadata: Metadata
    known: Node | None = attrs.field(init=False, default=None)
    _searching: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    def forget(self) -> None:
        self.known = None

    def hang_up(self) -> None:
        """Close the connection: the requests that the coordinator holds are not wanted any more."""
        if self.known is not None:
            network = self.metadata.network
            network.disconnect(self.known.id, "its requests are not wanted any more")

    async def pause(self, failures: int) -> None:
        """Wait before the next attempt at a request to the coordinator."""
        await self.metadata.network.pause(failures)

    async def find(self) -> Node:
        """Search until the coordinator is found; KafkaError if no search would help."""
        async with self._searching:
            failures = 0
            while self.known is None:
                if failures:
                    await self.pause(failures)
                self.known = await self._search()
                failures += 1
            return self.known

    async def call(self, request: ClientRequest, *, timeout_ms: float | None = None) -> Any:
        """Ask the coordinator; PeerUnavailableError or ProtocolError if it does not answer."""
        node = await self.find()
        try:
            return await self.metadata.network.call(node, request, timeout_ms=timeout_ms)
        except NO_ANSWER:
            if self.known == node:
                self.forget()
            raise

    async def _search(self) -> Node | None:
        await trio.lowlevel.checkpoint()
        try:
            return await find_coordinator(self.metadata, GROUP, self.group_id)
        except NO_ANSWER:
            self.metadata.request_update()
            return None
        except UnsupportedVersionError:
            raise
        except KafkaError as error:
            if error.code.retriable:
                return None
            raise


@define(eq=False)
class Coordinators:
    """The coordinators that a transactional producer asks.

    One call takes at most `timeout_ms`.
    """

    metadata: Metadata
    timeout_ms: int
    _known: dict[tuple[int, str], Node] = attrs.field(factory=dict, init=False)

    async def keep_asking(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self.metadata.network.keep_asking(
            attempt, timeout_ms=self.timeout_ms, on_no_answer=self._known.clear
        )

    async def ask(
        self, kind: int, key: str, request: object, *, max_version: int = MAX_VERSION
    ) -> Any:
        """Return the response of the coordinator of `key`, a group or a transactional id."""
        node = self._known.get((kind, key))
        if node is None:
            node = self._known[kind, key] = await find_coordinator(self.metadata, kind, key)
        return await self.metadata.network.call(node, ask(request, max_version=max_version))

    def forget(self, kind: int, key: str) -> None:
        self._known.pop((kind, key), None)
