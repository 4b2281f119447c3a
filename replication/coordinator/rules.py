"""The topics of both coordinators, the partition of a key in them, and their keys and values.

    key, value    version i16 | a message in that version; a tombstone has no value
    partition     the hash of a group or transactional id, modulo the partitions of the topic

(GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor, MessageUtil.)
"""

import struct
from typing import Final, NamedTuple, TypeVar

from replication.errors import ErrorCode, ProtocolError
from replication.wire.codec import decode, encode

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"

Message = TypeVar("Message")

_VERSION: Final = struct.Struct(">h")
_WORD: Final = 1 << 32
_LEAST: Final = -(1 << 31)


class KeyAndValue(NamedTuple):
    """A record to write; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


def encode_versioned(message: object, version: int, *, flexible: bool = False) -> bytes:
    """Return a key or a value: its version, and the message in that version."""
    parts = encode(message, version=version, flexible=flexible)
    assert all(isinstance(part, bytes | memoryview) for part in parts), "nothing lies in a file"
    return b"".join([_VERSION.pack(version), *parts])  # type: ignore[list-item] # just asserted


def version_of(data: bytes | None) -> int:
    """Return the version of a key or a value; raise ProtocolError where there is none."""
    if data is None or len(data) < _VERSION.size:
        raise ProtocolError("a coordinator's record without a version")
    return int(_VERSION.unpack_from(data)[0])


def decode_versioned(
    kind: type[Message], data: bytes, version: int, *, flexible: bool = False
) -> Message:
    """Return the message of a key or a value of this version; raise ProtocolError without one."""
    return decode(kind, memoryview(data), _VERSION.size, version=version, flexible=flexible)


def write_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a request whose records could not be written: `error` is the log's.

    (Kafka: CoordinatorOperationExceptionHelper, TransactionStateManager.)
    """
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def partition_for(key: str, partitions: int) -> int:
    """Return Utils.abs(hash) % partitions; the only hash without a positive twin counts as 0."""
    value = java_hash(key)
    return (0 if value == _LEAST else abs(value)) % partitions


def java_hash(text: str) -> int:
    """Return java.lang.String.hashCode: over the UTF-16 code units, in 32 bits with a sign."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) % _WORD
    return value - _WORD if value >= -_LEAST else value
