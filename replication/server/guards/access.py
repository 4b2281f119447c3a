"""The checks of one request by the authorizer."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import compress
from operator import not_
from typing import Any, TypeAlias, TypeVar

import attrs

from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.security.rules.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    Authorizer,
    Operation,
    ResourceType,
    as_bits,
)
from replication.server.server import Handler, RequestContext
from replication.steps import Steps, each_of
from replication.wire.refusals import each_refused, refused_whole_in_steps

T = TypeVar("T")


@attrs.frozen
class Access:
    """The rights of one request's client, by the cluster's ACLs."""

    authorizer: Authorizer
    image: MetadataImage
    context: RequestContext
    creates_topics: bool = False
    """Whether Metadata may create the topics that it names (`auto.create.topics.enable`)."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.authorizer.may(
            self.image.security.index,
            operation,
            kind,
            name,
            principal=self.context.principal,
            host=self._host,
        )

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do with a resource, a bit for each."""
        return as_bits(each for each in SUPPORTED[kind] if self.may(each, kind, name))

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        return self.authorizer.may_some(
            self.image.security.index,
            operation,
            kind,
            principal=self.context.principal,
            host=self._host,
        )

    def cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def topic(self, operation: Operation, name: str) -> bool:
        return self.may(operation, ResourceType.TOPIC, name)

    def name_of(self, item: Any) -> str | None:
        """Return the topic name of a part of a request; None for an id that no topic has."""
        if isinstance(item, str):
            return item
        name: str | None = getattr(item, "name", None) or getattr(item, "topic", None)
        if name:
            return name
        topic_id = getattr(item, "topic_id", None)
        return None if topic_id is None else self.image.topic_names_by_id.get(topic_id)

    async def refuse(self, request: object, code: ErrorCode) -> Any:
        """Return the answer to a request that is refused as a whole."""
        return await in_steps(
            refused_whole_in_steps(self.context.api_key, self.context.version, request, code)
        )

    @property
    def _host(self) -> str:
        return self.context.peer.rpartition(":")[0]


Guard: TypeAlias = Callable[[Access, Any, Handler], Awaitable[Any]]


async def sorted_out(items: Sequence[T], may: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the items that are allowed, and those that are not, each in their order."""
    return await in_steps(sorting_out(items, may))


def sorting_out(items: Sequence[T], may: Callable[[T], bool]) -> Steps[tuple[list[T], list[T]]]:
    """Return what `sorted_out` returns, in steps."""
    judged = yield from each_of(may, items)
    return list(compress(items, judged)), list(compress(items, map(not_, judged)))


async def all_refused(kind: type[T], items: Sequence[object], code: ErrorCode) -> list[T]:
    """Return an answer of class `kind` for each of `items`, which are all refused."""
    return await in_steps(each_refused(kind, items, code))
