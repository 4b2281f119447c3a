"""The rights that each API needs, by Kafka's table ("Operations and Resources on Protocols")."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import attrs

from replication.errors import ErrorCode
from replication.security.rules.acls import CLUSTER_NAME, Operation, ResourceType
from replication.server.guards.access import Access, all_refused, sorted_out
from replication.server.server import Handler
from replication.wire.apis import API, ApiKey
from replication.wire.schema import fields_of

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@attrs.frozen
class Whole:
    """A right that the whole request needs; `name` returns the resource, None if there is none."""

    operation: Operation
    kind: ResourceType
    name: Callable[[Any], str | None]


@attrs.frozen
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
    ApiKey.FETCH_SNAPSHOT: _cluster(_O.CLUSTER_ACTION),
}
"""The rules of most APIs; the others are in `special`."""

BROKERS_ONLY = _cluster(Operation.CLUSTER_ACTION)
