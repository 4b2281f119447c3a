"""Whom a transactional producer asks: the coordinators of its id and of its groups.

Each is looked for when it is first asked, and again when it says that it is none, or does not
answer. All of it takes `max.block.ms` at the most, as Kafka's transactional calls do.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from replication.client.coordinators import node_of, who_coordinates
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.nodes import Node
from replication.client.producer.config import ProducerConfig
from replication.client.requests import MAX_VERSION, ask
from replication.client.retries import keep_asking
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import NodeClock

T = TypeVar("T")


@attrs.define(eq=False, kw_only=True)
class Coordinators:
    config: ProducerConfig
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
            timeout_ms=self.config.max_block_ms,
            on_no_answer=self._known.clear,
        )

    async def ask(
        self, kind: int, key: str, request: object, *, max_version: int = MAX_VERSION
    ) -> Any:
        """The answer of the coordinator of `key`, a group or a transactional id by `kind`."""
        node = self._known.get((kind, key))
        if node is None:
            node = self._known[kind, key] = await self._find(kind, key)
        return await self.network.call(node, ask(request, max_version=max_version))

    async def _find(self, kind: int, key: str) -> Node:
        asked = self.metadata.any_node()
        if asked is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "every broker is in back-off")
        return node_of(await self.network.call(asked, who_coordinates(kind, key)), key)

    def forget(self, kind: int, key: str) -> None:
        """It has said that it is none."""
        self._known.pop((kind, key), None)
