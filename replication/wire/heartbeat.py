"""Heartbeat (KIP-345): keeps a member in its group; the response announces a rebalance."""

from replication.wire.schema import define, int16, int32, string


@define(kw_only=True)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@define(kw_only=True)
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
