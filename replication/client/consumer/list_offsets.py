"""The messages of ListOffsets and OffsetForLeaderEpoch, made and read; no network here.

    error of a partition                                        means
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, ... retriable  ask again, with newer metadata
    TOPIC_AUTHORIZATION_FAILED                                  raise it
    UNSUPPORTED_FOR_MESSAGE_FORMAT                              there is no such offset
    any other                                                   ask again (Kafka logs it)

(Kafka: OffsetFetcherUtils, OffsetsForLeaderEpochUtils.)
"""

from collections.abc import Mapping
from typing import NamedTuple

import attrs

from replication.client.consumer.position import FetchPosition
from replication.client.consumer.records import OffsetAndTimestamp
from replication.client.requests import nested
from replication.errors import ErrorCode
from replication.wire.fetch import CONSUMER_REPLICA_ID
from replication.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, OffsetAndEpoch, TopicPartition


class TimestampWanted(NamedTuple):
    """The timestamp to find in one partition, and the leader epoch of the request."""

    timestamp: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@attrs.frozen
class OffsetAnswers:
    """A broker's offsets (None: no such record), and the partitions to ask about again."""

    found: dict[TopicPartition, OffsetAndTimestamp | None] = attrs.field(factory=dict)
    again: set[TopicPartition] = attrs.field(factory=set)
    unauthorized: set[str] = attrs.field(factory=set)


def list_offsets_request(
    wanted: Mapping[TopicPartition, TimestampWanted], *, read_committed: bool
) -> ListOffsetsRequest:
    topics = nested(
        wanted,
        lambda name, each: ListOffsetsTopic(name=name, partitions=each),
        lambda tp: ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=wanted[tp].current_leader_epoch,
            timestamp=wanted[tp].timestamp,
        ),
    )
    return ListOffsetsRequest(topics=topics, isolation_level=int(read_committed))


def read_list_offsets(
    wanted: Mapping[TopicPartition, TimestampWanted], response: ListOffsetsResponse
) -> OffsetAnswers:
    """Return the offsets in a response; partitions that it leaves out are asked again."""
    answers = OffsetAnswers(again=set(wanted))
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if tp not in wanted:
                continue
            match ErrorCode.of(each.error_code):
                case ErrorCode.NONE if each.offset >= 0:
                    answers.found[tp] = OffsetAndTimestamp(
                        each.offset, each.timestamp, each.leader_epoch
                    )
                case ErrorCode.NONE | ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    answers.found[tp] = None
                case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    answers.unauthorized.add(topic.name)
                case _:
                    continue
            answers.again.discard(tp)
    return answers


@attrs.frozen
class EpochAnswers:
    """A broker's ends of leader epochs, and the partitions to ask about again."""

    ends: dict[TopicPartition, OffsetAndEpoch] = attrs.field(factory=dict)
    again: set[TopicPartition] = attrs.field(factory=set)
    unauthorized: set[str] = attrs.field(factory=set)


def epochs_request(wanted: Mapping[TopicPartition, FetchPosition]) -> OffsetForLeaderEpochRequest:
    topics = nested(
        wanted,
        lambda name, each: OffsetForLeaderTopic(topic=name, partitions=each),
        lambda tp: OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=wanted[tp].leader.epoch,
            leader_epoch=wanted[tp].offset_epoch,
        ),
    )
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)


def read_epochs(
    wanted: Mapping[TopicPartition, FetchPosition], response: OffsetForLeaderEpochResponse
) -> EpochAnswers:
    answers = EpochAnswers(again=set(wanted))
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic, each.partition)
            if tp not in wanted:
                continue
            match ErrorCode.of(each.error_code):
                case ErrorCode.NONE:
                    answers.ends[tp] = OffsetAndEpoch(each.end_offset, each.leader_epoch)
                case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    answers.unauthorized.add(topic.topic)
                case _:
                    continue
            answers.again.discard(tp)
    return answers
