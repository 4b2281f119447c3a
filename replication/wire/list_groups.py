"""ListGroups (KIP-518, 848): returns the groups that a broker coordinates."""

from typing import Final

from replication.wire.schema import Kind, array, define, int16, int32, string

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


@define(kw_only=True)
class ListGroupsRequest:
    states_filter: list[str] = array(Kind.STRING, "4+")
    types_filter: list[str] = array(Kind.STRING, "5+")


@define(kw_only=True)
class ListedGroupData:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@define(kw_only=True)
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroupData] = array(ListedGroupData)
