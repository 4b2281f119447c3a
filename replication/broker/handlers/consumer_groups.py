"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the new protocol (KIP-848)."""

from collections.abc import Iterable
from functools import partial

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    ConsumerMember,
)
from replication.groups.rules.consumer_group.heartbeat import Caller
from replication.groups.rules.consumer_group.membership import Refusal
from replication.groups.rules.consumer_group.target import preferred_assignor
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.security.rules.acls import SUPPORTED, ResourceType, as_bits
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from replication.wire.metadata import UNKNOWN_OPERATIONS


async def consumer_group_heartbeat(
    node: BrokerNode, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    caller = Caller(
        client_id=context.client_id or "", client_host="/" + context.peer.rpartition(":")[0]
    )
    answer = await node.consumers.heartbeat(request, caller, version=context.version)
    if isinstance(answer, Refusal):
        return ConsumerGroupHeartbeatResponse(error_code=answer.error, error_message=answer.message)
    assignment = None
    if answer.assigned is not None:
        topics = [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in answer.assigned.items()
        ]
        assignment = HeartbeatAssignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=node.consumers.config_of(request.group_id).heartbeat_interval_ms
        if answer.member_epoch >= 0
        else 0,
        assignment=assignment,
    )


async def consumer_group_describe(
    node: BrokerNode, _: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    operations = UNKNOWN_OPERATIONS
    if request.include_authorized_operations:
        operations = as_bits(SUPPORTED[ResourceType.GROUP])
    names = list(dict.fromkeys(request.group_ids))  # each once: a description may be long
    return ConsumerGroupDescribeResponse(groups=await in_steps(_each(node, operations, names)))


def _each(
    node: BrokerNode, operations: int, names: Iterable[str]
) -> Steps[list[DescribedConsumerGroup]]:
    described = []
    for name in names:
        yield 1
        try:
            group = node.consumers.described(name)
        except KafkaError as error:
            described.append(
                DescribedConsumerGroup(
                    error_code=error.code, error_message=str(error), group_id=name
                )
            )
            continue
        image = node.metadata.image
        shown = []
        for member in list(group.members.values()):
            shown.append(_member(group, member, image))
            yield 1 + len(member.assigned) + len(member.topic_names)
        described.append(
            DescribedConsumerGroup(
                error_code=ErrorCode.NONE,
                group_id=name,
                group_state=group.state.value,
                group_epoch=group.epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=preferred_assignor(group, node.consumers.settings.assignors),
                members=shown,
                authorized_operations=operations,
            )
        )
    return described


def _member(
    group: ConsumerGroup, member: ConsumerMember, image: MetadataImage
) -> DescribedConsumer:
    topics = partial(_topics, image)
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=topics(member.assigned),
        target_assignment=topics(group.target.get(member.member_id, NO_ASSIGNMENT)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _topics(image: MetadataImage, assignment: Assignment) -> DescribedAssignment:
    """Return the partitions of an assignment; a topic that has been deleted is left out."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(
                topic_id=topic_id,
                topic_name=image.topic_names_by_id[topic_id],
                partitions=sorted(partitions),
            )
            for topic_id, partitions in assignment.items()
            if topic_id in image.topic_names_by_id
        ]
    )
