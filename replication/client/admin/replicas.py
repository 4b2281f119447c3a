"""What each broker has of its own, asked of itself: where its logs begin and end, how large they are.

    ListOffsets as a debugger    replica id -2: any replica answers, and tells its log's end
    ListOffsets as a consumer    the leader answers, and tells its high watermark
    OffsetForLeaderEpoch         the leader tells where an epoch ended in its log
    DescribeLogDirs              how many bytes a replica has

Rule 1: whoever does not answer in time is left out, and nobody is asked twice: this is one look
at a cluster, in which a broker may well be frozen. What is not in an answer is unknown.

(ReplicaManager.fetchOffset; ListOffsetsRequest.DEBUGGING_REPLICA_ID.)
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import trio

from replication.client.admin.calls import Calls, by_topic
from replication.client.admin.values import ListedOffset
from replication.client.errors import NO_ANSWER, UnsupportedVersionError
from replication.client.requests import ask
from replication.errors import ErrorCode
from replication.wire.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from replication.wire.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.types import LeaderEpoch, OffsetAndEpoch, TopicPartition

CONSUMER = -1
DEBUGGER = -2

Replica = tuple[TopicPartition, int]
"""A partition, and the broker that has it."""
ByBroker = Mapping[int, Iterable[TopicPartition]]


async def offsets(
    calls: Calls, replicas: ByBroker, timestamp: int, *, asker: int, timeout_ms: float
) -> dict[Replica, ListedOffset]:
    def request(partitions: list[TopicPartition]) -> object:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return ListOffsetsRequest(replica_id=asker, topics=topics)

    asked = {broker: request(list(each)) for broker, each in replicas.items()}
    return {
        (TopicPartition(topic.name, each.partition_index), broker): ListedOffset(
            offset=each.offset, timestamp=each.timestamp, leader_epoch=each.leader_epoch
        )
        for broker, answer in (await _each_once(calls, asked, timeout_ms)).items()
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


async def epoch_ends(
    calls: Calls, epochs: Mapping[int, Mapping[TopicPartition, LeaderEpoch]], *, timeout_ms: float
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Of each partition's leader: the largest epoch up to the one asked about, and its end."""

    def request(asked: Mapping[TopicPartition, LeaderEpoch]) -> object:
        topics = [
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=number, leader_epoch=asked[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(list(asked)).items()
        ]
        return OffsetForLeaderEpochRequest(topics=topics)

    requests = {broker: request(asked) for broker, asked in epochs.items()}
    return {
        TopicPartition(topic.topic, each.partition): OffsetAndEpoch(
            offset=each.end_offset, leader_epoch=each.leader_epoch
        )
        for answer in (await _each_once(calls, requests, timeout_ms)).values()
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.leader_epoch >= 0
    }


async def sizes(calls: Calls, replicas: ByBroker, *, timeout_ms: float) -> dict[Replica, int]:
    """In bytes."""

    def request(partitions: list[TopicPartition]) -> object:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
        return DescribeLogDirsRequest(topics=topics)

    asked = {broker: request(list(each)) for broker, each in replicas.items()}
    answers = await _each_once(calls, asked, timeout_ms)
    return {
        (partition, broker): size
        for broker, answer in answers.items()
        for partition, size in _sizes_in(answer)
    }


def _sizes_in(answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    for directory in answer.results:
        for topic in directory.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    yield TopicPartition(topic.name, each.partition_index), each.partition_size


async def _each_once(
    calls: Calls, requests: Mapping[int, object], timeout_ms: float
) -> dict[int, Any]:
    """What those say who answer in time."""
    answers: dict[int, Any] = {}

    async def one(broker: int, request: object) -> None:
        node = calls.metadata.view.node(broker)
        if node is None:
            return
        try:
            answers[broker] = await calls.network.call(node, ask(request), timeout_ms=timeout_ms)
        except (*NO_ANSWER, UnsupportedVersionError):
            return

    async with trio.open_nursery() as nursery:
        for broker, request in requests.items():
            nursery.start_soon(one, broker, request)
    return answers
