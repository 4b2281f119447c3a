"""DescribeCluster (KIP-700, 919, 1073): returns the brokers and the controller of a cluster."""

from replication.wire.metadata import UNKNOWN_OPERATIONS
from replication.wire.schema import array, boolean, define, int8, int16, int32, string

BROKERS = 1
CONTROLLERS = 2


@define(kw_only=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=BROKERS)
    include_fenced_brokers: bool = boolean("2+")


@define(kw_only=True)
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@define(kw_only=True)
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=BROKERS)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)
