"""How an admin client asks: whom, how often, for how long.

    any broker      topics, configurations, elections, reassignments: it forwards to the controller
    each broker     log directories, groups: what it has
    the leader      of each partition: records deleted, offsets listed
    a coordinator   of each group

Rule 1: what failed in a way that may pass (no answer, a leader or a coordinator that is not
one, a controller that is away) is asked again, until `default.api.timeout.ms` are over.

Rule 2: what is asked for many things at once and fails for some is done for the others. Those
that failed are asked again alone, and in the end told together (`SomeFailedError`).

Rule 3: an answer that was lost may have been acted on: TOPIC_ALREADY_EXISTS may be our own
topic. (As with Kafka's admin client.)
"""

import random
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from replication.client.config import ClientConfig
from replication.client.coordinators import node_of, who_coordinates
from replication.client.errors import KafkaTimeoutError
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.nodes import Node
from replication.client.requests import ask
from replication.client.retries import keep_asking
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.wire.find_coordinator import GROUP
from storage.types import TopicPartition

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class SomeFailedError(KafkaError):
    """Not all was done; the rest was. `failed`: each thing that was not, and why."""

    def __init__(self, failed: Mapping[Any, KafkaError]) -> None:
        self.failed = dict(failed)
        thing, first = next(iter(self.failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        why = first.detail.removeprefix(first.code.name).removeprefix(": ")
        super().__init__(first.code, f"{thing}{why and ': '}{why}{more}")


@attrs.frozen
class Outcome:
    """Of one thing that was asked for: an error, or what was answered."""

    code: int
    message: str | None = None
    value: Any = None


def only(answers: Sequence[T]) -> T:
    """Of a question about one thing; KafkaError where the answer leaves it out."""
    if len(answers) != 1:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{len(answers)} answers about one")
    return answers[0]


def some_failed(failed: Mapping[Any, KafkaError]) -> None:
    """Raise where any did."""
    if failed:
        raise SomeFailedError(failed)


@attrs.define(eq=False, kw_only=True)
class Calls:
    config: ClientConfig
    network: NetworkClient
    metadata: Metadata
    clock: NodeClock
    chance: random.Random
    topics: dict[str, int] = attrs.field(factory=dict)
    """Whose partitions' leaders have to be known, and for how many calls."""

    # Until it works.

    async def keep_asking(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns, once it does not fail in a way that may pass."""
        return await keep_asking(
            attempt,
            config=self.config,
            clock=self.clock,
            chance=self.chance,
            timeout_ms=self.config.default_api_timeout_ms,
        )

    async def for_each(
        self,
        things: Sequence[K],
        attempt: Callable[[Sequence[K]], Awaitable[Mapping[K, Outcome]]],
        *,
        at_once: frozenset[ErrorCode] = UNKNOWN_TOPIC,
    ) -> dict[K, Any]:
        """What `attempt` answers for each thing; it is called again for those that may still
        work, and SomeFailedError tells of the rest. `at_once`: what is told and not tried again.
        """
        left, done = list(things), dict[K, Any]()
        failed: dict[K, KafkaError] = {}

        async def once() -> None:
            again: dict[K, KafkaError] = {}
            answered = await attempt(tuple(left))
            for thing, outcome in [each for each in answered.items() if each[0] in left]:
                code = ErrorCode.of(outcome.code)
                left.remove(thing)
                if code is ErrorCode.NONE:
                    done[thing] = outcome.value
                elif code.retriable and code not in at_once:
                    again[thing] = KafkaError(code, outcome.message or "")
                else:
                    failed[thing] = KafkaError(code, outcome.message or "")
            unanswered = {
                thing: KafkaError(ErrorCode.NETWORK_EXCEPTION, "not answered for") for thing in left
            }
            left.extend(again)
            some_failed(unanswered | again)

        if left:
            try:
                await self.keep_asking(once)
            except KafkaTimeoutError as error:
                failed |= dict.fromkeys(left, error)
        some_failed(failed)
        return {thing: done[thing] for thing in things}

    # Whom.

    async def any_broker(self, message: object) -> Any:
        return await self.network.call(self._some_node(), ask(message))

    def _some_node(self) -> Node:
        node = self.metadata.any_node()
        if node is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "every broker is in back-off")
        return node

    async def broker(self, broker_id: int, message: object) -> Any:
        node = self.metadata.view.node(broker_id)
        if node is None:
            self.metadata.request_update()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"there is no broker {broker_id}")
        return await self.network.call(node, ask(message))

    async def broker_ids(self) -> list[int]:
        await self.metadata.update(timeout_ms=self.config.default_api_timeout_ms)
        return sorted(self.metadata.view.nodes)

    async def by_leader(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Who leads them now; those that nobody leads are left out."""
        topics = {partition.topic for partition in partitions}
        for topic in topics:
            self.topics[topic] = self.topics.get(topic, 0) + 1
        try:
            await self.metadata.update(timeout_ms=self.config.default_api_timeout_ms)
        finally:
            for topic in topics:
                self.topics[topic] -= 1
                if not self.topics[topic]:
                    del self.topics[topic]
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            node = self.metadata.view.leader(partition).node
            if node is not None:
                led.setdefault(node.id, []).append(partition)
        return led

    async def coordinator(self, group_id: str) -> Node:
        """Who looks after the group."""
        response = await self.network.call(self._some_node(), who_coordinates(GROUP, group_id))
        return node_of(response, group_id)


def by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
