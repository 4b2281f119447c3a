"""Requests that name topics by their ids (KIP-516, KIP-848, KIP-1319): their names, and the answers.

    Produce 13   OffsetCommit 10   OffsetFetch 10   TxnOffsetCommit 6

Names are filled in before the handler sees a topic, and ids after it has answered. A topic with an
unknown id is not seen by the handler: each of its partitions is answered UNKNOWN_TOPIC_ID.
"""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.server.answers import Later
from replication.server.server import CloseConnectionError, Handler, RequestContext
from replication.steps import Steps, at_once
from replication.wire.apis import API, ApiKey
from replication.wire.refusals import each_refused
from replication.wire.schema import fields_of
from storage.types import NO_TOPIC_ID, TopicId


class HasId(Protocol):
    """A topic with an id."""

    @property
    def topic_id(self) -> TopicId: ...


class Topic(Protocol):
    """A topic in a request or in a response, with its name, its id or both."""

    name: str
    topic_id: bytes


T = TypeVar("T", bound=Topic)


_PLACES: Final[Mapping[ApiKey, tuple[str, str]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ("topic_data", "responses"),
        ApiKey.OFFSET_COMMIT: ("topics", "topics"),
        ApiKey.TXN_OFFSET_COMMIT: ("topics", "topics"),
    }
)
"""The arrays of topics in a request and in its response."""


def are_by_id(key: ApiKey, version: int) -> bool:
    """Return whether topics have ids instead of names in this version of an API."""
    return version > API[key].named_until


def by_name(node: BrokerNode, key: ApiKey, handler: Handler) -> Handler:
    """Return `handler`, which knows topics by name, as one that takes requests with ids too."""
    if key not in _PLACES:
        return handler
    api, (asked, answered) = API[key], _PLACES[key]
    (answer,) = (each.wire.items for each in fields_of(api.response) if each.name == answered)
    assert isinstance(answer, type), "topics are structs"

    def handle(context: RequestContext, request: Any) -> Awaitable[Any]:
        by_id = context.version > api.named_until
        return handle_ids(context, request) if by_id else handler(context, request)

    async def handle_ids(context: RequestContext, request: Any) -> Any:
        topics = getattr(request, asked)
        named, unknown = await in_steps(with_names(node.metadata.image, topics))
        setattr(request, asked, named)
        response: Any = None
        if named or not unknown:
            response = await handler(context, request)
        if isinstance(response, Later):
            if not unknown:
                return response.then(partial(_with_ids, answered, named))
            response = await response.response()
        if unknown and getattr(request, "acks", None) == 0:
            raise CloseConnectionError("a produce with acks=0 failed: it has an unknown topic id")
        if response is None and not unknown:
            return None
        response = response or api.response()
        answers = getattr(response, answered)
        await in_steps(add_ids({each.name: each for each in named}, answers))
        answers += await in_steps(refused(answer, unknown))
        return response

    return handle


def _with_ids(answered: str, named: Sequence[Topic], response: Any) -> Any:
    at_once(add_ids({each.name: each for each in named}, getattr(response, answered)))
    return response


def with_names(image: MetadataImage, topics: Sequence[T]) -> Steps[tuple[list[T], list[T]]]:
    """Return the topics whose ids are known, with their names, and those with unknown ids."""
    named, unknown = [], []
    for topic in topics:
        name = image.topic_names_by_id.get(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            topic.name = name
            named.append(topic)
        yield 1
    return named, unknown


def add_ids(topics: Mapping[str, HasId], answers: Sequence[Topic]) -> Steps[None]:
    """Fill in the id of each answered topic; one that is not among `topics` has NO_TOPIC_ID."""
    for answer in answers:
        topic = topics.get(answer.name)
        answer.topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        yield 1


def refused(answer: type[T], unknown: Sequence[Topic]) -> Steps[list[T]]:
    """Return the answers to topics with unknown ids."""
    return each_refused(answer, unknown, ErrorCode.UNKNOWN_TOPIC_ID)
