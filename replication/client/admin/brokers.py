"""Brokers of a cluster, their log directories, and the configurations of brokers and topics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replication.client.admin.calls import Calls, OpenAdmin, Outcome
from replication.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirDescription,
    ReplicaSize,
)
from replication.client.arguments import list_of_names
from replication.client.errors import raise_for
from replication.config import ConfigOperation, ConfigSource
from replication.errors import ErrorCode
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
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
    calls = admin.calls

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
                outcomes[each.resource_name] = Outcome.of(each, values)
        return outcomes

    return await calls.for_each(names, once)


def _value(config: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        read_only=config.read_only,
    )


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
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for asked in _batches(kind, left):
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
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
                outcomes[each.resource_name] = Outcome.of(each)
        return outcomes

    await calls.for_each(list(changes), once)


def _change(name: str, value: str | None) -> IncrementalAlterableConfig:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return IncrementalAlterableConfig(name=name, config_operation=operation, value=value)


def _batches(kind: ConfigResourceType, names: Sequence[str]) -> list[list[str]]:
    """Separate brokers, since each answers for itself; any broker answers for all topics."""
    if kind is ConfigResourceType.BROKER:
        return [[name] for name in names]
    return [list(names)]


async def _ask(
    calls: Calls, kind: ConfigResourceType, names: Sequence[str], request: object
) -> Any:
    if kind is ConfigResourceType.BROKER and names[0]:
        return await calls.broker(int(names[0]), request)
    return await calls.any_broker(request)


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
            raise_for(response.error_code)
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
