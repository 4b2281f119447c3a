"""FindCoordinator (KIP-98, 699, 890, 932): returns the coordinators of groups or transactions.

Up to version 3 one key is asked for and answered at the top level; from 4 on a list.
"""

from replication.wire.schema import Kind, array, define, int8, int16, int32, string

GROUP = 0
TRANSACTION = 1


@define(kw_only=True)
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+", default=GROUP)
    coordinator_keys: list[str] = array(Kind.STRING, "4+")


@define(kw_only=True)
class Coordinator:
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


@define(kw_only=True)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
