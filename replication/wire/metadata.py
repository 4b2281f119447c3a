"""Metadata: returns the brokers of a cluster, and the leaders of partitions.

With `topics` null all topics are returned; at version 0, which has no null, with an empty list.
`include_cluster_authorized_operations` exists from version 8 to 10 only (KIP-700).
"""

from replication.wire.schema import Kind, array, boolean, define, int16, int32, string, uuid
from storage.attributes import frozen

UNKNOWN_OPERATIONS = -(2**31)
"""The authorized operations of a request that did not ask for them."""

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that a broker marks as internal (org.apache.kafka.common.internals.Topic)."""


@define(kw_only=True)
class MetadataRequestTopic:
    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


@define(kw_only=True)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@define(kw_only=True)
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


@define(kw_only=True)
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    offline_replicas: list[int] = array(Kind.INT32, "5+")


@define(kw_only=True)
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=UNKNOWN_OPERATIONS)


@define(kw_only=True)
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=UNKNOWN_OPERATIONS)
    error_code: int = int16("13+")


# -- the current leader, in Fetch and Produce responses (KIP-951) --


@frozen(kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@define(kw_only=True)
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


NO_CURRENT_LEADER = LeaderIdAndEpoch()
