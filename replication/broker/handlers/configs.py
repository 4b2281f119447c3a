"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the configuration of topics, brokers and
groups.

A broker describes itself, topics and consumer groups. It refuses a request about another broker, as in Kafka,
because only a node knows its own properties file.

A change is checked here first, and for the same reason only here can the values of a broker be
checked; the controller does the rest (ConfigAdminManager):

    request ── wrong in itself? ── controller ── answers of both, in the order of the request
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from replication.broker.certificates import read_certificates
from replication.broker.handlers.node import BrokerNode
from replication.config import ConfigChange, ConfigEntry, ConfigOperation, ConfigType
from replication.config.alter import altered, check_changes
from replication.config.dynamic import DESCRIBED
from replication.config.group import describe_group
from replication.config.known import is_of_listener
from replication.config.topic import describe_topic
from replication.controller.rules.configs import Resource, answer
from replication.controller.rules.topic_names import fault_of
from replication.errors import ConfigError, ErrorCode, KafkaError, PeerUnavailableError
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import STEP, Steps, each_of
from replication.wire.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from replication.wire.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Request = TypeVar("Request", AlterConfigsRequest, IncrementalAlterConfigsRequest)


async def describe_configs(
    node: BrokerNode, _: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    await node.metadata.catch_up()
    return DescribeConfigsResponse(results=await in_steps(_described(node, request)))


def _described(
    node: BrokerNode, request: DescribeConfigsRequest
) -> Steps[list[DescribeConfigsResult]]:
    """Describe each resource once, however often it is named: its description is long."""
    results: dict[tuple[int, str], DescribeConfigsResult] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if key not in results:
            results[key] = _describe(node, request, resource)
            yield len(results[key].configs)
        yield 1
    return list(results.values())


def _describe(
    node: BrokerNode, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    name = resource.resource_name
    config = node.replica_manager.config
    entries: Iterable[ConfigEntry]
    if resource.resource_type == ConfigResourceType.TOPIC:
        topic = node.metadata.image.topics.get(name)
        if (fault := fault_of(name)) is not None:
            return _refused(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} {fault}")
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _refused(resource, error, f"there is no topic {name}")
        entries = describe_topic(topic.configs, config)
    elif resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            return _refused(resource, ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        entries = describe_group(node.metadata.image.group_configs.get(name, {}), config)
    elif resource.resource_type != ConfigResourceType.BROKER:
        message = f"resource type {resource.resource_type} has no configuration here"
        return _refused(resource, ErrorCode.INVALID_REQUEST, message)
    elif name == "":
        entries = config.describe_cluster_wide()
    elif name == str(node.broker_id):
        entries = config.describe()
    else:
        message = f"this is broker {node.broker_id}, and it knows no configuration but its own"
        return _refused(resource, ErrorCode.INVALID_REQUEST, message)
    keys = set(resource.configuration_keys or ())  # none named: every one (ConfigHelper)
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
        is_sensitive=entry.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN),
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
            if request.include_synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


# Altering.


async def incremental_alter_configs(
    node: BrokerNode, _: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    changes = await in_steps(
        _changes(
            request.resources,
            lambda each: ConfigChange(each.name, each.config_operation, each.value),
        )
    )
    responses = await _alter(node, request, changes, keeps_others=True)
    return IncrementalAlterConfigsResponse(responses=responses)


async def alter_configs(
    node: BrokerNode, _: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    changes = await in_steps(
        _changes(
            request.resources, lambda each: ConfigChange(each.name, ConfigOperation.SET, each.value)
        )
    )
    return AlterConfigsResponse(responses=await _alter(node, request, changes, keeps_others=False))


def _changes(
    resources: Iterable[Any], change_of: Callable[[Any], ConfigChange]
) -> Steps[list[list[ConfigChange]]]:
    """Return the requested changes of each resource."""
    changes = []
    for resource in resources:
        changes += [(yield from each_of(change_of, resource.configs))]
    return changes


async def _alter(
    node: BrokerNode,
    request: Request,
    changes: list[list[ConfigChange]],
    *,
    keeps_others: bool,
) -> list[AlterConfigsResourceResponse]:
    """Return an answer for each resource of `request`; `changes` has those of each resource."""
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    answers: list[AlterConfigsResourceResponse | None] = []
    for resource, changed in zip(request.resources, changes, strict=True):
        if len(answers) % STEP == STEP - 1:
            await trio.lowlevel.checkpoint()
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _refusal("Each resource must appear at most once.")
            check_changes(changed)
            await _check_resource(node, resource, changed, keeps_others=keeps_others)
            answers.append(None)
        except KafkaError as error:
            answers.append(answer(resource, error))
    left = [each for each, known in zip(request.resources, answers, strict=True) if known is None]
    from_controller = iter(await _ask_controller(node, attrs.evolve(request, resources=left)))
    return [next(from_controller) if known is None else known for known in answers]


async def _ask_controller(node: BrokerNode, request: Request) -> list[AlterConfigsResourceResponse]:
    if not request.resources:
        return []
    try:
        response = await node.forward(request, timeout_ms=node.config.request_timeout_ms)
    except PeerUnavailableError as error:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from the controller: {error}")
        return [answer(each, late) for each in request.resources]
    assert isinstance(response, AlterConfigsResponse | IncrementalAlterConfigsResponse), "as asked"
    return response.responses


_OF_THE_CONTROLLER: Final = {
    ConfigResourceType.TOPIC,
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
}
"""The resources that the controller judges alone; ours refuses client metrics."""


async def _check_resource(
    node: BrokerNode, resource: Resource, changes: list[ConfigChange], *, keeps_others: bool
) -> None:
    """Raise KafkaError if the resource cannot be altered, or a broker cannot have these settings."""
    name = resource.resource_name
    if resource.resource_type in _OF_THE_CONTROLLER:
        return
    if resource.resource_type != ConfigResourceType.BROKER:
        raise _refusal(f"Unknown resource type {resource.resource_type}")
    if name and not (name.isascii() and name.isdigit()):
        raise _refusal(f"Node id must be an integer, but it is: {name}")
    if name and int(name) != node.broker_id:
        raise _refusal(f"Unexpected broker id, expected {node.broker_id}, but received {name}")
    current = node.metadata.image.broker_configs.get(int(name) if name else None, {})
    configs = altered(current if keeps_others else {}, changes, DESCRIBED)
    wanted = node.replica_manager.config.check(configs, of_one_broker=bool(name))
    if any(is_of_listener(each.name) for each in changes):
        try:
            await node.offload(partial(read_certificates, wanted))
        except ConfigError as error:
            raise _refusal(f"Invalid value for {error}") from None


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
