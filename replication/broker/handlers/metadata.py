"""Metadata and DescribeCluster: the brokers, the topics, and the leaders of their partitions.

A client sees only brokers that it can use: registered, not fenced, and with an endpoint on the
listener of its connection. A replica on another broker is offline; a leader there makes its
partition LEADER_NOT_AVAILABLE (KRaftMetadataCache). Any live broker may be named as the controller,
since each forwards to it: the answer names this broker, which the client has reached.

An unknown topic is created if `auto.create.topics.enable` and the client allow it. Kafka answers
UNKNOWN_TOPIC_OR_PARTITION meanwhile, and the client asks again; this broker waits as long as a
creation usually takes, so that most requests are answered once.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.topics import create_automatically
from replication.broker.handlers.view import View
from replication.controller.rules.topic_names import fault_of
from replication.errors import ErrorCode
from replication.metadata.rules.image import PartitionRegistration, TopicImage
from replication.net.pace import in_steps
from replication.security.rules.acls import SUPPORTED, ResourceType, as_bits
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from replication.wire.metadata import (
    INTERNAL_TOPICS,
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.types import NO_TOPIC_ID, TopicId

IDS_SINCE = 12  # KIP-516
# All that there is, without an authorizer; with one a guard takes out what may not be done.
TOPIC_OPERATIONS = as_bits(SUPPORTED[ResourceType.TOPIC])
CLUSTER_OPERATIONS = as_bits(SUPPORTED[ResourceType.CLUSTER])


async def metadata(
    node: BrokerNode, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Describe topics by name, by id (from version 12), or all of them."""
    if context.version < IDS_SINCE and await in_steps(_is_malformed(request)):
        return MetadataResponse(topics=await in_steps(each_of(_refused, request.topics or ())))
    operations = UNKNOWN_OPERATIONS
    if request.include_topic_authorized_operations:
        operations = TOPIC_OPERATIONS
    if request.topics is None or (context.version == 0 and not request.topics):
        view = View(node.metadata.image, context.listener)
        topics = await in_steps(_all_topics(view, operations))
    else:
        refused: dict[str, ErrorCode] = {}
        if request.allow_auto_topic_creation and node.config.auto_create_topics_enable:
            names = [wanted.name for wanted in request.topics if wanted.name is not None]
            refused = await create_automatically(node, names)
        view = View(node.metadata.image, context.listener)
        topics = await in_steps(_answers(view, request.topics, refused, operations))
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=end.host, port=end.port, rack=rack)
            for broker_id, end, rack in view.brokers()
        ],
        cluster_id=node.cluster_id,
        controller_id=node.broker_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def describe_cluster(
    node: BrokerNode, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the brokers alone; controllers answer on their own listener (KIP-919)."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener describes brokers",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    view = View(node.metadata.image, context.listener)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.broker_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker_id,
                host=end.host,
                port=end.port,
                rack=rack,
                is_fenced=not view.image.is_alive(broker_id),
            )
            for broker_id, end, rack in view.brokers(fenced=request.include_fenced_brokers)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else UNKNOWN_OPERATIONS
        ),
    )


def _is_malformed(request: MetadataRequest) -> Steps[bool]:
    """Return whether a request of version 10 or 11 uses ids or null names, which these versions do not support."""
    names_an_id = yield from each_of(
        lambda topic: topic.name is None or topic.topic_id != NO_TOPIC_ID, request.topics or ()
    )
    return any(names_an_id)


def _refused(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
    )


def _all_topics(view: View, operations: int) -> Steps[list[MetadataResponseTopic]]:
    answers = []
    for _, topic in sorted(view.image.topics.items()):
        answers.append((yield from _topic(view, topic, operations)))
    return answers


def _answers(
    view: View,
    wanted: Iterable[MetadataRequestTopic],
    refused: Mapping[str, ErrorCode],
    operations: int,
) -> Steps[list[MetadataResponseTopic]]:
    """Return one answer for each topic, however often it was asked for."""
    answers: dict[tuple[TopicId, str | None], MetadataResponseTopic] = {}
    for asked in wanted:
        key = (asked.topic_id, asked.name)
        if key not in answers:
            topic = _asked_for(view, *key)
            answers[key] = (
                _unknown(*key, refused)
                if topic is None
                else (yield from _topic(view, topic, operations))
            )
        yield 1
    return list(answers.values())


def _asked_for(view: View, topic_id: TopicId, name: str | None) -> TopicImage | None:
    """Return the topic of that name or id; the id wins where both are given."""
    if name is None or topic_id != NO_TOPIC_ID:
        return view.image.topic_by_id(topic_id)
    return view.image.topics.get(name)


def _unknown(
    topic_id: TopicId, name: str | None, refused: Mapping[str, ErrorCode]
) -> MetadataResponseTopic:
    if name is None or topic_id != NO_TOPIC_ID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    error = refused.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if fault_of(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=error, name=name)


def _topic(view: View, topic: TopicImage, operations: int) -> Steps[MetadataResponseTopic]:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=(
            yield from each_of(partial(_partition, view), sorted(topic.partitions.items()))
        ),
        topic_authorized_operations=operations,
    )


def _partition(
    view: View, numbered: tuple[int, PartitionRegistration]
) -> MetadataResponsePartition:
    index, partition = numbered
    has_leader = view.endpoint(partition.leader) is not None
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline_replicas(view, partition),
    )


def offline_replicas(view: View, partition: PartitionRegistration) -> list[int]:
    """Return the replicas that the client cannot reach."""
    return [replica for replica in partition.replicas if view.endpoint(replica) is None]
