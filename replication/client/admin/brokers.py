"""Brokers: the cluster, configurations, log directories."""

from collections.abc import Mapping, Sequence
from typing import Any

from replication.client.admin.calls import Calls, Outcome
from replication.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirectory,
    ReplicaSize,
)
from replication.client.errors import raise_for
from replication.config import ConfigOperation, ConfigSource
from replication.errors import ErrorCode
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    ResourceType,
)
from replication.wire.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from replication.wire.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from storage.types import TopicPartition


async def describe_cluster(calls: Calls) -> ClusterDescription:
    async def once() -> ClusterDescription:
        response = await calls.any_broker(DescribeClusterRequest())
        raise_for(response.error_code, response.error_message or "")
        brokers = [
            BrokerDescription(id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in sorted(response.brokers, key=lambda each: each.broker_id)
        ]
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=tuple(brokers),
        )

    return await calls.keep_asking(once)


# Configurations of topics, of a broker, or of all brokers (a broker called "").


async def describe_configs(
    calls: Calls, kind: ResourceType, names: Sequence[str]
) -> dict[str, dict[str, ConfigValue]]:
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for asked in _batches(kind, left):
            resources = [
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for name in asked
            ]
            request = DescribeConfigsRequest(resources=resources)
            response = await _ask(calls, kind, asked, request)
            for each in response.results:
                values = {config.name: _value(config) for config in each.configs}
                outcomes[each.resource_name] = Outcome(each.error_code, each.error_message, values)
        return outcomes

    return await calls.for_each(names, once)


def _value(config: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        read_only=config.read_only,
    )


async def alter_configs(
    calls: Calls,
    kind: ResourceType,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """`None` puts a key back to its default; all others stay as they are (KIP-339)."""

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for asked in _batches(kind, left):
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[_change(*each) for each in changes[name].items()],
                    )
                    for name in asked
                ],
                validate_only=validate_only,
            )
            response = await _ask(calls, kind, asked, request)
            for each in response.responses:
                outcomes[each.resource_name] = Outcome(each.error_code, each.error_message)
        return outcomes

    await calls.for_each(list(changes), once)


def _change(name: str, value: str | None) -> AlterableConfig:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return AlterableConfig(name=name, config_operation=operation, value=value)


def _batches(kind: ResourceType, names: Sequence[str]) -> list[list[str]]:
    """Who is asked about a broker is that broker; all else can be asked of anybody at once."""
    if kind is ResourceType.BROKER:
        return [[name] for name in names]
    return [list(names)]


async def _ask(calls: Calls, kind: ResourceType, names: Sequence[str], request: object) -> Any:
    if kind is ResourceType.BROKER and names[0]:
        return await calls.broker(int(names[0]), request)
    return await calls.any_broker(request)


# Log directories.


async def describe_log_dirs(
    calls: Calls, broker_ids: Sequence[int] | None
) -> dict[int, list[LogDirectory]]:
    async def ids() -> list[int]:
        return await calls.broker_ids()

    wanted = await calls.keep_asking(ids) if broker_ids is None else list(broker_ids)
    found: dict[int, list[LogDirectory]] = {}
    for broker_id in wanted:

        async def once(broker_id: int = broker_id) -> list[LogDirectory]:
            response: DescribeLogDirsResponse = await calls.broker(
                broker_id, DescribeLogDirsRequest(topics=None)
            )
            raise_for(response.error_code)
            return [_directory(each) for each in response.results]

        found[broker_id] = await calls.keep_asking(once)
    return found


def _directory(told: DescribeLogDirsResult) -> LogDirectory:
    error = ErrorCode.of(told.error_code)
    return LogDirectory(
        path=told.log_dir,
        error="" if error is ErrorCode.NONE else error.name,
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                size=each.partition_size, offset_lag=each.offset_lag
            )
            for topic in told.topics
            for each in topic.partitions
        },
        total_bytes=told.total_bytes,
        usable_bytes=told.usable_bytes,
    )
