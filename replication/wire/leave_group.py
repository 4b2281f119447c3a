"""LeaveGroup (KIP-345, 800): removes members from a group at once.

Up to version 2 one member leaves by its id; from 3 on any number, also static ones by
their instance ids, which is how an administrator removes them.
"""

from replication.wire.schema import array, define, int16, int32, string


@define(kw_only=True)
class LeavingMember:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@define(kw_only=True)
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[LeavingMember] = array(LeavingMember, "3+")


@define(kw_only=True)
class LeftMember:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@define(kw_only=True)
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[LeftMember] = array(LeftMember, "3+")
