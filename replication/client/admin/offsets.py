"""Offsets of partitions: listed, records before them deleted, and compared between replicas.

    list_offsets, delete_records     the leaders are asked, again until each has answered
    list_replica_offsets             each broker is asked about its own logs: as a debugger (replica
                                     id -2) it tells its log's end, as a consumer the leader tells
                                     its high watermark
    list_epoch_ends                  the leaders are asked where an epoch ended in their logs
    list_replica_sizes               each broker is asked how many bytes its replicas have

The last three are one look at a cluster in which a broker may be frozen: a broker that does not
answer in time is left out, and none is asked twice. What is not in the result is unknown.

(ReplicaManager.fetchOffset; ListOffsetsRequest.DEBUGGING_REPLICA_ID.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import trio

from replication.client.admin.calls import Calls, OpenAdmin
from replication.client.admin.values import ListedOffset
from replication.client.errors import UnsupportedVersionError
from replication.client.requests import ask, nested
from replication.errors import NO_ANSWER, ErrorCode
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from replication.wire.fetch import DEBUGGING_REPLICA_ID
from replication.wire.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition

Replica = tuple[TopicPartition, int]
"""A partition, and the broker that has it."""
ByBroker = Mapping[int, Iterable[TopicPartition]]


def _listing(
    partitions: Iterable[TopicPartition], timestamp: Callable[[TopicPartition], int]
) -> list[ListOffsetsTopic]:
    return nested(
        partitions,
        ListOffsetsTopic,
        lambda tp: ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp(tp)),
    )


def _listed(each: Any) -> ListedOffset:
    return ListedOffset(
        offset=each.offset, timestamp=each.timestamp, leader_epoch=each.leader_epoch
    )


async def list_offsets(
    admin: OpenAdmin, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """Return the first offset that is not older than each timestamp.

    EARLIEST, LATEST and MAX_TIMESTAMP of `replication.wire.list_offsets` are timestamps too.
    """

    def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            isolation_level=int(read_committed), topics=_listing(partitions, timestamps.__getitem__)
        )

    return await admin.calls.each_leader(timestamps, request, _listed)


async def delete_records(
    admin: OpenAdmin, before: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """Delete the records before each offset, -1 for all; return where each log begins then."""
    calls = admin.calls

    def request(partitions: Sequence[TopicPartition]) -> DeleteRecordsRequest:
        topics = nested(
            partitions,
            DeleteRecordsTopic,
            lambda tp: DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp]),
        )
        return DeleteRecordsRequest(topics=topics, timeout_ms=calls.config.request_timeout_ms)

    return await calls.each_leader(before, request, lambda each: each.low_watermark)


async def list_replica_offsets(
    admin: OpenAdmin,
    replicas: ByBroker,
    timestamp: int,
    *,
    asker: int = DEBUGGING_REPLICA_ID,
    timeout_ms: float = 1000.0,
) -> dict[Replica, ListedOffset]:
    """Return what brokers say of their own logs, by partition and broker.

    EARLIEST and LATEST are the two ends of a log, or LATEST for CONSUMER_REPLICA_ID is the
    leader's high watermark. Brokers that do not answer within `timeout_ms` are left out.
    """
    asked = {
        broker: ListOffsetsRequest(replica_id=asker, topics=_listing(each, lambda _: timestamp))
        for broker, each in replicas.items()
    }
    return {
        (TopicPartition(topic.name, each.partition_index), broker): _listed(each)
        for broker, answer in (await _each_once(admin.calls, asked, timeout_ms)).items()
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


async def list_epoch_ends(
    admin: OpenAdmin,
    epochs: Mapping[int, Mapping[TopicPartition, LeaderEpoch]],
    *,
    timeout_ms: float = 1000.0,
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Return the largest epoch up to the one asked about in each leader's log, and its end.

    `epochs`: by leader, the epoch to ask about in each partition. Brokers that do not answer are
    left out.
    """

    def request(asked: Mapping[TopicPartition, LeaderEpoch]) -> object:
        topics = nested(
            asked,
            OffsetForLeaderTopic,
            lambda tp: OffsetForLeaderPartition(partition=tp.partition, leader_epoch=asked[tp]),
        )
        return OffsetForLeaderEpochRequest(topics=topics)

    requests = {broker: request(asked) for broker, asked in epochs.items()}
    return {
        TopicPartition(topic.topic, each.partition): OffsetAndEpoch(
            offset=each.end_offset, leader_epoch=each.leader_epoch
        )
        for answer in (await _each_once(admin.calls, requests, timeout_ms)).values()
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.leader_epoch >= 0
    }


async def list_replica_sizes(
    admin: OpenAdmin, replicas: ByBroker, *, timeout_ms: float = 1000.0
) -> dict[Replica, int]:
    """Return the bytes of each replica, by partition and broker.

    Brokers that do not answer are left out.
    """
    asked = {
        broker: DescribeLogDirsRequest(topics=nested(each, DescribableLogDirTopic))
        for broker, each in replicas.items()
    }
    return {
        (TopicPartition(topic.name, each.partition_index), broker): each.partition_size
        for broker, answer in (await _each_once(admin.calls, asked, timeout_ms)).items()
        for directory in answer.results
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }


async def _each_once(
    calls: Calls, requests: Mapping[int, object], timeout_ms: float
) -> dict[int, Any]:
    """Return the responses of the brokers that answer in time."""
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
