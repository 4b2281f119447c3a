"""ControllerRegistration (KIP-919): registers a controller with the active controller."""

from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.schema import array, boolean, define, int16, int32, string, uuid


@define(kw_only=True)
class ControllerRegistrationRequest:
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Endpoint] = array(Endpoint)
    features: list[Feature] = array(Feature)


@define(kw_only=True)
class ControllerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
