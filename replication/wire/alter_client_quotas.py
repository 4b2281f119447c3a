"""AlterClientQuotas (KIP-546): sets or removes the quotas of users, client ids and addresses."""

from replication.wire.describe_client_quotas import EntityData
from replication.wire.schema import array, boolean, define, float64, int16, int32, string


@define(kw_only=True)
class QuotaOperation:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@define(kw_only=True)
class QuotaAlteration:
    entity: list[EntityData] = array(EntityData)
    ops: list[QuotaOperation] = array(QuotaOperation)


@define(kw_only=True)
class AlterClientQuotasRequest:
    entries: list[QuotaAlteration] = array(QuotaAlteration)
    validate_only: bool = boolean()


@define(kw_only=True)
class QuotaAlterationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[EntityData] = array(EntityData)


@define(kw_only=True)
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[QuotaAlterationResult] = array(QuotaAlterationResult)
