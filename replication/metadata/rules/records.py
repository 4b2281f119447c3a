"""The records of the metadata log, named as in KIP-631, and their bytes.

    on disk    one msgpack array per record: [type, version, field, field, ...]
               one batch per decision: it is on disk whole or not at all, by its CRC

Rule 1: a released (type, version) never changes; `tests/` keeps one golden file for each. The type
is the name of the class, without "Record".
A new field makes a new version, stands at the end, and has a default, which is its value in a
record of an older version.

Rule 2: an unknown type or version is refused by name (`MetadataError`).

An absent (None) field of a *change* record means "as it was". A partition's epochs are
not in its change record: applying one bumps the partition epoch, and the leader epoch
where it names a leader, so that they can neither be skipped nor repeated.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, get_args

import attrs
import msgpack

from replication.errors import MetadataError
from replication.security.rules.acls import Acl
from storage.batch.records import Record, encode_batch
from storage.types import NO_OFFSET, Buffer, LeaderEpoch, Offset, TopicId, TopicPartition

METADATA_TOPIC = "__understudy_metadata"
METADATA_TOPIC_ID: TopicId = b"understudy-meta\x01"
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
MAX_RECORDS = 10_000
"""The records that one request may add (QuorumController.MAX_RECORDS_PER_USER_OP)."""
TOO_LARGE = "Unable to perform excessively large batch operation."
"""The error message, Kafka's own, for a request that would add more."""


class LeaderRecoveryState(enum.IntEnum):
    """Whether a leader elected outside the ISR may still have to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@attrs.frozen
class Endpoint:
    """The address of a broker's listener, with the listener's name."""

    name: str
    host: str
    port: int


def _numbers(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _ids(values: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(values)


def _numbers_or_none(values: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _endpoints(values: Iterable[Endpoint | Sequence[Any]]) -> tuple[Endpoint, ...]:
    return tuple(each if isinstance(each, Endpoint) else Endpoint(*each) for each in values)


def _recovery_or_none(value: int | None) -> LeaderRecoveryState | None:
    return None if value is None else LeaderRecoveryState(value)


@attrs.frozen
class ClusterRecord:
    """The first record of a log: the id of the cluster."""

    cluster_id: str


@attrs.frozen
class ControllerRecord:
    """The first record of each leader epoch: the id of its controller."""

    controller_id: int
    leader_epoch: LeaderEpoch


@attrs.frozen
class RegisterBrokerRecord:
    """A broker's new incarnation; its epoch is this record's own offset."""

    broker_id: int
    broker_epoch: Offset
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = attrs.field(converter=_endpoints)
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


@attrs.frozen
class UnregisterBrokerRecord:
    broker_id: int
    broker_epoch: Offset


@attrs.frozen
class BrokerRegistrationChangeRecord:
    """A registered broker was fenced, unfenced, or has begun a controlled shutdown."""

    broker_id: int
    broker_epoch: Offset
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None


@attrs.frozen
class BrokerDirectoriesRecord:
    """The log directories that a broker with several of them has online (KIP-858)."""

    broker_id: int
    broker_epoch: Offset
    online: tuple[bytes, ...] = attrs.field(converter=_ids)


@attrs.frozen
class ReplicaDirectoryRecord:
    """The log directory of a replica, for a broker with several directories."""

    topic_id: TopicId
    partition: int
    broker_id: int
    directory: bytes


@attrs.frozen
class TopicRecord:
    name: str
    topic_id: TopicId


@attrs.frozen
class PartitionRecord:
    """A whole partition. Version 2 added the fields of reassignments and of KIP-966."""

    topic_id: TopicId
    partition: int
    replicas: tuple[int, ...] = attrs.field(converter=_numbers)
    isr: tuple[int, ...] = attrs.field(converter=_numbers)
    leader: int
    leader_epoch: LeaderEpoch = 0
    partition_epoch: int = 0
    leader_recovery_state: LeaderRecoveryState = attrs.field(
        default=LeaderRecoveryState.RECOVERED, converter=LeaderRecoveryState
    )
    adding: tuple[int, ...] = attrs.field(default=(), converter=_numbers)
    removing: tuple[int, ...] = attrs.field(default=(), converter=_numbers)
    elr: tuple[int, ...] = attrs.field(default=(), converter=_numbers)
    last_known_elr: tuple[int, ...] = attrs.field(default=(), converter=_numbers)


@attrs.frozen
class PartitionChangeRecord:
    """The changed fields of a partition; `PartitionRegistration` describes them."""

    topic_id: TopicId
    partition: int
    isr: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)
    leader: int | None = None
    leader_recovery_state: LeaderRecoveryState | None = attrs.field(
        default=None, converter=_recovery_or_none
    )
    replicas: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)
    adding: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)
    removing: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)
    elr: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)
    last_known_elr: tuple[int, ...] | None = attrs.field(default=None, converter=_numbers_or_none)


@attrs.frozen
class RemoveTopicRecord:
    topic_id: TopicId


@attrs.frozen
class ConfigRecord:
    """A topic's configuration `key`; a `value` of None removes the override."""

    topic_id: TopicId
    key: str
    value: str | None


