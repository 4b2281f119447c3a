"""BrokerHeartbeat (KIP-631, 858, 1066): keeps a broker registered, and requests its shutdown."""

from replication.wire.schema import Kind, array, boolean, define, int16, int32, int64


@define(kw_only=True)
class BrokerHeartbeatRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(Kind.UUID, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(
        Kind.UUID, "2+", nullable="2+", null_by_default=True, tag=1
    )


@define(kw_only=True)
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
