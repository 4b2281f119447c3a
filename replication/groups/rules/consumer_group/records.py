"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's bytes.

    key     3  group            the group epoch, and a hash of the topics that it reads
            4  group            the topics themselves, as Kafka 4.0 keeps them
            5  group, member    what the member asked for
            6  group            the assignment epoch
            7  group, member    the target assignment of the member
            8  group, member    the current assignment of the member, and its epoch
           16  group, pattern   the topics that a regular expression matches
    value   version 0, which is flexible; none: a tombstone

Rule 1: values are written as Kafka 4.3 writes them. An older broker skips the two tagged fields that
4.3 has added.

Rule 2: a value of another version is refused, since its key is known.

(Kafka: GroupCoordinatorRecordHelpers, CoordinatorRecordType, and the JSON schemas of these names.)
"""

from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from replication.coordinator.rules import KeyAndValue
from replication.errors import ProtocolError
from replication.wire.codec import decode_versioned, encode_versioned, version_of
from replication.wire.schema import (
    Kind,
    array,
    define,
    int8,
    int32,
    int64,
    octets,
    string,
    struct,
    uuid,
)
from storage.attributes import frozen

_VALUE_VERSION: Final = 0


@define(kw_only=True)
class WholeGroupKey:
    group_id: str = string()


@define(kw_only=True)
class PartOfGroupKey:
    """The key of a member or of a regular expression."""

    group_id: str = string()
    name: str = string()


@define(kw_only=True)
class ConsumerGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@define(kw_only=True)
class RacksOfPartition:
    partition: int = int32()
    racks: list[str] = array(Kind.STRING)


@define(kw_only=True)
class SubscribedTopicMetadata:
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[RacksOfPartition] = array(RacksOfPartition)


@define(kw_only=True)
class ConsumerGroupPartitionMetadataValue:
    topics: list[SubscribedTopicMetadata] = array(SubscribedTopicMetadata)


@define(kw_only=True)
class ClassicProtocol:
    name: str = string()
    metadata: bytes = octets()


@frozen(kw_only=True)
class ClassicMemberMetadata:
    """The fields that only a member with the classic protocol has."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@define(kw_only=True)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", default=ClassicMemberMetadata(), tag=0
    )
    """None of a member with the new protocol. Kafka's default, which is left out, is not None."""


@define(kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)
    """The end of the computation, in milliseconds; 0 where it is not known (KIP-1263)."""


@define(kw_only=True)
class TargetTopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


@define(kw_only=True)
class CurrentTopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)
    assignment_epochs: list[int] | None = array(
        Kind.INT32, nullable="0+", null_by_default=True, tag=0
    )
    """The member epoch at which each of `partitions` was assigned; None where it is not known."""


@define(kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


@define(kw_only=True)
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = array(Kind.STRING)
    version: int = int64()
    """The offset of the metadata in which the topics were looked up."""
    timestamp: int = int64()


ConsumerGroupValue: TypeAlias = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

KEY_VERSIONS: Final = MappingProxyType[type[ConsumerGroupValue], int](
    {
        ConsumerGroupMetadataValue: 3,
        ConsumerGroupPartitionMetadataValue: 4,
        ConsumerGroupMemberMetadataValue: 5,
        ConsumerGroupTargetAssignmentMetadataValue: 6,
        ConsumerGroupTargetAssignmentMemberValue: 7,
        ConsumerGroupCurrentMemberAssignmentValue: 8,
        ConsumerGroupRegularExpressionValue: 16,
    }
)
_KINDS: Final = {version: kind for kind, version in KEY_VERSIONS.items()}
_WHOLE_GROUP: Final = frozenset(
    {
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
    }
)


class ConsumerGroupEntry(NamedTuple):
    """A record of a group; `name` is the member or pattern, or "" where it is of the whole group.

    Without a value it is a tombstone.
    """

    group_id: str
    kind: type[ConsumerGroupValue]
    name: str
    value: ConsumerGroupValue | None


def record_of(group_id: str, value: ConsumerGroupValue, name: str = "") -> KeyAndValue:
    """Return the record of a value; `name` is the member or the pattern, if it is of one."""
    key = _key(type(value), group_id, name)
    return KeyAndValue(key, encode_versioned(value, _VALUE_VERSION, flexible=True))


def tombstone_of(group_id: str, kind: type[ConsumerGroupValue], name: str = "") -> KeyAndValue:
    """Return the record that deletes a value."""
    return KeyAndValue(_key(kind, group_id, name), None)


def parse(key: bytes | None, value: bytes | None) -> ConsumerGroupEntry | None:
    """Return the entry of a record; None where the key is of another protocol.

    It raises ProtocolError for bytes that no coordinator has written.
    """
    version = version_of(key)
    assert key is not None, "a key with a version is there"
    kind = _KINDS.get(version)
    if kind is None:
        return None
    name = ""
    if kind in _WHOLE_GROUP:
        group_id = decode_versioned(WholeGroupKey, key, version).group_id
    else:
        part = decode_versioned(PartOfGroupKey, key, version)
        group_id, name = part.group_id, part.name
    return ConsumerGroupEntry(group_id, kind, name, None if value is None else _read(kind, value))


def _key(kind: type[ConsumerGroupValue], group_id: str, name: str) -> bytes:
    if kind in _WHOLE_GROUP:
        return encode_versioned(WholeGroupKey(group_id=group_id), KEY_VERSIONS[kind])
    return encode_versioned(PartOfGroupKey(group_id=group_id, name=name), KEY_VERSIONS[kind])


def _read(kind: type[ConsumerGroupValue], value: bytes) -> ConsumerGroupValue:
    version = version_of(value)
    if version != _VALUE_VERSION:
        raise ProtocolError(f"{kind.__name__} of version {version}")
    return decode_versioned(kind, value, version, flexible=True)
