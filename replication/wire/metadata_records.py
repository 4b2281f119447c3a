"""The records of the cluster's metadata, as Apache Kafka 4.4 declares them (KIP-631).

    value of a record     1        the version of this frame      unsigned varint
                          API key  the type of the record         unsigned varint
                          version  of that type                   unsigned varint
                          ...      the message, always flexible

Rule 1: a class holds the fields of all versions, as in every message; a version that is written
leaves out those that it does not have. The level of `metadata.version` decides which version is
written (`replication.metadata.rules.records`).

Rule 2: in a change record, a field at its default (null, or a number such as `NO_LEADER_CHANGE`) is one
that does not change.

Rule 3: an unknown frame, type or version is refused by name (`MetadataError`), and so are bytes that a
message does not use: half of a decision must never be applied.

The file is long because Kafka has this many records.

(Kafka: the JSON schemas of these names in kafka-metadata, MetadataRecordType, MetadataRecordSerde.)
"""

from types import MappingProxyType
from typing import Final, TypeAlias, get_args

from replication.errors import MetadataError, ProtocolError
from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.codec import decode, encode_whole
from replication.wire.describe_client_quotas import EntityData
from replication.wire.primitives import read_uvarint
from replication.wire.schema import (
    Kind,
    array,
    boolean,
    define,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    string,
    uuid,
)
from storage.types import Buffer

NO_LEADER_CHANGE: Final = -2
"""The leader of a partition change that leaves the leader as it was (LeaderConstants)."""
NO_RECOVERY_CHANGE: Final = -1
"""The recovery state of a partition change that leaves it as it was (LeaderRecoveryState)."""


