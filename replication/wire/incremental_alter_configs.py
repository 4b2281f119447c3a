"""IncrementalAlterConfigs (KIP-339): changes some keys of topics or brokers, one operation each."""

from replication.wire.alter_configs import AlterConfigsResourceResponse
from replication.wire.schema import array, boolean, define, int8, int32, string


@define(kw_only=True)
class IncrementalAlterableConfig:
    """`config_operation` is a `replication.config.ConfigOperation`."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@define(kw_only=True)
class IncrementalAlterConfigsResource:
    """`resource_type` is a `describe_configs.ResourceType`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@define(kw_only=True)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@define(kw_only=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
