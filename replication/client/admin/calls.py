"""How an admin client asks: which broker, how often, and for how long.

    any broker      topics, configurations, elections, reassignments: it forwards to the controller
    each broker     log directories and groups: it lists its own
    the leader      of each partition: it deletes records and lists offsets
    a coordinator   of each group

Rule 1: a request that failed in a way that may pass (no answer, a broker that no longer leads or
coordinates, a controller that is away) is sent again, until `default.api.timeout.ms` is over.

Rule 2: a request about many things that fails for some is done for the others. Those that failed
are asked again alone, and the ones that failed for good are raised together (`SomeFailedError`).

Rule 3: a request whose response was lost may have been carried out: TOPIC_ALREADY_EXISTS may be
about our own topic, as with Kafka's admin client.

Most requests and responses list partitions by topic: `replication.client.requests.nested` builds
such lists, and `outcomes` reads them. `outcomes_by` reads lists of anything else.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import attrs

from replication.client.cluster_view import Node
from replication.client.config import ClientConfig
from replication.client.coordinators import find_coordinator
from replication.client.errors import KafkaTimeoutError, raise_for
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.errors import ErrorCode, KafkaError
from replication.wire.find_coordinator import GROUP
from storage.attributes import define, frozen
from storage.types import TopicPartition

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class SomeFailedError(KafkaError):
    """Some of the things asked for failed, and the others were done.

    `failed` maps each thing that failed to its error.
    """

    def __init__(self, failed: Mapping[Any, KafkaError]) -> None:
        self.failed = dict(failed)
        thing, first = next(iter(self.failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        why = first.detail.removeprefix(first.code.name).removeprefix(": ")
        is_named = f"'{thing}'" in why or f"Group {thing} " in why
        said = why if is_named else ": ".join(filter(None, (str(thing), why)))
        super().__init__(first.code, f"{said}{more}")


@frozen
class Outcome:
    """The answer about one thing that was asked for: an error code, or a value."""

    code: int
    message: str | None = None
    value: Any = None

    @classmethod
    def of(cls, answer: Any, value: Any = None) -> Self:
        """Return the outcome of one item of a response, with `value`."""
        return cls(answer.error_code, getattr(answer, "error_message", None), value)


def only(answers: Sequence[T]) -> T:
    """Return the answer about the only thing asked; KafkaError if the response leaves it out."""
    if len(answers) != 1:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{len(answers)} answers about one thing")
    return answers[0]


def some_failed(failed: Mapping[Any, KafkaError]) -> None:
    """Raise SomeFailedError if anything failed."""
    if failed:
        raise SomeFailedError(failed)


@define(eq=False, kw_only=True)
class Calls:
    """The ways in which an open admin client asks its cluster."""

    metadata: Metadata
    topics: dict[str, int] = attrs.field(factory=dict)
    """Topics whose leaders must be known, and the number of calls that need them."""

    @property
    def network(self) -> NetworkClient:
        return self.metadata.network

    @property
    def config(self) -> ClientConfig:
        return self.metadata.network.config

    # Asking again.

    async def keep_asking(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` until it does not fail in a way that may pass; return its result."""
        return await self.network.keep_asking(attempt)

    async def for_each(
        self,
        things: Sequence[K],
        attempt: Callable[[Sequence[K]], Awaitable[Mapping[K, Outcome]]],
        *,
        at_once: frozenset[ErrorCode] = UNKNOWN_TOPIC,
    ) -> dict[K, Any]:
        """Return what `attempt` answers for each thing.

        It is called again for the things that may still succeed; SomeFailedError names the
        others. Errors in `at_once` are final although Kafka calls them retriable.
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
                thing: KafkaError(ErrorCode.NETWORK_EXCEPTION, "the response leaves it out")
                for thing in left
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

    async def ask(self, message: object) -> Any:
        """Return the response of any broker, asked again until it is not an error as a whole."""

        async def once() -> Any:
            response = await self.any_broker(message)
            raise_if_refused(response)
            return response

        return await self.keep_asking(once)

    async def ask_about(
        self,
        things: Sequence[K],
        request: Callable[[Sequence[K]], object],
        read: Callable[[Any], Mapping[K, Outcome]],
    ) -> dict[K, Any]:
        """Ask any broker about `things`; return the values that `read` finds in the response."""

        async def once(left: Sequence[K]) -> Mapping[K, Outcome]:
            response = await self.any_broker(request(left))
            raise_if_refused(response)
            return read(response)

        return await self.for_each(things, once)

    # Which broker.

    async def any_broker(self, message: object) -> Any:
        return await self.metadata.ask_any(message)

    async def broker(self, broker_id: int, message: object, *, min_version: int = 0) -> Any:
        node = self.metadata.view.node(broker_id)
        if node is None:
            self.metadata.request_update()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"there is no broker {broker_id}")
        return await self.network.call(node, ask(message, min_version=min_version))

    async def broker_ids(self) -> list[int]:
        await self.metadata.update(timeout_ms=self.config.default_api_timeout_ms)
        return sorted(self.metadata.view.nodes)

    async def by_leader(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions by the broker that leads them; those without a leader are left out."""
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

    async def each_leader(
        self,
        wanted: Mapping[TopicPartition, Any],
        request: Callable[[Sequence[TopicPartition]], object],
        value: Callable[[Any], Any],
    ) -> dict[TopicPartition, Any]:
        """Ask the leaders of the `wanted` partitions; return the value of each answer."""

        async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
            found: dict[TopicPartition, Outcome] = {}
            for leader, led in (await self.by_leader(left)).items():
                found |= outcomes((await self.broker(leader, request(led))).topics, value)
            return found

        return await self.for_each(list(wanted), once, at_once=frozenset())

    async def coordinator(self, group_id: str) -> Node:
        return await find_coordinator(self.metadata, GROUP, group_id)

    async def ask_coordinator(self, group_id: str, message: object, *, min_version: int = 0) -> Any:
        node = await self.coordinator(group_id)
        return await self.network.call(node, ask(message, min_version=min_version))


class OpenAdmin(Protocol):
    """An admin client; `calls` raises IllegalStateError outside its block."""

    @property
    def calls(self) -> Calls: ...


def raise_if_refused(response: Any) -> None:
    """Raise the error of a response as a whole, if it has one."""
    raise_for(getattr(response, "error_code", 0), getattr(response, "error_message", None) or "")


def outcomes_by(
    name: str, items: Iterable[Any], value: Callable[[Any], Any] = lambda _: None
) -> dict[str, Outcome]:
    """Return the outcome for each item of a response, by its field `name`."""
    return {getattr(each, name): Outcome.of(each, value(each)) for each in items}


def outcomes(
    topics: Iterable[Any], value: Callable[[Any], Any] = lambda _: None
) -> dict[TopicPartition, Outcome]:
    """Return the outcome for each partition of a response that lists partitions by topic."""
    return {
        TopicPartition(topic.name, each.partition_index): Outcome.of(each, value(each))
        for topic in topics
        for each in topic.partitions
    }
