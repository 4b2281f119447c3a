"""The checks of one request by the authorizer, and the rights that most APIs need.

`RULES` is Kafka's table ("Operations and Resources on Protocols"); `by_rules` is the guard of its APIs.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import not_
from typing import Any, TypeAlias, TypeVar

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
from replication.wire.apis import API, ApiKey
from replication.wire.refusals import each_refused, refused_whole_in_steps
from replication.wire.schema import fields_of
from storage.attributes import frozen

T = TypeVar("T")


@frozen
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


# The table of rights.

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@frozen
class Whole:
    """A right that the whole request needs; `name` returns the resource, None if there is none."""

    operation: Operation
    kind: ResourceType
    name: Callable[[Any], str | None]


@frozen
class Each:
    """A right for each item of the request's array `asked`; the response's `answered` refuses it."""

    operation: Operation
    asked: str
    answered: str
    kind: ResourceType = ResourceType.TOPIC


Requirement: TypeAlias = Whole | Each


async def by_rules(
    rules: tuple[Requirement, ...], access: Access, request: Any, handler: Handler
) -> Any:
    """Answer the request; refuse all of it, or the parts of it that are not allowed."""
    response_class = API[access.context.api_key].response
    for rule in rules:
        if isinstance(rule, Whole) and not _may(access, rule, request):
            return await access.refuse(request, _CODES[rule.kind])
    parts = [rule for rule in rules if isinstance(rule, Each)]
    without: dict[str, list[Any]] = {}
    asked_for = False
    for part in parts:
        without[part.answered] = [
            *without.get(part.answered, ()),
            *await _taken_out(access, part, request, response_class),
        ]
        asked_for = asked_for or bool(getattr(request, part.asked))
    if any(without.values()) and not asked_for:
        response = response_class()
    else:
        response = await handler(access.context, request)
    for answered, refusals in without.items():
        if refusals and response is not None:
            setattr(response, answered, [*getattr(response, answered), *refusals])
    return response


def _may(access: Access, rule: Whole, request: Any) -> bool:
    name = rule.name(request)
    return name is None or access.may(rule.operation, rule.kind, name)


async def _taken_out(access: Access, rule: Each, request: Any, response_class: type) -> list[Any]:
    """Remove the refused items from the request, and return the answers to them."""
    items = getattr(request, rule.asked) or []
    allowed, denied = await sorted_out(items, partial(_may_have, access, rule))
    if not denied:
        return []
    setattr(request, rule.asked, allowed)
    answer = next(each for each in fields_of(response_class) if each.name == rule.answered)
    assert isinstance(answer.wire.items, type), "an array of structs answers"
    return await all_refused(answer.wire.items, denied, _CODES[rule.kind])


def _may_have(access: Access, rule: Each, item: Any) -> bool:
    name = access.name_of(item)
    return name is None or access.may(rule.operation, rule.kind, name)


def _cluster(operation: Operation) -> tuple[Requirement, ...]:
    return (Whole(operation, ResourceType.CLUSTER, lambda _: CLUSTER_NAME),)


def _group(operation: Operation) -> Whole:
    return Whole(operation, ResourceType.GROUP, lambda request: str(request.group_id))


def _transaction(operation: Operation) -> Whole:
    return Whole(
        operation, ResourceType.TRANSACTIONAL_ID, lambda request: str(request.transactional_id)
    )


_O = Operation
_GROUP, _TRANSACTION = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID

RULES: Mapping[ApiKey, tuple[Requirement, ...]] = {
    ApiKey.LIST_OFFSETS: (Each(_O.DESCRIBE, "topics", "topics"),),
    ApiKey.OFFSET_COMMIT: (_group(_O.READ), Each(_O.READ, "topics", "topics")),
    ApiKey.JOIN_GROUP: (_group(_O.READ),),
    ApiKey.SYNC_GROUP: (_group(_O.READ),),
    ApiKey.HEARTBEAT: (_group(_O.READ),),
    ApiKey.LEAVE_GROUP: (_group(_O.READ),),
    ApiKey.OFFSET_DELETE: (_group(_O.DELETE), Each(_O.READ, "topics", "topics")),
    ApiKey.DELETE_GROUPS: (Each(_O.DELETE, "groups_names", "results", _GROUP),),
    ApiKey.CREATE_PARTITIONS: (Each(_O.ALTER, "topics", "results"),),
    ApiKey.DELETE_RECORDS: (Each(_O.DELETE, "topics", "topics"),),
    ApiKey.ELECT_LEADERS: _cluster(_O.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(_O.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(_O.DESCRIBE),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(_O.WRITE), _group(_O.READ)),
    ApiKey.END_TXN: (_transaction(_O.WRITE),),
    ApiKey.TXN_OFFSET_COMMIT: (
        *(_transaction(_O.WRITE), _group(_O.READ)),
        Each(_O.READ, "topics", "topics"),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (Each(_O.READ, "topics", "topics"),),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(_O.DESCRIBE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(_O.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(_O.ALTER_CONFIGS),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(_O.DESCRIBE_CONFIGS),
    ApiKey.UPDATE_FEATURES: _cluster(_O.ALTER),
    ApiKey.DESCRIBE_QUORUM: _cluster(_O.DESCRIBE),
    ApiKey.UNREGISTER_BROKER: _cluster(_O.ALTER),
    ApiKey.ADD_RAFT_VOTER: _cluster(_O.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(_O.ALTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_O.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(_O.ALTER),
    ApiKey.DESCRIBE_ACLS: _cluster(_O.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(_O.ALTER),
    ApiKey.DELETE_ACLS: _cluster(_O.ALTER),
    # The controller's APIs, for brokers only (ControllerApis).
    ApiKey.BROKER_REGISTRATION: _cluster(_O.CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: _cluster(_O.CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: _cluster(_O.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: _cluster(_O.CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _cluster(_O.CLUSTER_ACTION),
    ApiKey.ENVELOPE: _cluster(_O.CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: _cluster(_O.CLUSTER_ACTION),
}
"""The rules of most APIs; the others are in `special`."""

BROKERS_ONLY = _cluster(Operation.CLUSTER_ACTION)
