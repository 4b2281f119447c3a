"""Brokers of a cluster, their log directories, and the configurations of brokers and topics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from replication.client.admin.calls import Calls, OpenAdmin, Outcome, outcomes_by, raise_if_refused
from replication.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirDescription,
    ReplicaSize,
)
from replication.client.arguments import list_of_names
from replication.config import ConfigOperation, ConfigSource
from replication.errors import ErrorCode
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from replication.wire.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from storage.types import TopicPartition

ALL_BROKERS = ""
"""The broker whose configuration is every broker's default."""


async def describe_cluster(admin: OpenAdmin) -> ClusterDescription:
    """Return the id and the controller of the cluster, and the brokers that are alive."""
    response = await admin.calls.ask(DescribeClusterRequest())
    brokers = [
        BrokerDescription(id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in sorted(response.brokers, key=lambda each: each.broker_id)
    ]
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=tuple(brokers),
    )


# Configurations of topics, of a broker, or of all brokers.


async def describe_topic_configs(
    admin: OpenAdmin, names: Iterable[str]
) -> dict[str, dict[str, ConfigValue]]:
    """Return the configuration in force and its sources, by topic and key."""
    return await _describe_configs(admin.calls, ConfigResourceType.TOPIC, list_of_names(names))


async def describe_broker_configs(
    admin: OpenAdmin, broker_ids: Iterable[int | str]
) -> dict[str, dict[str, ConfigValue]]:
    """Return the configurations of brokers, by their ids as text.

    `ALL_BROKERS` is the configuration that was set for all of them.
    """
    names = [str(each) for each in broker_ids]
    return await _describe_configs(admin.calls, ConfigResourceType.BROKER, names)


async def _describe_configs(
    calls: Calls, kind: ConfigResourceType, names: Sequence[str]
) -> dict[str, dict[str, ConfigValue]]:
    def request(asked: Sequence[str]) -> DescribeConfigsRequest:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in asked
        ]
        return DescribeConfigsRequest(resources=resources)

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        results = [
            result
            for response in await _ask_each(calls, kind, left, request)
            for result in response.results
        ]
        return outcomes_by("resource_name", results, _values)

    return await calls.for_each(names, once)


def _values(result: DescribeConfigsResult) -> dict[str, ConfigValue]:
    return {
        config.name: ConfigValue(
            name=config.name,
            value=config.value,
            source=ConfigSource(config.config_source),
            read_only=config.read_only,
        )
        for config in result.configs
    }


async def alter_topic_configs(
    admin: OpenAdmin,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Set some keys of some topics; None puts a key back to its default (KIP-339)."""
    await _alter_configs(
        admin.calls, ConfigResourceType.TOPIC, changes, validate_only=validate_only
    )


async def alter_broker_configs(
    admin: OpenAdmin,
    changes: Mapping[int | str, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Set some keys of some brokers; `ALL_BROKERS` sets the defaults of all brokers."""
    named = {str(broker): keys for broker, keys in changes.items()}
    await _alter_configs(admin.calls, ConfigResourceType.BROKER, named, validate_only=validate_only)


async def _alter_configs(
    calls: Calls,
    kind: ConfigResourceType,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    def request(asked: Sequence[str]) -> IncrementalAlterConfigsRequest:
        resources = [
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[_change(*each) for each in changes[name].items()],
            )
            for name in asked
        ]
        return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        responses = await _ask_each(calls, kind, left, request)
        return outcomes_by("resource_name", [each for one in responses for each in one.responses])

    await calls.for_each(list(changes), once)


def _change(name: str, value: str | None) -> IncrementalAlterableConfig:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return IncrementalAlterableConfig(name=name, config_operation=operation, value=value)


async def _ask_each(
    calls: Calls,
    kind: ConfigResourceType,
    names: Sequence[str],
    request: Callable[[Sequence[str]], object],
) -> list[Any]:
    """Return the response of any broker about topics, or of each broker about itself."""
    if kind is not ConfigResourceType.BROKER:
        return [await calls.any_broker(request(names))]
    return [
        await (
            calls.broker(int(name), request([name])) if name else calls.any_broker(request([name]))
        )
        for name in names
    ]


# Log directories.


async def describe_log_dirs(
    admin: OpenAdmin, broker_ids: Iterable[int] | None = None
) -> dict[int, list[LogDirDescription]]:
    """Return the log directories of these brokers, or of all, with the replicas in them."""
    calls = admin.calls
    if broker_ids is None:
        broker_ids = await calls.keep_asking(calls.broker_ids)
    found: dict[int, list[LogDirDescription]] = {}
    for broker_id in broker_ids:

        async def once(broker_id: int = broker_id) -> list[LogDirDescription]:
            response: DescribeLogDirsResponse = await calls.broker(
                broker_id, DescribeLogDirsRequest(topics=None)
            )
            raise_if_refused(response)
            return [_directory(each) for each in response.results]

        found[broker_id] = await calls.keep_asking(once)
    return found


def _directory(result: DescribeLogDirsResult) -> LogDirDescription:
    error = ErrorCode.of(result.error_code)
    return LogDirDescription(
        path=result.log_dir,
        error="" if error is ErrorCode.NONE else error.name,
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                size=each.partition_size, offset_lag=each.offset_lag
            )
            for topic in result.topics
            for each in topic.partitions
        },
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
    )
