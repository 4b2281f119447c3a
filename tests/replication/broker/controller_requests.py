"""The requests with a timeout that a controller carries out, as tables for two brokers to answer.

`replication.broker.handlers` and Apache Kafka are asked the same (`test_timeouts.py`, here and in
`tests/interop`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.elect_leaders import ElectionTopic, ElectLeadersRequest

LEAST, MOST = -(1 << 31), (1 << 31) - 1
TIMEOUTS = [LEAST, -1, 0, 1, 5, MOST]


@attrs.frozen(kw_only=True)
class Asked:
    """One kind of request, about one topic."""

    name: str
    request: Callable[[str, int], Any]
    version: int
    errors: Callable[[Any], Iterable[int]]
    """All that a response holds, of every level."""
    partitions: Callable[[bool], int] | None = None
    """How many the topic has, by whether it was done; None where that changes nothing."""
    needs_topic: bool = True
    when_done: frozenset[ErrorCode] = frozenset({ErrorCode.NONE})

    def shows(self, image: MetadataImage, topic: str, *, done: bool) -> bool:
        """Return whether the metadata has the topic as it must be then."""
        if self.partitions is None:
            return True
        found = image.topics.get(topic)
        return (0 if found is None else len(found.partitions)) == self.partitions(done)


def _create(topic: str, timeout_ms: int) -> CreateTopicsRequest:
    made = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[made], timeout_ms=timeout_ms)


def _delete(topic: str, timeout_ms: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=timeout_ms)


def _grow(topic: str, timeout_ms: int) -> CreatePartitionsRequest:
    grown = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[grown], timeout_ms=timeout_ms)


def _elect(topic: str, timeout_ms: int) -> ElectLeadersRequest:
    elected = ElectionTopic(topic=topic, partitions=[0])
    return ElectLeadersRequest(topic_partitions=[elected], timeout_ms=timeout_ms)


def _reassign(topic: str, timeout_ms: int) -> AlterPartitionReassignmentsRequest:
    moved = ReassignablePartition(partition_index=0, replicas=[1])
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=timeout_ms
    )


CONTROLLER_REQUESTS = [
    Asked(
        name="CreateTopics",
        request=_create,
        version=5,
        errors=lambda response: [each.error_code for each in response.topics],
        partitions=lambda done: 1 if done else 0,
        needs_topic=False,
    ),
    Asked(
        name="DeleteTopics",
        request=_delete,
        version=6,
        errors=lambda response: [each.error_code for each in response.responses],
        partitions=lambda done: 0 if done else 1,
    ),
    Asked(
        name="CreatePartitions",
        request=_grow,
        version=3,
        errors=lambda response: [each.error_code for each in response.results],
        partitions=lambda done: 2 if done else 1,
    ),
    Asked(
        name="ElectLeaders",
        request=_elect,
        version=2,
        errors=lambda response: [
            response.error_code,
            *(
                each.error_code
                for topic in response.replica_election_results
                for each in topic.partition_result
            ),
        ],
        when_done=frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}),
    ),
    Asked(
        name="AlterPartitionReassignments",
        request=_reassign,
        version=0,
        errors=lambda response: [
            response.error_code,
            *(each.error_code for topic in response.responses for each in topic.partitions),
        ],
    ),
]
