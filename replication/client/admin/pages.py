"""Topics as DescribeTopicPartitions tells them (KIP-966): a page at a time, with the eligible leaders.

A page ends with a cursor, where the next one begins. A cursor that does not move on would be
followed for ever, and is refused.
"""

from collections.abc import Mapping, Sequence

import attrs

from replication.client.admin.calls import Calls, Outcome
from replication.client.admin.values import PartitionDescription, TopicDescription
from replication.errors import ErrorCode, ProtocolError
from replication.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)


async def described_by_pages(calls: Calls, names: Sequence[str]) -> Mapping[str, Outcome]:
    found: dict[str, Outcome] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names)], cursor=cursor
        )
        response = await calls.any_broker(request)
        for each in response.topics:
            _add(found, each)
        if response.next_cursor is None:
            return found
        if cursor is not None and _place(response.next_cursor) <= _place(cursor):
            raise ProtocolError("a page of topics ends before it begins")
        cursor = response.next_cursor


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _add(found: dict[str, Outcome], topic: DescribeTopicPartitionsResponseTopic) -> None:
    """To what an earlier page told of the same topic."""
    name = topic.name or ""
    partitions = tuple(_partition(each) for each in topic.partitions)
    before = found.get(name)
    if before is None or before.code != ErrorCode.NONE:
        described = TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=partitions,
        )
    else:
        told = before.value.partitions
        described = attrs.evolve(before.value, partitions=(*told, *partitions))
    found[name] = Outcome(topic.error_code, None, described)


def _partition(told: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=told.partition_index,
        leader=told.leader_id,
        leader_epoch=told.leader_epoch,
        replicas=tuple(told.replica_nodes),
        isr=tuple(told.isr_nodes),
        offline_replicas=tuple(told.offline_replicas),
        eligible_leaders=_or_none(told.eligible_leader_replicas),
        last_known_eligible=_or_none(told.last_known_elr),
    )


def _or_none(brokers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(brokers)
