"""DescribeClientQuotas (KIP-546): returns the quotas of users, client ids and addresses."""

from replication.wire.schema import array, boolean, define, float64, int8, int16, int32, string

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
EXACT = 0
DEFAULT = 1
SPECIFIED = 2


@define(kw_only=True)
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@define(kw_only=True)
class DescribeClientQuotasRequest:
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@define(kw_only=True)
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@define(kw_only=True)
class ValueData:
    key: str = string()
    value: float = float64()


@define(kw_only=True)
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@define(kw_only=True)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
