"""SyncGroup (KIP-345, 559): the leader sends all assignments, and each member gets its own."""

from replication.wire.schema import array, define, int16, int32, octets, string


@define(kw_only=True)
class SyncGroupAssignment:
    member_id: str = string()
    assignment: bytes = octets()


@define(kw_only=True)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupAssignment] = array(SyncGroupAssignment)


@define(kw_only=True)
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = octets()
