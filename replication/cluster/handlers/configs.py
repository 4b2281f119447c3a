"""DescribeConfigs: every key that is honoured, its value, and where that comes from.

A broker answers for itself and for topics. Asked for another broker, it refuses, as Kafka
does: nobody knows a node's file but the node.
"""

from collections.abc import Iterable

from replication.cluster.handlers.node import BrokerNode
from replication.cluster.server import RequestContext
from replication.cluster.topic_names import fault_of
from replication.config import ConfigEntry
from replication.config.topic import describe_topic
from replication.errors import ErrorCode
from replication.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ResourceType,
)


async def describe_configs(
    node: BrokerNode, _: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(node, request, resource) for resource in request.resources]
    )


def _describe(
    node: BrokerNode, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    name = resource.resource_name
    entries: Iterable[ConfigEntry]
    if resource.resource_type == ResourceType.TOPIC:
        topic = node.metadata.image.topics.get(name)
        if (fault := fault_of(name)) is not None:
            return _refused(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} {fault}")
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _refused(resource, error, f"there is no topic {name}")
        entries = describe_topic(topic.configs, node.config)
    elif resource.resource_type != ResourceType.BROKER:
        message = f"resource type {resource.resource_type} has no configuration here"
        return _refused(resource, ErrorCode.INVALID_REQUEST, message)
    elif name == "":
        entries = ()  # what was set for all brokers at run time: nothing can be
    elif name == str(node.broker_id):
        entries = node.config.describe()
    else:
        message = f"this is broker {node.broker_id}, and it knows no configuration but its own"
        return _refused(resource, ErrorCode.INVALID_REQUEST, message)
    keys = resource.configuration_keys or ()  # none named: every one (ConfigHelper)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=name,
        configs=[_entry(request, entry) for entry in entries if not keys or entry.name in keys],
    )


def _refused(
    resource: DescribeConfigsResource, error: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
            if request.include_synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
