"""The guards of APIs whose rights do not fit into the table of `access`, one after the other.

The file is long because it is a list: no guard needs another.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.net.pace import in_steps
from replication.security.rules.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from replication.server.guards.access import (
    BROKERS_ONLY,
    Access,
    Each,
    Guard,
    Whole,
    all_refused,
    by_rules,
    sorted_out,
    sorting_out,
)
from replication.server.guards.records import DENIED, produce
from replication.server.guards.transactions import by_topic, not_attempted
from replication.server.server import Handler
from replication.steps import Steps, each_of
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from replication.wire.apis import API, ApiKey
from replication.wire.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from replication.wire.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.wire.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from replication.wire.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from replication.wire.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from replication.wire.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from replication.wire.find_coordinator import GROUP, FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.list_groups import ListGroupsRequest, ListGroupsResponse
from replication.wire.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replication.wire.metadata import (
    INTERNAL_TOPICS,
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from replication.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchTopic,
)
from replication.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from replication.wire.refusals import each_refused
from replication.wire.schema import fields_of
from replication.wire.write_txn_markers import WriteTxnMarkersRequest
from storage.types import NO_TOPIC_ID


async def metadata(access: Access, request: MetadataRequest, handler: Handler) -> Any:
    """Leave out topics that the client may not see, and refuse those that it names."""
    denied: list[MetadataRequestTopic] = []
    if request.topics:
        may_see = partial(_may_see, access, request)
        request.topics, denied = await sorted_out(request.topics, may_see)
        if not request.topics and access.context.version == 0:
            request.topics = list(denied)  # version 0 means all topics by none; removed below
    response: MetadataResponse = await handler(access.context, request)
    response.topics, _ = await sorted_out(
        response.topics,
        lambda topic: not topic.name or access.topic(Operation.DESCRIBE, topic.name),
    )
    await in_steps(fill_topic_operations(access, response.topics))
    fill_cluster_operations(access, response)
    response.topics += await in_steps(each_of(_denied, denied))
    return response


def _denied(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """Return the refusal of one topic, without the name of a topic that was named by its id.

    (KafkaApis.handleTopicMetadataRequest.)
    """
    return MetadataResponseTopic(
        error_code=DENIED,
        name=asked.name if asked.topic_id == NO_TOPIC_ID else None,
        topic_id=asked.topic_id,
    )


def _may_see(access: Access, request: MetadataRequest, asked: Any) -> bool:
    name = access.name_of(asked)
    if name is None:
        return True  # an id that no topic has
    if not access.topic(Operation.DESCRIBE, name):
        return False
    creates = access.creates_topics and request.allow_auto_topic_creation
    return name in access.image.topics or not creates or _may_create(access, name)


async def delete_topics(access: Access, request: DeleteTopicsRequest, handler: Handler) -> Any:
    """Refuse topics that may not be deleted; the answer to an id has a name only if it may be seen.

    A topic that may be seen but does not exist is unknown (ControllerApis.deleteTopics).
    """
    may_delete = partial(_may_delete, access)
    request.topics, denied = await sorted_out(request.topics, may_delete)
    request.topic_names, names = await sorted_out(request.topic_names, may_delete)
    response = DeleteTopicsResponse()
    if request.topics or request.topic_names or not (denied or names):
        response = await handler(access.context, request)
    refusals = await all_refused(DeletableTopicResult, [*denied, *names], DENIED)
    await in_steps(each_of(partial(_name_if_seen, access), refusals))
    response.responses += refusals
    return response


def _name_if_seen(access: Access, refusal: DeletableTopicResult) -> None:
    if refusal.topic_id != NO_TOPIC_ID:
        name = access.image.topic_names_by_id.get(refusal.topic_id)
        is_seen = name is not None and access.topic(Operation.DESCRIBE, name)
        refusal.name = name if is_seen else None


def _may_delete(access: Access, asked: DeleteTopicState | str) -> bool:
    name = access.name_of(asked)
    if name is None or access.cluster(Operation.DELETE) or access.topic(Operation.DELETE, name):
        return True
    return name not in access.image.topics and access.topic(Operation.DESCRIBE, name)


def _may_create(access: Access, name: str) -> bool:
    return access.cluster(Operation.CREATE) or access.topic(Operation.CREATE, name)


async def create_topics(access: Access, request: CreateTopicsRequest, handler: Handler) -> Any:
    request.topics, denied = await sorted_out(
        request.topics, lambda topic: _may_create(access, topic.name)
    )
    response = CreateTopicsResponse()
    if request.topics:
        response = await handler(access.context, request)
    response.topics += await all_refused(CreatableTopicResult, denied, DENIED)
    return response


async def offset_fetch(access: Access, request: OffsetFetchRequest, handler: Handler) -> Any:
    """Refuse groups that may not be described; in the others, hide or refuse topics.

    A topic that may not be described is refused if the request names it, and left out if not.
    """
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.groups:
        if not access.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
            return await access.refuse(request, code)
        return await by_rules(_SEEN_TOPICS, access, request, handler)
    allowed, denied = await sorted_out(
        request.groups,
        lambda group: access.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
    )
    request.groups = allowed
    hidden = await in_steps(_hide(access, request))
    response = OffsetFetchResponse()
    if request.groups:
        response = await handler(access.context, request)
    await in_steps(_show(access, response, hidden))
    asked = attrs.evolve(request, groups=denied)
    refusal = await access.refuse(asked, code)
    response.groups += refusal.groups
    return response


_SEEN_TOPICS = (Each(Operation.DESCRIBE, "topics", "topics"),)


def _hide(access: Access, request: OffsetFetchRequest) -> Steps[dict[str, list[OffsetFetchTopic]]]:
    """Return the named topics that may not be seen, by group, and take them out of `request`."""
    hidden: dict[str, list[OffsetFetchTopic]] = {}
    for group in request.groups:
        yield 1
        if group.topics is not None:
            group.topics, hidden[group.group_id] = yield from sorting_out(
                group.topics, partial(_may_describe, access)
            )
    return hidden


def _show(
    access: Access, response: OffsetFetchResponse, hidden: dict[str, list[OffsetFetchTopic]]
) -> Steps[None]:
    """Remove topics that may not be seen from `response`, and refuse those that were named."""
    for group in response.groups:
        yield 1
        seen, _ = yield from sorting_out(group.topics, partial(_may_describe, access))
        unseen = hidden.pop(group.group_id, [])
        refusals = yield from each_refused(OffsetFetchResponseTopic, unseen, DENIED)
        group.topics = seen + refusals


def _may_describe(access: Access, topic: OffsetFetchTopic | OffsetFetchResponseTopic) -> bool:
    name = access.name_of(topic)
    return name is None or access.topic(Operation.DESCRIBE, name)


async def find_coordinator(
    access: Access, request: FindCoordinatorRequest, handler: Handler
) -> Any:
    is_group = request.key_type == GROUP
    kind = ResourceType.GROUP if is_group else ResourceType.TRANSACTIONAL_ID
    if not request.coordinator_keys:
        whole = Whole(Operation.DESCRIBE, kind, lambda asked: str(asked.key))
        return await by_rules((whole,), access, request, handler)
    each = Each(Operation.DESCRIBE, "coordinator_keys", "coordinators", kind)
    return await by_rules((each,), access, request, handler)


async def list_groups(access: Access, request: ListGroupsRequest, handler: Handler) -> Any:
    response: ListGroupsResponse = await handler(access.context, request)
    if not access.cluster(Operation.DESCRIBE):
        response.groups, _ = await sorted_out(
            response.groups,
            lambda group: access.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
        )
    return response


async def describe_transactions(
    access: Access, request: DescribeTransactionsRequest, handler: Handler
) -> DescribeTransactionsResponse:
    """Leave out the topics of a transaction that the client may not see."""
    kind = ResourceType.TRANSACTIONAL_ID
    each = Each(Operation.DESCRIBE, "transactional_ids", "transaction_states", kind)
    response: DescribeTransactionsResponse = await by_rules((each,), access, request, handler)
    for state in response.transaction_states:
        state.topics, _ = await sorted_out(
            state.topics, lambda topic: access.topic(Operation.DESCRIBE, topic.topic)
        )
    return response


async def list_transactions(
    access: Access, request: ListTransactionsRequest, handler: Handler
) -> Any:
    response: ListTransactionsResponse = await handler(access.context, request)
    kind = ResourceType.TRANSACTIONAL_ID
    response.transaction_states, _ = await sorted_out(
        response.transaction_states,
        lambda state: access.may(Operation.DESCRIBE, kind, state.transactional_id),
    )
    return response


async def init_producer_id(access: Access, request: InitProducerIdRequest, handler: Handler) -> Any:
    """Check the transactional id; without one, the right to write to any topic (KIP-679)."""
    if request.transactional_id:
        kind = ResourceType.TRANSACTIONAL_ID
        if not access.may(Operation.WRITE, kind, request.transactional_id):
            return await access.refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not access.cluster(Operation.IDEMPOTENT_WRITE) and not access.may_some(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return await access.refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await handler(access.context, request)


async def offset_for_leader_epoch(
    access: Access, request: OffsetForLeaderEpochRequest, handler: Handler
) -> Any:
    """Let brokers ask about every topic, and consumers about those that they may see (KIP-320)."""
    if access.cluster(Operation.CLUSTER_ACTION):
        return await handler(access.context, request)
    return await by_rules(_SEEN_TOPICS, access, request, handler)


async def write_txn_markers(
    access: Access, request: WriteTxnMarkersRequest, handler: Handler
) -> Any:
    """Let brokers write markers, and administrators that end a hanging transaction (KIP-664)."""
    if access.cluster(Operation.ALTER):
        return await handler(access.context, request)
    return await by_rules(BROKERS_ONLY, access, request, handler)


async def add_partitions_to_txn(
    access: Access, request: AddPartitionsToTxnRequest, handler: Handler
) -> Any:
    """Check the producer's rights; from version 4 on only brokers may send the request.

    They have checked the rights of the producers on whose behalf they send it.
    """
    version = access.context.version
    if version >= 4:
        if access.cluster(Operation.CLUSTER_ACTION):
            return await handler(access.context, request)
        return await access.refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    name = request.v3_and_below_transactional_id
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return await access.refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = request.v3_and_below_topics
    names = list({each.name for each in topics} - INTERNAL_TOPICS)
    _, denied_names = await sorted_out(names, partial(access.topic, Operation.WRITE))
    denied = set(denied_names)
    if not denied:
        return await handler(access.context, request)
    errors = await in_steps(not_attempted(access.image, topics, denied=denied | INTERNAL_TOPICS))
    results = await in_steps(by_topic(errors))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


# Answers that name the operations which the client may do (KIP-430). A handler answers "all" if the
# request wants the operations, and a mark for "unknown" if not; a guard replaces "all" by what the
# ACLs allow (AuthHelper.authorizedOperations).


def fill_topic_operations(access: Access, topics: Iterable[Any]) -> Steps[None]:
    """Fill in the operations in answers of Metadata and of DescribeTopicPartitions."""
    for each in topics:
        if each.topic_authorized_operations != UNKNOWN_OPERATIONS and each.name:
            each.topic_authorized_operations = access.operations(ResourceType.TOPIC, each.name)
            yield len(SUPPORTED[ResourceType.TOPIC])
        yield 1


def fill_cluster_operations(access: Access, response: Any) -> None:
    """Fill in the operations on the cluster; none for a client that may not describe it."""
    if response.cluster_authorized_operations != UNKNOWN_OPERATIONS:
        seen = access.cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = (
            access.operations(ResourceType.CLUSTER, CLUSTER_NAME) if seen else 0
        )


async def describe_cluster(
    access: Access, request: DescribeClusterRequest, handler: Handler
) -> DescribeClusterResponse:
    """Fill in the operations; the brokers are answered to every client."""
    response: DescribeClusterResponse = await handler(access.context, request)
    fill_cluster_operations(access, response)
    return response


async def describe_groups(
    access: Access, request: DescribeGroupsRequest, handler: Handler
) -> DescribeGroupsResponse:
    each = Each(Operation.DESCRIBE, "groups", "groups", ResourceType.GROUP)
    response: DescribeGroupsResponse = await by_rules((each,), access, request, handler)
    await in_steps(_fill_group_operations(access, response.groups))
    return response


def _fill_group_operations(
    access: Access, groups: Iterable[DescribedGroup | DescribedConsumerGroup]
) -> Steps[None]:
    for group in groups:
        if group.authorized_operations != UNKNOWN_OPERATIONS:
            group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
            yield len(SUPPORTED[ResourceType.GROUP])
        yield 1


async def consumer_group_heartbeat(
    access: Access, request: ConsumerGroupHeartbeatRequest, handler: Handler
) -> ConsumerGroupHeartbeatResponse:
    """Refuse a subscription to a topic that the client may not see.

    A regular expression is for clients that may see every topic: the coordinator looks its topics
    up for the whole group.
    """
    names = list(dict.fromkeys(request.subscribed_topic_names or ()))
    if request.subscribed_topic_regex:
        names += access.image.topics
    response: ConsumerGroupHeartbeatResponse
    if not access.may(Operation.READ, ResourceType.GROUP, request.group_id):
        response = await access.refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif (await sorted_out(names, partial(access.topic, Operation.DESCRIBE)))[1]:
        response = await access.refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        response = await handler(access.context, request)
    return response


async def consumer_group_describe(
    access: Access, request: ConsumerGroupDescribeRequest, handler: Handler
) -> ConsumerGroupDescribeResponse:
    """Refuse groups that the client may not see, and those that read a topic that it may not see."""
    each = Each(Operation.DESCRIBE, "group_ids", "groups", ResourceType.GROUP)
    response: ConsumerGroupDescribeResponse = await by_rules((each,), access, request, handler)
    await in_steps(_hide_consumer_groups(access, response.groups))
    await in_steps(_fill_group_operations(access, response.groups))
    return response


def _hide_consumer_groups(access: Access, groups: list[DescribedConsumerGroup]) -> Steps[None]:
    for place, group in enumerate(groups):
        for member in group.members:
            topics = {each.topic_name for each in member.assignment.topic_partitions}
            topics |= {each.topic_name for each in member.target_assignment.topic_partitions}
            topics.update(member.subscribed_topic_names)
            yield 1 + len(topics)
            if not all(access.topic(Operation.DESCRIBE, name) for name in topics):
                groups[place] = DescribedConsumerGroup(
                    group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
                break


async def describe_topic_partitions(
    access: Access, request: DescribeTopicPartitionsRequest, handler: Handler
) -> DescribeTopicPartitionsResponse:
    """Answer a request for all topics with those that the client may see, in every page."""
    if not request.topics:
        first = request.cursor.topic_name if request.cursor else ""
        left = [name for name in access.image.topics if name >= first]
        may_see = partial(access.topic, Operation.DESCRIBE)
        allowed, _ = await sorted_out(left, may_see)
        seen = sorted(allowed)
        if not seen:
            return DescribeTopicPartitionsResponse()
        request.topics = [TopicRequest(name=name) for name in seen]
        if seen[0] != first:
            request.cursor = None  # that topic has gone meanwhile, or the right to see it
    each = Each(Operation.DESCRIBE, "topics", "topics")
    response: DescribeTopicPartitionsResponse = await by_rules((each,), access, request, handler)
    await in_steps(fill_topic_operations(access, response.topics))
    return response


def _configs(operation: Operation, answered: str) -> Guard:
    async def guard(access: Access, request: Any, handler: Handler) -> Any:
        request.resources, denied = await sorted_out(
            request.resources, partial(_may_configure, access, operation)
        )
        response = await handler(access.context, request)
        kind = API[access.context.api_key].response
        answer = next(each for each in fields_of(kind) if each.name == answered)
        assert isinstance(answer.wire.items, type), "an array of structs answers"
        refusals: list[Any] = await all_refused(answer.wire.items, denied, DENIED)
        await in_steps(each_of(_correct_code, refusals))
        getattr(response, answered).extend(refusals)
        return response

    return guard


def _correct_code(refusal: Any) -> None:
    if refusal.resource_type == ConfigResourceType.GROUP:
        refusal.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif refusal.resource_type != ConfigResourceType.TOPIC:
        refusal.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _may_configure(access: Access, operation: Operation, resource: Any) -> bool:
    if resource.resource_type == ConfigResourceType.TOPIC:
        return access.topic(operation, resource.resource_name)
    if resource.resource_type == ConfigResourceType.GROUP:
        return access.may(operation, ResourceType.GROUP, resource.resource_name)
    return access.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)


SPECIAL: Mapping[ApiKey, Guard] = {
    ApiKey.PRODUCE: produce,
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
}
