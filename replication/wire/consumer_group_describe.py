"""ConsumerGroupDescribe (KIP-848, 1099): returns the members of groups, and their assignments.

Only groups of the consumer protocol are described; another group is GROUP_ID_NOT_FOUND.
"""

from typing import Final

from replication.wire.metadata import UNKNOWN_OPERATIONS
from replication.wire.schema import (
    Kind,
    array,
    boolean,
    define,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from storage.attributes import frozen

UNKNOWN_MEMBER_TYPE: Final = -1
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


@define(kw_only=True)
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean()


@define(kw_only=True)
class DescribedTopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(Kind.INT32)


@frozen(kw_only=True)
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


@define(kw_only=True)
class DescribedConsumer:
    """One member of a group of the consumer protocol."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: DescribedAssignment = struct(DescribedAssignment, default=DescribedAssignment())
    target_assignment: DescribedAssignment = struct(
        DescribedAssignment, default=DescribedAssignment()
    )
    member_type: int = int8("1+", default=UNKNOWN_MEMBER_TYPE)


@define(kw_only=True)
class DescribedConsumerGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumer] = array(DescribedConsumer)
    authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@define(kw_only=True)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
