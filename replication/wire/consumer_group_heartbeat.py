"""ConsumerGroupHeartbeat (KIP-848): joins a group, stays in it, leaves it, and brings partitions.

A member that has nothing new to say leaves a field null, or -1; so does the coordinator.
"""

from typing import Final

from replication.wire.schema import Kind, array, define, int16, int32, string, struct, uuid

JOIN_EPOCH: Final = 0
"""The member epoch of a request to join."""
LEAVE_EPOCH: Final = -1
"""The member epoch of a request to leave."""
STATIC_LEAVE_EPOCH: Final = -2
"""The member epoch of a static member that leaves and is going to join again."""
UNCHANGED: Final = -1
"""A rebalance time limit that is the one of the request before."""


@define(kw_only=True)
class HeartbeatTopicPartitions:
    """The partitions of one topic that a member has, or may have."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=UNCHANGED)
    subscribed_topic_names: list[str] | None = array(
        Kind.STRING, nullable="0+", null_by_default=True
    )
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, nullable="0+", null_by_default=True
    )


@define(kw_only=True)
class HeartbeatAssignment:
    """The partitions that a member may read now."""

    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions)


@define(kw_only=True)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = struct(
        HeartbeatAssignment, nullable="0+", default=None
    )
