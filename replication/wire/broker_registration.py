"""BrokerRegistration (KIP-631, 866, 858, 966): registers a broker with the controller.

Version 3 brought the epoch of the broker's last clean shutdown, so that a controller can
tell a broker that may have lost its tail from one that cannot have.
"""

from replication.wire.schema import (
    Kind,
    array,
    boolean,
    define,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from storage.attributes import frozen


@frozen
class Endpoint:
    """The address of a listener of a broker or a controller; it stands in metadata records too."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@frozen
class Feature:
    """The levels of a feature that a broker or a controller supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@define(kw_only=True)
class BrokerRegistrationRequest:
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Endpoint] = array(Endpoint)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+", default=None)
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(Kind.UUID, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


@define(kw_only=True)
class BrokerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
