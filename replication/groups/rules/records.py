"""The records of `__consumer_offsets`, in Kafka's bytes (OffsetCommitKey.json and the others).

    key    version i16 | 0, 1: group, topic, partition    an offset
                       | 2:    group                      a group
    value  version i16 | offset, leader epoch, metadata, timestamps
                       | protocol type, generation, protocol, leader, timestamp, members
           none: a tombstone

Rule 1: values are written as Kafka 4.0 writes them: in version 3, and an offset with an expiry of
its own (OffsetCommit up to version 4) in version 1, which is the only one with that field.

Rule 2: a key of an unknown version belongs to another protocol (KIP-848, share groups) and is
passed over (KIP-915). A value of an unknown version is refused, since its key is known.
"""

from typing import Final, NamedTuple, TypeAlias, TypeVar

from replication.coordinator.rules import KeyAndValue
from replication.errors import ProtocolError
from replication.wire.codec import decode_versioned, encode_versioned, version_of
from replication.wire.schema import array, define, int32, int64, octets, string
from storage.batch.record_batch import NO_TIMESTAMP
from storage.types import NO_LEADER_EPOCH, TopicPartition

Message = TypeVar("Message")

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_HIGHEST_VALUE: Final = 4
_FIRST_FLEXIBLE: Final = 4


@define(kw_only=True)
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@define(kw_only=True)
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", default=NO_LEADER_EPOCH)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=NO_TIMESTAMP)


@define(kw_only=True)
class GroupMetadataKey:
    group: str = string()


@define(kw_only=True)
class GroupMetadataMember:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = octets()
    assignment: bytes = octets()


@define(kw_only=True)
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


class OffsetEntry(NamedTuple):
    """The committed offset of a group in a partition; without a value it is deleted."""

    group: str
    partition: TopicPartition
    value: OffsetCommitValue | None


class GroupEntry(NamedTuple):
    """The state of a group; without a value the group is deleted."""

    group: str
    value: GroupMetadataValue | None


Entry: TypeAlias = OffsetEntry | GroupEntry


def offset_record(group: str, partition: TopicPartition, value: OffsetCommitValue) -> KeyAndValue:
    version = 3 if value.expire_timestamp == NO_TIMESTAMP else 1
    return KeyAndValue(_offset_key(group, partition), encode_versioned(value, version))


def offset_tombstone(group: str, partition: TopicPartition) -> KeyAndValue:
    return KeyAndValue(_offset_key(group, partition), None)


def group_record(group: str, value: GroupMetadataValue) -> KeyAndValue:
    return KeyAndValue(_group_key(group), encode_versioned(value, 3))


def group_tombstone(group: str) -> KeyAndValue:
    return KeyAndValue(_group_key(group), None)


def parse(key: bytes | None, value: bytes | None) -> Entry | None:
    """Return the entry of a record; None for a key of an unknown version."""
    version = version_of(key)
    assert key is not None, "a key with a version is there"
    if version in _OFFSET_KEYS:
        offset = decode_versioned(OffsetCommitKey, key, version)
        partition = TopicPartition(offset.topic, offset.partition)
        return OffsetEntry(offset.group, partition, _read(OffsetCommitValue, value))
    if version == _GROUP_KEY:
        group = decode_versioned(GroupMetadataKey, key, version)
        return GroupEntry(group.group, _read_group(value))
    return None


def _offset_key(group: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group, topic=partition.topic, partition=partition.partition)
    return encode_versioned(key, _OFFSET_KEYS[-1])


def _group_key(group: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group), _GROUP_KEY)


def _read_group(value: bytes | None) -> GroupMetadataValue | None:
    group = _read(GroupMetadataValue, value)
    if group is None:
        return None
    if group.members and group.protocol is None:
        raise ProtocolError("a group whose members have no protocol")
    for names in (
        [each.member_id for each in group.members],
        [each.group_instance_id for each in group.members if each.group_instance_id is not None],
    ):
        if len(set(names)) != len(names):
            raise ProtocolError("a group that has a member twice")
    if version_of(value) == 0:
        for member in group.members:
            member.rebalance_timeout = member.session_timeout
    return group


def _read(kind: type[Message], value: bytes | None) -> Message | None:
    if value is None:
        return None
    version = version_of(value)
    if not 0 <= version <= _HIGHEST_VALUE:
        raise ProtocolError(f"{kind.__name__} of version {version}")
    return decode_versioned(kind, value, version, flexible=version >= _FIRST_FLEXIBLE)