@define(kw_only=True)
class RegisterBrokerRecord:
    """A broker's new incarnation; its epoch is the offset of this record."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[Endpoint] = array(Endpoint)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+", default=None)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(Kind.UUID, "3+", tag=0)
    """The ids of the online log directories (KIP-858)."""
    cordoned_log_dirs: list[bytes] | None = array(
        Kind.UUID, "4+", nullable="4+", null_by_default=True, tag=1
    )
    """The ids of the cordoned log directories (KIP-1066); None before the broker has said."""


@define(kw_only=True)
class UnregisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()


@define(kw_only=True)
class TopicRecord:
    name: str = string()
    topic_id: bytes = uuid()


@define(kw_only=True)
class PartitionRecord:
    """A whole partition."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(Kind.INT32)
    isr: list[int] = array(Kind.INT32)
    removing_replicas: list[int] = array(Kind.INT32)
    adding_replicas: list[int] = array(Kind.INT32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(Kind.UUID, "1+")
    """The log directory of each replica, in the order of `replicas` (KIP-858)."""
    eligible_leader_replicas: list[int] | None = array(
        Kind.INT32, "2+", nullable="2+", null_by_default=True, tag=1
    )
    last_known_elr: list[int] | None = array(
        Kind.INT32, "2+", nullable="2+", null_by_default=True, tag=2
    )


@define(kw_only=True)
class ConfigRecord:
    """A configuration key of a resource; a value of None removes the key."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+", default="")


@define(kw_only=True)
class PartitionChangeRecord:
    """The changed fields of a partition.

    Its epochs are not among them: applying the record bumps the partition epoch, and the leader epoch
    where it names a leader.
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(Kind.INT32, nullable="0+", null_by_default=True, tag=0)
    leader: int = int32(default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = array(Kind.INT32, nullable="0+", null_by_default=True, tag=2)
    removing_replicas: list[int] | None = array(
        Kind.INT32, nullable="0+", null_by_default=True, tag=3
    )
    adding_replicas: list[int] | None = array(
        Kind.INT32, nullable="0+", null_by_default=True, tag=4
    )
    leader_recovery_state: int = int8(default=NO_RECOVERY_CHANGE, tag=5)
    directories: list[bytes] | None = array(
        Kind.UUID, "1+", nullable="1+", null_by_default=True, tag=8
    )
    """The log directory of each replica, in the order of the replicas after the change."""
    eligible_leader_replicas: list[int] | None = array(
        Kind.INT32, "2+", nullable="2+", null_by_default=True, tag=6
    )
    last_known_elr: list[int] | None = array(
        Kind.INT32, "2+", nullable="2+", null_by_default=True, tag=7
    )


@define(kw_only=True)
class FenceBrokerRecord:
    """A fenced broker, as Kafka wrote it before BrokerRegistrationChangeRecord (KIP-841)."""

    id_: int = int32()
    epoch: int = int64()


@define(kw_only=True)
class UnfenceBrokerRecord:
    """An unfenced broker, as Kafka wrote it before BrokerRegistrationChangeRecord (KIP-841)."""

    id_: int = int32()
    epoch: int = int64()


@define(kw_only=True)
class RemoveTopicRecord:
    topic_id: bytes = uuid()


@define(kw_only=True)
class DelegationTokenRecord:
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(Kind.STRING)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@define(kw_only=True)
class UserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()
    salt: bytes = octets()
    stored_key: bytes = octets()
    server_key: bytes = octets()
    iterations: int = int32()


@define(kw_only=True)
class FeatureLevelRecord:
    """The finalized level of a feature (KIP-584); 0 removes it."""

    name: str = string()
    feature_level: int = int16()


@define(kw_only=True)
class ClientQuotaRecord:
    """One quota of an entity (KIP-546)."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@define(kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids was handed to a broker; the next block begins here."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@define(kw_only=True)
class BrokerRegistrationChangeRecord:
    """The changed fields of a registered broker."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    """1 for a broker that is fenced, -1 for one that is no longer, 0 for no change."""
    in_controlled_shutdown: int = int8("1+", tag=1)
    """1 for a broker that shuts down, 0 for no change."""
    log_dirs: list[bytes] = array(Kind.UUID, "2+", tag=2)
    """The ids of the online log directories; empty for no change."""
    cordoned_log_dirs: list[bytes] | None = array(
        Kind.UUID, "3+", nullable="3+", null_by_default=True, tag=3
    )


@define(kw_only=True)
class AccessControlEntryRecord:
    id_: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@define(kw_only=True)
class RemoveAccessControlEntryRecord:
    id_: bytes = uuid()


@define(kw_only=True)
class NoOpRecord:
    """A record that changes nothing: it moves the log's end on (KIP-835)."""


@define(kw_only=True)
class ZkMigrationStateRecord:
    """The state of a migration from ZooKeeper (KIP-866)."""

    zk_migration_state: int = int8()


@define(kw_only=True)
class RemoveUserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()


@define(kw_only=True)
class BeginTransactionRecord:
    """The beginning of records that count together, in several batches (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tag=0)


@define(kw_only=True)
class EndTransactionRecord:
    """The end of a transaction: all its records count from here on."""


@define(kw_only=True)
class AbortTransactionRecord:
    """The end of a transaction none of whose records count."""

    reason: str | None = string(nullable="0+", default=None, tag=0)


@define(kw_only=True)
class RemoveDelegationTokenRecord:
    token_id: str = string()


@define(kw_only=True)
class RegisterControllerRecord:
    """A controller's incarnation and its addresses (KIP-919)."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[Endpoint] = array(Endpoint)
    features: list[Feature] = array(Feature)


@define(kw_only=True)
class ClearElrRecord:
    """The eligible leader replicas of a topic are none; of every topic, where the name is empty."""

    topic_name: str = string()


@define(kw_only=True)
class UnregisterControllerRecord:
    controller_id: int = int32()


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

API_KEYS: Final = MappingProxyType[type[MetadataRecord], int](
    {
        RegisterBrokerRecord: 0,
        UnregisterBrokerRecord: 1,
        TopicRecord: 2,
        PartitionRecord: 3,
        ConfigRecord: 4,
        PartitionChangeRecord: 5,
        FenceBrokerRecord: 7,
        UnfenceBrokerRecord: 8,
        RemoveTopicRecord: 9,
        DelegationTokenRecord: 10,
        UserScramCredentialRecord: 11,
        FeatureLevelRecord: 12,
        ClientQuotaRecord: 14,
        ProducerIdsRecord: 15,
        BrokerRegistrationChangeRecord: 17,
        AccessControlEntryRecord: 18,
        RemoveAccessControlEntryRecord: 19,
        NoOpRecord: 20,
        ZkMigrationStateRecord: 21,
        RemoveUserScramCredentialRecord: 22,
        BeginTransactionRecord: 23,
        EndTransactionRecord: 24,
        AbortTransactionRecord: 25,
        RemoveDelegationTokenRecord: 26,
        RegisterControllerRecord: 27,
        ClearElrRecord: 28,
        UnregisterControllerRecord: 29,
    }
)
HIGHEST_VERSIONS: Final = MappingProxyType[type[MetadataRecord], int](
    dict.fromkeys(API_KEYS, 0)
    | {
        RegisterBrokerRecord: 4,
        PartitionRecord: 2,
        PartitionChangeRecord: 2,
        BrokerRegistrationChangeRecord: 3,
    }
)
"""The highest version of each record in Kafka 4.4; the lowest is 0."""
assert set(API_KEYS) == set(get_args(MetadataRecord)), "every record has an API key"

_FRAME_VERSION: Final = 1
_FRAMES: Final = {
    kind: [bytes((_FRAME_VERSION, key, version)) for version in range(HIGHEST_VERSIONS[kind] + 1)]
    for kind, key in API_KEYS.items()
}
_KNOWN: Final = {
    frame: (kind, version)
    for kind, frames in _FRAMES.items()
    for version, frame in enumerate(frames)
}


def encode_record(record: MetadataRecord, version: int) -> bytes:
    """Return the value of a record of the metadata log."""
    return _FRAMES[type(record)][version] + encode_whole(record, version=version, flexible=True)


def decode_record(data: Buffer) -> MetadataRecord:
    """Return the record in a value; MetadataError names one that is unknown or not readable."""
    view = memoryview(data)
    known = _KNOWN.get(bytes(view[:3]))
    if known is None:
        raise _unknown(view)
    kind, version = known
    try:
        return decode(kind, view, 3, version=version, flexible=True, fills_frame=True)
    except ProtocolError as error:
        raise MetadataError(f"a damaged metadata record: {error}") from error


def check_known(data: bytes) -> None:
    """Raise MetadataError unless the type and the version of the record in a value are known."""
    if data[:3] not in _KNOWN:
        raise _unknown(memoryview(data))


def _unknown(view: memoryview) -> MetadataError:
    """Return the error for a value whose frame, type or version is not known."""
    try:
        frame, position = read_uvarint(view, 0)
        api_key, position = read_uvarint(view, position)
        version, _ = read_uvarint(view, position)
    except (IndexError, ProtocolError):
        return MetadataError("bytes that are not a metadata record")
    if frame != _FRAME_VERSION:
        return MetadataError(f"a metadata record in frame version {frame}, not {_FRAME_VERSION}")
    kind = next((each for each, key in API_KEYS.items() if key == api_key), None)
    if kind is None:
        return MetadataError(f"unknown metadata record {api_key}: a newer version wrote this log")
    return MetadataError(
        f"{kind.__name__} of version {version}, but this release reads only"
        f" 0 to {HIGHEST_VERSIONS[kind]}: a newer version wrote this log"
    )