@attrs.frozen
class BrokerConfigRecord:
    """A broker's configuration `key`, as in `ConfigRecord`. A `broker_id` of None stands for every
    broker without a value of its own.
    """

    broker_id: int | None
    key: str
    value: str | None


@attrs.frozen
class GroupConfigRecord:
    """A consumer group's configuration `key`, as in `ConfigRecord`; the group need not exist."""

    group_id: str
    key: str
    value: str | None


@attrs.frozen
class ProducerIdsRecord:
    """A block of producer ids was handed to a broker; the next block begins here."""

    broker_id: int
    broker_epoch: Offset
    next_producer_id: int


@attrs.frozen
class FeatureLevelRecord:
    """The level of a feature that the whole cluster has (KIP-584)."""

    name: str
    level: int


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a client quota is for: types and names, sorted by type. A name of None is the default."""


def _entity(values: Iterable[Sequence[Any]]) -> QuotaEntity:
    return tuple((kind, name) for kind, name in values)


@attrs.frozen
class ClientQuotaRecord:
    """One quota of an entity (KIP-546); a `value` of None removes it."""

    entity: QuotaEntity = attrs.field(converter=_entity)
    key: str
    value: float | None


@attrs.frozen
class ScramCredentialRecord:
    """The SCRAM credential of a user (UserScramCredentialRecord, KIP-554)."""

    name: str
    mechanism: str
    salt: bytes
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)
    iterations: int


@attrs.frozen
class RemoveScramCredentialRecord:
    name: str
    mechanism: str


@attrs.frozen
class AclRecord:
    """An ACL (AccessControlEntryRecord)."""

    acl_id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @classmethod
    def of(cls, acl_id: bytes, acl: Acl) -> "AclRecord":
        return cls(acl_id, **attrs.asdict(acl))


@attrs.frozen
class RemoveAclRecord:
    acl_id: bytes


MetadataRecord: TypeAlias = (
    ClusterRecord
    | ControllerRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | BrokerDirectoriesRecord
    | ReplicaDirectoryRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | BrokerConfigRecord
    | GroupConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ScramCredentialRecord
    | RemoveScramCredentialRecord
    | AclRecord
    | RemoveAclRecord
)

_RECORD_TYPES: tuple[type[MetadataRecord], ...] = get_args(MetadataRecord)
_FORMER: dict[type[MetadataRecord], list[int]] = {PartitionRecord: [8], PartitionChangeRecord: [5]}
"""The number of fields in each former version of a record, from version 1 on."""


def _type_of(kind: type[MetadataRecord]) -> str:
    """Return the type on disk: `register_broker` for `RegisterBrokerRecord`."""
    words = re.findall("[A-Z][a-z]+", kind.__name__.removesuffix("Record"))
    return "_".join(words).lower()


def _versions_of(kind: type[MetadataRecord]) -> dict[int, int]:
    """Return the number of fields in each version; the last one is written."""
    return dict(enumerate([*_FORMER.get(kind, []), len(attrs.fields(kind))], start=1))


_TYPES = {kind: _type_of(kind) for kind in _RECORD_TYPES}
_KNOWN = {_type_of(kind): (kind, _versions_of(kind)) for kind in _RECORD_TYPES}


def encode_record(record: MetadataRecord) -> bytes:
    kind = _TYPES[type(record)]
    packed: bytes = msgpack.packb([kind, max(_KNOWN[kind][1]), *attrs.astuple(record)])
    return packed


def batch_of(records: Sequence[MetadataRecord], *, wall_ms: int) -> bytearray:
    """Return one batch, writable, because the log stamps offset and epoch where they stand."""
    assert records, "a batch has records"
    encoded = (
        Record(offset=NO_OFFSET, timestamp=wall_ms, key=None, value=encode_record(record))
        for record in records
    )
    return bytearray(encode_batch(encoded))


def decode_record(data: Buffer) -> MetadataRecord:
    """Return the record in `data`; MetadataError names one that is unknown or not readable."""
    try:
        kind, version, *fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MetadataError(f"a metadata record that is not msgpack: {error!r}") from error
    if not isinstance(kind, str) or kind not in _KNOWN:
        raise MetadataError(f"unknown metadata record {kind!r}: a newer version wrote this log")
    record_type, versions = _KNOWN[kind]
    if not isinstance(version, int) or version not in versions:
        raise MetadataError(
            f"metadata record {kind!r} of version {version!r}, but this release reads only "
            f"{sorted(versions)}: a newer version wrote this log"
        )
    if len(fields) != versions[version]:
        raise MetadataError(f"metadata record {kind!r} version {version}: {len(fields)} fields")
    try:
        return record_type(*fields)
    except (TypeError, ValueError) as error:
        raise MetadataError(f"metadata record {kind!r} version {version}: {error}") from error
