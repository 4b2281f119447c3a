"""What stands in `__consumer_offsets`, in Kafka's bytes (OffsetCommitKey.json and the others).

    key    version i16 | 0, 1: group, topic, partition    an offset
                       | 2:    group                      a group
    value  version i16 | offset, leader epoch, metadata, timestamps
                       | protocol type, generation, protocol, leader, timestamp, members
           none: a tombstone

Rule 1: we write what Kafka 4.0 writes: values of version 3, and an offset with an expiry
of its own (OffsetCommit up to version 4) in version 1, the only one that can say it.

Rule 2: a key of a version that we do not know is somebody else's (the protocol of KIP-848,
share groups) and is passed over (KIP-915). A value of an unknown version is not: its key
says that it is ours.
"""

import struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

import attrs

from replication.coordinator.rules.records import KeyAndValue
from replication.errors import ProtocolError
from replication.wire.codec import decode, encode
from replication.wire.schema import Part, array, int32, int64, octets, string
from storage.types import TopicPartition

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

Message = TypeVar("Message")

_VERSION: Final = struct.Struct(">h")
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_HIGHEST_VALUE: Final = 4
_FIRST_FLEXIBLE: Final = 4
_NEVER: Final = 2**15


@attrs.define(kw_only=True)
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@attrs.define(kw_only=True)
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", default=NO_LEADER_EPOCH)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=NO_TIMESTAMP)


@attrs.define(kw_only=True)
class GroupMetadataKey:
    group: str = string()


@attrs.define(kw_only=True)
class GroupMetadataMember:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = octets()
    assignment: bytes = octets()


@attrs.define(kw_only=True)
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


class OffsetEntry(NamedTuple):
    """A record read: how far a group has read a partition, or that this is forgotten."""

    group: str
    partition: TopicPartition
    value: OffsetCommitValue | None


class GroupEntry(NamedTuple):
    """A record read: how a group stood, or that there is none any more."""

    group: str
    value: GroupMetadataValue | None


Entry: TypeAlias = OffsetEntry | GroupEntry


def offset_record(group: str, partition: TopicPartition, value: OffsetCommitValue) -> KeyAndValue:
    version = 3 if value.expire_timestamp == NO_TIMESTAMP else 1
    return KeyAndValue(_offset_key(group, partition), _versioned(value, version))


def offset_tombstone(group: str, partition: TopicPartition) -> KeyAndValue:
    return KeyAndValue(_offset_key(group, partition), None)


def group_record(group: str, value: GroupMetadataValue) -> KeyAndValue:
    return KeyAndValue(_group_key(group), _versioned(value, 3))


def group_tombstone(group: str) -> KeyAndValue:
    return KeyAndValue(_group_key(group), None)


def parse(key: bytes | None, value: bytes | None) -> Entry | None:
    """Return what a record says; None for a kind that we do not know."""
    if key is None or len(key) < _VERSION.size:
        raise ProtocolError("a record of the group coordinator without a key")
    (version,) = _VERSION.unpack_from(key)
    if version in _OFFSET_KEYS:
        offset = _read_key(OffsetCommitKey, key, version)
        partition = TopicPartition(offset.topic, offset.partition)
        return OffsetEntry(offset.group, partition, _read(OffsetCommitValue, value))
    if version == _GROUP_KEY:
        group = _read_key(GroupMetadataKey, key, version)
        return GroupEntry(group.group, _read_group(value))
    return None


def _offset_key(group: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group, topic=partition.topic, partition=partition.partition)
    return _versioned(key, _OFFSET_KEYS[-1], first_flexible=_NEVER)


def _group_key(group: str) -> bytes:
    return _versioned(GroupMetadataKey(group=group), _GROUP_KEY, first_flexible=_NEVER)


def _versioned(message: object, version: int, *, first_flexible: int = _FIRST_FLEXIBLE) -> bytes:
    parts: list[Part] = encode(message, version=version, flexible=version >= first_flexible)
    assert all(isinstance(part, bytes | memoryview) for part in parts), "nothing lies in a file"
    return b"".join([_VERSION.pack(version), *parts])  # type: ignore[list-item] # just asserted


def _version_of(value: bytes | None) -> int:
    if value is None or len(value) < _VERSION.size:
        raise ProtocolError("a value without a version")
    (version,) = _VERSION.unpack_from(value)
    return int(version)


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
    if _version_of(value) == 0:
        for member in group.members:
            member.rebalance_timeout = member.session_timeout
    return group


def _read_key(kind: type[Message], key: bytes, version: int) -> Message:
    return decode(kind, memoryview(key), _VERSION.size, version=version, flexible=False)


def _read(kind: type[Message], value: bytes | None) -> Message | None:
    if value is None:
        return None
    version = _version_of(value)
    if not 0 <= version <= _HIGHEST_VALUE:
        raise ProtocolError(f"{kind.__name__} of version {version}")
    flexible = version >= _FIRST_FLEXIBLE
    return decode(kind, memoryview(value), _VERSION.size, version=version, flexible=flexible)
