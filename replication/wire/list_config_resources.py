"""ListConfigResources (KIP-714, KIP-1142): names what has, or may have, a configuration.

Version 0 is about client metrics alone; its response has no types.
"""

from replication.wire.describe_configs import ConfigResourceType
from replication.wire.schema import Kind, array, define, int8, int16, int32, string


@define(kw_only=True)
class ListConfigResourcesRequest:
    resource_types: list[int] = array(Kind.INT8, "1+")
    """The types that are asked for; none means every type."""


@define(kw_only=True)
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=int(ConfigResourceType.CLIENT_METRICS))


@define(kw_only=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
