"""DescribeGroups (KIP-345, 430, 1043): returns the members of groups and their assignments.

Up to version 5 a group that does not exist is a dead one without an error; from 6 on it is
GROUP_ID_NOT_FOUND, with a message.
"""

from replication.wire.metadata import UNKNOWN_OPERATIONS
from replication.wire.schema import Kind, array, boolean, define, int16, int32, octets, string


@define(kw_only=True)
class DescribeGroupsRequest:
    groups: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean("3+")


@define(kw_only=True)
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


@define(kw_only=True)
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=UNKNOWN_OPERATIONS)


@define(kw_only=True)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
