"""Offsets of partitions: listed, and records before them deleted. Leaders are asked."""

from collections.abc import Mapping, Sequence

from replication.client.admin.calls import Calls, Outcome, by_topic
from replication.client.admin.values import ListedOffset
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from storage.types import Offset, TopicPartition


async def list_offsets(
    calls: Calls, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, ListedOffset]:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        for leader, led in (await calls.by_leader(left)).items():
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            timestamp=timestamps[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(led).items()
            ]
            request = ListOffsetsRequest(isolation_level=int(read_committed), topics=topics)
            response = await calls.broker(leader, request)
            for topic in response.topics:
                for each in topic.partitions:
                    listed = ListedOffset(
                        offset=each.offset,
                        timestamp=each.timestamp,
                        leader_epoch=each.leader_epoch,
                    )
                    partition = TopicPartition(topic.name, each.partition_index)
                    outcomes[partition] = Outcome(each.error_code, None, listed)
        return outcomes

    return await calls.for_each(list(timestamps), once, at_once=frozenset())


async def delete_records(
    calls: Calls, before: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        for leader, led in (await calls.by_leader(left)).items():
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=number, offset=before[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(led).items()
            ]
            request = DeleteRecordsRequest(
                topics=topics, timeout_ms=calls.config.request_timeout_ms
            )
            response = await calls.broker(leader, request)
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    outcomes[partition] = Outcome(each.error_code, None, each.low_watermark)
        return outcomes

    return await calls.for_each(list(before), once, at_once=frozenset())
