"""APIs whose needs are no row of a table."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from replication.cluster.guards.access import Access, Guard, sorted_out
from replication.cluster.guards.described import (
    describe_cluster,
    describe_groups,
    describe_topic_partitions,
    tell_cluster_operations,
    tell_topic_operations,
)
from replication.cluster.guards.rules import Each, Whole, by_rules
from replication.cluster.server import Handler
from replication.errors import ErrorCode
from replication.metadata import SecurityImage
from replication.security.acls import CLUSTER_NAME, Operation, ResourceType
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from replication.wire.apis import ApiKey
from replication.wire.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replication.wire.describe_configs import ResourceType as ConfigResourceType
from replication.wire.fetch import FetchRequest, FetchResponse, FetchTopic
from replication.wire.find_coordinator import (
    GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from replication.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replication.wire.list_groups import ListGroupsRequest, ListGroupsResponse
from replication.wire.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replication.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from replication.wire.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replication.wire.refusals import refused

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MOST_SESSIONS = 10_000


@attrs.define(eq=False)
class FetchGuard:
    """A fetch session was opened by somebody, under some ACLs; it is good for no other.

    Once they are others the session is not known any more, and the client names all its
    partitions again. Where a topic is refused no session is opened: what the client believes
    to be in one would never be answered.
    """

    _sessions: dict[int, tuple[str, SecurityImage]] = attrs.field(init=False, factory=dict)

    async def guard(self, access: Access, request: FetchRequest, handler: Handler) -> Any:
        by = (access.context.principal, access.image.security)
        if request.replica.replica_id >= 0 and not access.cluster(Operation.CLUSTER_ACTION):
            return refused(FetchResponse, request, _DENIED)
        if request.session_epoch > 0 and self._sessions.get(request.session_id) != by:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        allowed: list[FetchTopic] = request.topics
        denied: list[FetchTopic] = []
        if request.replica.replica_id < 0:
            allowed, denied = sorted_out(request.topics, partial(_may_read, access))
        if denied and request.session_epoch > 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if denied:
            request.session_epoch = -1
            request.topics = allowed
        response = await self._answer(access, request, handler)
        response.responses = [*response.responses, *refused_topics(request, denied)]
        if response.session_id:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.clear()  # whoever still has one opens another
            self._sessions[response.session_id] = by
        return response

    async def _answer(
        self, access: Access, request: FetchRequest, handler: Handler
    ) -> FetchResponse:
        if not request.topics and request.session_epoch == -1:
            return FetchResponse()
        response = await handler(access.context, request)
        assert isinstance(response, FetchResponse), "fetch answers a fetch"
        return response


def _may_read(access: Access, topic: FetchTopic) -> bool:
    name = access.name_of(topic)
    return name is None or access.topic(Operation.READ, name)


def refused_topics(request: FetchRequest, denied: list[Any]) -> list[Any]:
    asked = attrs.evolve(request, topics=denied)
    answered: list[Any] = refused(FetchResponse, asked, _DENIED).responses
    return answered


async def metadata(access: Access, request: MetadataRequest, handler: Handler) -> Any:
    """Topics that may not be seen are not there, or refused where they are named."""
    denied: list[MetadataRequestTopic] = []
    if request.topics:
        may_see = partial(_may_see, access, request)
        request.topics, denied = sorted_out(request.topics, may_see)
        if not request.topics and access.context.version == 0:
            request.topics = list(denied)  # to version 0 none would be all: they go again below
    response = await handler(access.context, request)
    assert isinstance(response, MetadataResponse), "metadata answers metadata"
    response.topics = [
        each
        for each in response.topics
        if not each.name or access.topic(Operation.DESCRIBE, each.name)
    ]
    tell_topic_operations(access, response.topics)
    tell_cluster_operations(access, response)
    response.topics += [
        MetadataResponseTopic(error_code=_DENIED, name=each.name, topic_id=each.topic_id)
        if each.name
        else MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=each.topic_id
        )
        for each in denied
    ]
    return response


def _may_see(access: Access, request: MetadataRequest, asked: Any) -> bool:
    name = access.name_of(asked)
    if name is None:
        return True  # an id that no topic has
    if not access.topic(Operation.DESCRIBE, name):
        return False
    is_there = name in access.image.topics or not request.allow_auto_topic_creation
    return is_there or _may_create(access, name)


def _may_create(access: Access, name: str) -> bool:
    return access.cluster(Operation.CREATE) or access.topic(Operation.CREATE, name)


async def create_topics(access: Access, request: CreateTopicsRequest, handler: Handler) -> Any:
    request.topics, denied = sorted_out(
        request.topics, lambda topic: _may_create(access, topic.name)
    )
    response = CreateTopicsResponse()
    if request.topics:
        response = await handler(access.context, request)
    asked = attrs.evolve(request, topics=denied)
    response.topics = [*response.topics, *refused(CreateTopicsResponse, asked, _DENIED).topics]
    return response


async def offset_fetch(access: Access, request: OffsetFetchRequest, handler: Handler) -> Any:
    """A group that may not be seen is refused; of others, topics that may not are left out, or
    refused where they are named.
    """
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.groups:
        if not access.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
            return refused(OffsetFetchResponse, request, code)
        return await by_rules(_TOPICS_OF_GROUP, access, request, handler)
    allowed, denied = sorted_out(
        request.groups,
        lambda group: access.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
    )
    hidden = {each.group_id: _hide(access, each) for each in allowed}
    request.groups = allowed
    response = OffsetFetchResponse()
    if request.groups:
        response = await handler(access.context, request)
    for group in response.groups:
        seen = [each for each in group.topics if access.topic(Operation.DESCRIBE, each.name)]
        asked = attrs.evolve(request, groups=hidden[group.group_id])
        refusals = refused(OffsetFetchResponse, asked, _DENIED).groups
        group.topics = seen + [topic for each in refusals for topic in each.topics]
    asked = attrs.evolve(request, groups=[attrs.evolve(each, topics=None) for each in denied])
    response.groups = [*response.groups, *refused(OffsetFetchResponse, asked, code).groups]
    return response


_TOPICS_OF_GROUP = (Each(Operation.DESCRIBE, "topics", "topics"),)


def _hide(access: Access, group: Any) -> list[Any]:
    """The group with those of its named topics that may not be seen; they are out of it after."""
    if group.topics is None:
        return []
    group.topics, hidden = sorted_out(
        group.topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name)
    )
    return [attrs.evolve(group, topics=hidden)] if hidden else []


async def find_coordinator(
    access: Access, request: FindCoordinatorRequest, handler: Handler
) -> Any:
    is_group = request.key_type == GROUP
    kind = ResourceType.GROUP if is_group else ResourceType.TRANSACTIONAL_ID
    if not request.coordinator_keys:
        whole = Whole(Operation.DESCRIBE, kind, lambda asked: str(asked.key))
        return await by_rules((whole,), access, request, handler)
    each = Each(Operation.DESCRIBE, "coordinator_keys", "coordinators", kind)
    response = await by_rules((each,), access, request, handler)
    assert isinstance(response, FindCoordinatorResponse), "it answers what was asked"
    return response


async def list_groups(access: Access, request: ListGroupsRequest, handler: Handler) -> Any:
    response = await handler(access.context, request)
    assert isinstance(response, ListGroupsResponse), "it answers what was asked"
    if not access.cluster(Operation.DESCRIBE):
        response.groups = [
            each
            for each in response.groups
            if access.may(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)
        ]
    return response


async def list_transactions(
    access: Access, request: ListTransactionsRequest, handler: Handler
) -> Any:
    response = await handler(access.context, request)
    assert isinstance(response, ListTransactionsResponse), "it answers what was asked"
    kind = ResourceType.TRANSACTIONAL_ID
    response.transaction_states = [
        each
        for each in response.transaction_states
        if access.may(Operation.DESCRIBE, kind, each.transactional_id)
    ]
    return response


async def init_producer_id(access: Access, request: InitProducerIdRequest, handler: Handler) -> Any:
    """Without a transactional id, whoever may write to any topic (KIP-679)."""
    if request.transactional_id:
        kind = ResourceType.TRANSACTIONAL_ID
        if not access.may(Operation.WRITE, kind, request.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return refused(InitProducerIdResponse, request, code)
    elif not access.cluster(Operation.IDEMPOTENT_WRITE) and not access.may_some(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return refused(InitProducerIdResponse, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await handler(access.context, request)


async def add_partitions_to_txn(
    access: Access, request: AddPartitionsToTxnRequest, handler: Handler
) -> Any:
    """From version 4 on brokers ask, for producers that they have let in themselves."""
    if access.context.version >= 4:
        if access.cluster(Operation.CLUSTER_ACTION):
            return await handler(access.context, request)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused(AddPartitionsToTxnResponse, request, code)
    name = request.v3_and_below_transactional_id
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return refused(AddPartitionsToTxnResponse, request, code)
    denied = [
        each for each in request.v3_and_below_topics if not access.topic(Operation.WRITE, each.name)
    ]
    if not denied:
        return await handler(access.context, request)
    # All or nothing, as with Kafka: the others were not attempted.
    response = refused(AddPartitionsToTxnResponse, request, ErrorCode.OPERATION_NOT_ATTEMPTED)
    names = {each.name for each in denied}
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition if topic.name in names else ():
            partition.partition_error_code = _DENIED
    return response


def _configs(operation: Operation, answered: str) -> Guard:
    async def guard(access: Access, request: Any, handler: Handler) -> Any:
        request.resources, denied = sorted_out(
            request.resources, partial(_may_configure, access, operation)
        )
        response = await handler(access.context, request)
        for each in denied:
            is_topic = each.resource_type == ConfigResourceType.TOPIC
            code = _DENIED if is_topic else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            asked = attrs.evolve(request, resources=[each])
            getattr(response, answered).extend(
                getattr(refused(type(response), asked, code), answered)
            )
        return response

    return guard


def _may_configure(access: Access, operation: Operation, resource: Any) -> bool:
    if resource.resource_type == ConfigResourceType.TOPIC:
        return access.topic(operation, resource.resource_name)
    return access.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)


SPECIAL: Mapping[ApiKey, Guard] = {
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
}
