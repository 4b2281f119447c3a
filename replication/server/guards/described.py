"""APIs that describe resources with the operations that the client may do (KIP-430).

A handler answers "all" if the request wants the operations, and a mark for "unknown" if not; a
guard replaces "all" by what the ACLs allow (AuthHelper.authorizedOperations).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from replication.net.pace import in_steps
from replication.security.rules.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from replication.server.guards.access import Access, sorted_out
from replication.server.guards.required import Each, by_rules
from replication.server.server import Handler
from replication.steps import Steps
from replication.wire.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
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
from replication.wire.metadata import UNKNOWN_OPERATIONS


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
    response = await handler(access.context, request)
    assert isinstance(response, DescribeClusterResponse), "the handler answers this request"
    fill_cluster_operations(access, response)
    return response


async def describe_groups(
    access: Access, request: DescribeGroupsRequest, handler: Handler
) -> DescribeGroupsResponse:
    each = Each(Operation.DESCRIBE, "groups", "groups", ResourceType.GROUP)
    response = await by_rules((each,), access, request, handler)
    assert isinstance(response, DescribeGroupsResponse), "the handler answers this request"
    await in_steps(_fill_group_operations(access, response.groups))
    return response


def _fill_group_operations(access: Access, groups: Iterable[DescribedGroup]) -> Steps[None]:
    for group in groups:
        if group.authorized_operations != UNKNOWN_OPERATIONS:
            group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
            yield len(SUPPORTED[ResourceType.GROUP])
        yield 1


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
    response = await by_rules((each,), access, request, handler)
    assert isinstance(response, DescribeTopicPartitionsResponse), "the handler answers this request"
    await in_steps(fill_topic_operations(access, response.topics))
    return response
