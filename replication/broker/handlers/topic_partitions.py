"""DescribeTopicPartitions (KIP-966): topics by name, partition by partition, a page at a time.

    topics a (3 partitions), b (2), limit 4    a-0 a-1 a-2 b-0    next: b, 1
    cursor b, 1                                b-1                next: none

A page ends where `response_partition_limit` is reached, or the limit of this broker. An unknown
topic takes no room in it; a request for all topics names none that is unknown.
(DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.)
"""

from collections.abc import Iterable, Sequence

from replication.broker.handlers.metadata import TOPIC_OPERATIONS, offline_replicas
from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.view import View
from replication.controller.rules.topic_names import fault_of
from replication.errors import ErrorCode
from replication.metadata.rules.image import PartitionRegistration, TopicImage
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from replication.wire.metadata import INTERNAL_TOPICS

_BEGINNING = Cursor(topic_name="", partition_index=0)


async def describe_topic_partitions(
    node: BrokerNode, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    view = View(node.metadata.image, context.listener)
    begin = request.cursor or _BEGINNING
    names = set(await in_steps(each_of(lambda topic: topic.name, request.topics)))
    # A page that begins nowhere is asked for by mistake.
    lost = request.cursor is not None and bool(names) and begin.topic_name not in names
    if lost or begin.partition_index < 0:
        refusals = await in_steps(each_of(_refused, sorted(names)))
        return DescribeTopicPartitionsResponse(topics=refusals)
    wanted = sorted(name for name in names or view.image.topics if name >= begin.topic_name)
    room = min(request.response_partition_limit, node.config.max_request_partition_size_limit)
    return await in_steps(_page(view, wanted, begin, room=max(room, 1)))


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)


def _page(
    view: View, names: Iterable[str], begin: Cursor, *, room: int
) -> Steps[DescribeTopicPartitionsResponse]:
    page = DescribeTopicPartitionsResponse()
    for name in names:
        yield 1
        if room == 0:
            page.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = view.image.topics.get(name)
        if topic is None:
            page.topics.append(_unknown(name))
            continue
        first = begin.partition_index if name == begin.topic_name else 0
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        page.topics.append((yield from _topic(view, topic, numbers[:room])))
        if len(numbers) > room:
            page.next_cursor = Cursor(topic_name=name, partition_index=numbers[room])
            break
        room -= len(numbers)
    return page


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = fault_of(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    view: View, topic: TopicImage, numbers: Sequence[int]
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=(
            yield from each_of(
                lambda number: _partition(view, number, topic.partitions[number]), numbers
            )
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    view: View, number: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    """Return the description of a partition; one without a leader has leader -1, and no error."""
    has_leader = view.endpoint(partition.leader) is not None
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(view, partition),
    )
