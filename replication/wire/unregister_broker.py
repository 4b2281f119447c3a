"""UnregisterBroker (KIP-631): removes the registration of a broker that does not come back."""

from replication.wire.schema import define, int16, int32, string


@define(kw_only=True)
class UnregisterBrokerRequest:
    broker_id: int = int32()


@define(kw_only=True)
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
