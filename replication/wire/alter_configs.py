"""AlterConfigs (KIP-133): replaces the whole configuration of topics or brokers.

Keys that are not named get their defaults. IncrementalAlterConfigs has replaced it; older clients
still send it.
"""

from replication.wire.schema import array, boolean, define, int8, int16, int32, string


@define(kw_only=True)
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@define(kw_only=True)
class AlterConfigsResource:
    """`resource_type` is a `describe_configs.ResourceType`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@define(kw_only=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@define(kw_only=True)
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@define(kw_only=True)
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
