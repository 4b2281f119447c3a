"""JoinGroup (KIP-62, 345, 394, 559, 800, 814): joins the next generation of a group.

Version 0 has no rebalance timeout: the session timeout is used. From 4 on a
new member is first sent away with an id to come back with, and from 5 on it may be a
static one, which keeps its place under `group_instance_id` over a restart.
"""

from replication.wire.schema import array, boolean, define, int16, int32, octets, string

NO_MEMBER = ""
NO_GENERATION = -1
NULL_PROTOCOL_SINCE = 7


@define(kw_only=True)
class JoinGroupProtocol:
    name: str = string()
    metadata: bytes = octets()


@define(kw_only=True)
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupProtocol] = array(JoinGroupProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@define(kw_only=True)
class JoinGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = octets()


@define(kw_only=True)
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=NO_GENERATION)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupMember] = array(JoinGroupMember)
