"""The messages of a consumer group's members to each other, which the coordinator passes on unread.

    subscription    version i16 | topics | user data | owned (1+) | generation (2+) | rack (3+)
    assignment      version i16 | partitions by topic | user data

version   what it brought
1         the partitions that a member still owns (KIP-429)
2         the generation in which it came to own them (KIP-792)
3         its rack (KIP-881)

A newer version is read as the newest that is known: what it adds stands behind. (Kafka:
ConsumerProtocolSubscription, ConsumerProtocolAssignment, StickyAssignorUserData.)
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from replication.errors import ProtocolError
from replication.wire.codec import (
    decode,
    decode_versioned,
    encode_versioned,
    encode_whole,
    version_of,
)
from replication.wire.join_group import NO_GENERATION
from replication.wire.schema import Kind, array, define, int32, octets, string
from storage.types import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
LATEST_SUBSCRIPTION: Final = 3
LATEST_ASSIGNMENT: Final = 3

Message = TypeVar("Message")


@define(kw_only=True)
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class Subscription:
    topics: list[str] = array(Kind.STRING)
    user_data: bytes | None = octets(nullable="0+", default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+")
    generation_id: int = int32("2+", default=NO_GENERATION)
    rack_id: str | None = string("3+", nullable="3+", default=None)


@define(kw_only=True)
class Assignment:
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = octets(nullable="0+", default=None)


@define(kw_only=True)
class StickyUserData:
    """The last assignment of a member with the eager sticky assignor; it has no version."""

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=NO_GENERATION)


def encode_subscription(subscription: Subscription, version: int = LATEST_SUBSCRIPTION) -> bytes:
    return encode_versioned(subscription, version)


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`; ProtocolError if it is none."""
    return _decode(Subscription, data, LATEST_SUBSCRIPTION)


def encode_assignment(assignment: Assignment, version: int = LATEST_ASSIGNMENT) -> bytes:
    return encode_versioned(assignment, version)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`; ProtocolError if it is none."""
    return _decode(Assignment, data, LATEST_ASSIGNMENT)


def encode_sticky(user_data: StickyUserData) -> bytes:
    return encode_whole(user_data, version=1)


def decode_sticky(data: bytes) -> StickyUserData:
    """Return the user data in `data`, older ones without a generation; ProtocolError if it is none."""
    try:
        return decode(StickyUserData, memoryview(data), version=1, flexible=False)
    except ProtocolError:
        return decode(StickyUserData, memoryview(data), version=0, flexible=False)


def by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, TopicPartitions] = {}
    for topic, partition in partitions:
        group = topics.setdefault(topic, TopicPartitions(topic=topic, partitions=[]))
        group.partitions.append(partition)
    return list(topics.values())


def partitions_of(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [
        TopicPartition(each.topic, partition) for each in topics for partition in each.partitions
    ]


def _decode(kind: type[Message], data: bytes, latest: int) -> Message:
    version = version_of(data)
    if version < 0:
        raise ProtocolError(f"a {kind.__name__} of version {version}")
    return decode_versioned(kind, data, min(version, latest))
