"""The control records of a metadata log, and of its snapshots (KIP-595, KIP-630, KIP-853).

    log        LeaderChange at the start of each epoch, then KRaftVersion and Voters where they change
    snapshot   SnapshotHeader (KRaftVersion, Voters) | batches of metadata records | SnapshotFooter

A control batch holds nothing else. The key of a control record is its type; its value is the
message in version 0, which begins with that number. (Kafka: ControlRecordUtils.)
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from replication.errors import MetadataError, ProtocolError
from replication.wire.codec import decode, encode_whole
from replication.wire.schema import (
    array,
    define,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from storage.attributes import frozen
from storage.batch.record_batch import Batch
from storage.batch.records import (
    ControlRecordType,
    Record,
    control_record,
    control_type,
    decode_batch,
    encode_batch,
)
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset

VERSION: Final = 0
"""The version in which Kafka writes and reads each of these messages."""


@define(kw_only=True)
class LeaderChangeVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


@define(kw_only=True)
class LeaderChangeMessage:
    """The first record of an epoch: its leader, the voters, and those that voted for it."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


@define(kw_only=True)
class SnapshotHeaderRecord:
    version: int = int16()
    last_contained_log_timestamp: int = int64()
    """The time of the last record of the log that the snapshot contains."""


@define(kw_only=True)
class SnapshotFooterRecord:
    version: int = int16()


@define(kw_only=True)
class KRaftVersionRecord:
    """The level of the feature `kraft.version`: from 1 on, voters can be changed (KIP-853)."""

    version: int = int16()
    kraft_version: int = int16()


@define(kw_only=True)
class VoterEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@frozen(kw_only=True)
class KRaftVersionFeature:
    """The levels of `kraft.version` that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@define(kw_only=True)
class VotersRecordVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = struct(
        KRaftVersionFeature, default=KRaftVersionFeature()
    )


@define(kw_only=True)
class VotersRecord:
    """The whole set of voters, from here on."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


ControlRecord: TypeAlias = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

_TYPES: Final[Mapping[type[ControlRecord], ControlRecordType]] = MappingProxyType(
    {
        LeaderChangeMessage: ControlRecordType.LEADER_CHANGE,
        SnapshotHeaderRecord: ControlRecordType.SNAPSHOT_HEADER,
        SnapshotFooterRecord: ControlRecordType.SNAPSHOT_FOOTER,
        KRaftVersionRecord: ControlRecordType.KRAFT_VERSION,
        VotersRecord: ControlRecordType.KRAFT_VOTERS,
    }
)
_CLASSES: Final = {kind.value: message for message, kind in _TYPES.items()}


def control_batch_of(
    messages: Sequence[ControlRecord],
    *,
    wall_ms: int,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytearray:
    """Return one control batch, writable, because a log stamps offset and epoch where they stand."""
    assert messages, "a control batch has records"
    encoded = [
        control_record(
            _TYPES[type(message)],
            encode_whole(message, version=VERSION, flexible=True),
            timestamp=wall_ms,
        )
        for message in messages
    ]
    return bytearray(
        encode_batch(encoded, base_offset=base_offset, leader_epoch=leader_epoch, control=True)
    )


def control_records_in(batch: Batch) -> list[ControlRecord]:
    """Return the records of a control batch of a metadata log or snapshot.

    Raise MetadataError for one that does not parse, or has no place in them.
    """
    return [decode_message(record) for record in decode_batch(batch)]


def decode_message(record: Record) -> ControlRecord:
    """Return the message of a control record; raise MetadataError as `control_records_in` does."""
    kind = control_type(record)
    message = _CLASSES.get(kind)
    if message is None:
        raise MetadataError(
            f"a control record of type {kind} at offset {record.offset} of a metadata log:"
            " a newer version wrote it"
        )
    try:
        return decode(message, memoryview(record.value or b""), version=VERSION, flexible=True)
    except ProtocolError as error:
        raise MetadataError(f"the control record at offset {record.offset}: {error}") from error
