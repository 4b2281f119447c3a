"""The image: the state of the cluster after the metadata log up to one offset.

Rule 1: an image never changes. Applying records makes a new image, which shares all unchanged
parts with the old one. So a reader keeps its image for as long as it likes, and a comparison of
two images walks only the parts that are different objects.

Rule 2: epochs count here, in one place. A change to a partition bumps its partition
epoch; one that names a leader bumps its leader epoch too (PartitionRegistration.merge).

    image at 7      topics {a: A, b: B}
      + partition_change(b-0)
    image at 8      topics {a: A, b: B'}      A is shared; only b is looked at

The file is long because an image, its draft and its delta have the same parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from replication.errors import MetadataError
from replication.metadata.rules.levels import FEATURES, check_level
from replication.metadata.rules.records import LeaderRecoveryState
from replication.metadata.rules.security_image import (
    SECURITY_RECORDS,
    SecurityDraft,
    SecurityImage,
    SecurityRecord,
)
from replication.wire.api_versions import KRAFT_VERSION, METADATA_VERSION
from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.control_records import control_records_in
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.metadata_records import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    ZkMigrationStateRecord,
    decode_record,
)
from storage.attributes import frozen
from storage.batch.record_batch import Batch, walk
from storage.batch.records import decode_batch
from storage.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    Buffer,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

T = TypeVar("T")
MIN_INSYNC_REPLICAS = "min.insync.replicas"

MIGRATING: Final = bytes(16)
UNASSIGNED: Final = bytes(15) + b"\x01"
LOST: Final = bytes(15) + b"\x02"
"""The reserved directory ids (DirectoryId): an older broker did not name the replica's directory, it
is not known yet, and it is offline."""
_NOT_KNOWN: Final = frozenset({MIGRATING, UNASSIGNED})

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a client quota is for: types and names, sorted by type. A name of None is the default."""


@frozen
class BrokerRegistration:
    """One broker, as the controller knows it. A fenced one leads nothing (KIP-631)."""

    broker_id: int
    broker_epoch: Offset
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    """The ids of its online log directories; empty where it has named none (KIP-858)."""
    features: tuple[Feature, ...] = ()
    cordoned_directories: tuple[bytes, ...] | None = None
    """The ids of its cordoned log directories (KIP-1066); None where it has not said."""

    def has_online(self, directory: bytes | None) -> bool:
        """Return whether `directory` is online, as far as is known (DirectoryId.isOnline)."""
        if directory in (None, LOST):
            return directory is None
        return not self.directories or directory in self.directories

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((each for each in self.endpoints if each.name == listener), None)


@frozen
class PartitionRegistration:
    """One partition: its replicas, its ISR, its leader and its leader epoch.

    `replicas` in assignment order, the first preferred as leader. While it is reassigned
    they are the wanted ones and then those of `removing`; `adding` are those that it did
    not have before (KIP-455).

    `elr`, the eligible leader replicas, are not in sync but hold all committed records.
    `last_known_elr` is the last leader of a partition without one (KIP-966).
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica, in their order; empty where none is known (KIP-858)."""

    def directory(self, broker_id: int) -> bytes | None:
        """Return the log directory of the replica on `broker_id`, None where it is not known."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return None if directory in _NOT_KNOWN else directory
        return None

    def directories_of(self, replicas: Iterable[int]) -> list[bytes]:
        """Return the directories of these replicas; `UNASSIGNED` stands for one that is not known."""
        return [self.directory(each) or UNASSIGNED for each in replicas]

    def merge(self, change: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the partition after a change (PartitionRegistration.merge)."""
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        directories = self.directories
        if change.directories is not None:
            directories = _directories(change.directories)
        elif change.replicas is not None and directories:
            directories = tuple(self.directories_of(replicas))
        leads = change.leader != NO_LEADER_CHANGE
        state = change.leader_recovery_state
        return PartitionRegistration(
            replicas=replicas,
            isr=self.isr if change.isr is None else tuple(change.isr),
            leader=change.leader if leads else self.leader,
            leader_epoch=self.leader_epoch + leads,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=(
                self.leader_recovery_state
                if state == NO_RECOVERY_CHANGE
                else _recovery_state(state)
            ),
            adding=_changed(self.adding, change.adding_replicas),
            removing=_changed(self.removing, change.removing_replicas),
            elr=_changed(self.elr, change.eligible_leader_replicas),
            last_known_elr=_changed(self.last_known_elr, change.last_known_elr),
            directories=directories,
        )


def _changed(before: tuple[int, ...], after: Sequence[int] | None) -> tuple[int, ...]:
    return before if after is None else tuple(after)


def _directories(directories: Sequence[bytes]) -> tuple[bytes, ...]:
    return () if _NOT_KNOWN.issuperset(directories) else tuple(directories)


def _recovery_state(number: int) -> LeaderRecoveryState:
    try:
        return LeaderRecoveryState(number)
    except ValueError as error:
        raise MetadataError(f"leader recovery state {number} is not known") from error


def registration_of(record: PartitionRecord) -> PartitionRegistration:
    """Return the partition that a record describes."""
    return PartitionRegistration(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        leader_recovery_state=_recovery_state(record.leader_recovery_state),
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        directories=_directories(record.directories),
    )


@frozen
class ControllerRegistration:
    """A controller's addresses, and the levels of features that it supports (KIP-919)."""

    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: tuple[Feature, ...]


@frozen
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionRegistration] = attrs.Factory(dict)
    configs: Mapping[str, str] = attrs.Factory(dict)


@frozen
class MetadataImage:
    """The state of the cluster. `offset` is that of the last record applied, -1 before any;
    `leader_epoch` is that of the controller that appended it.
    """

    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    brokers: Mapping[int, BrokerRegistration] = attrs.Factory(dict)
    topics: Mapping[str, TopicImage] = attrs.Factory(dict)
    topic_names_by_id: Mapping[TopicId, str] = attrs.Factory(dict)
    next_producer_id: int = 0
    broker_configs: Mapping[int | None, Mapping[str, str]] = attrs.Factory(dict)
    """The configuration that was set at run time, by broker id; None stands for all brokers."""
    group_configs: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The configuration of consumer groups, by group; a group without any is left out."""
    client_metrics: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The configuration of subscriptions to clients' metrics (KIP-714), by name; nothing uses it."""
    feature_levels: Mapping[str, int] = attrs.Factory(dict)
    """The finalized levels of features, without those of level 0."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = attrs.Factory(dict)
    controllers: Mapping[int, ControllerRegistration] = attrs.Factory(dict)
    security: SecurityImage = attrs.Factory(SecurityImage)
    open_transaction: tuple[MetadataRecord, ...] | None = None
    """The records that wait for the end of a transaction (KIP-868); None outside of one."""

    def feature(self, name: str) -> int:
        """Return the finalized level of a feature in this cluster (KIP-584).

        Before a log has finalized a `metadata.version`, the highest level of each counts.
        """
        if METADATA_VERSION not in self.feature_levels:
            return FEATURES[name][1]
        return self.feature_levels.get(name, 0)

    @property
    def metadata_version(self) -> int:
        return self.feature(METADATA_VERSION)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def broker_epoch(self, broker_id: int) -> Offset | None:
        """Return the epoch of a live broker, which leaders compare with that of a fetch (KIP-903)."""
        broker = self.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_join_isr(self, broker_id: int) -> bool:
        """Return whether the broker is alive and not in controlled shutdown (KIP-841)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def is_in_place(self, partition: PartitionRegistration, broker_id: int) -> bool:
        """Return whether the log directory of that replica is online."""
        broker = self.brokers.get(broker_id)
        return broker is None or broker.has_online(partition.directory(broker_id))

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def topic_id(self, name: str) -> TopicId | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partitions(self) -> Iterator[tuple[TopicPartition, TopicId, PartitionRegistration]]:
        """Yield every partition, by topic name and number."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for number in sorted(topic.partitions):
                yield TopicPartition(name, number), topic.topic_id, topic.partitions[number]

    def apply(self, record: MetadataRecord) -> "MetadataImage":
        """Return the image after `record`, which stands at the next offset."""
        return self.apply_all([record], offset=self.offset + 1, leader_epoch=self.leader_epoch)

    def apply_all(
        self, records: Iterable[MetadataRecord], *, offset: Offset, leader_epoch: LeaderEpoch
    ) -> "MetadataImage":
        """Return the image after `records`, the last of which stands at `offset`."""
        draft = _Draft(self)
        for record in records:
            draft.apply(record)
        return draft.finish(offset=offset, leader_epoch=leader_epoch)


class _Draft:
    """An image that is still being written: each part is copied when it is first changed."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._next_producer_id = base.next_producer_id
        self._broker_configs = base.broker_configs
        self._group_configs: dict[str, Mapping[str, str]] | None = None
        self._client_metrics: dict[str, Mapping[str, str]] | None = None
        self._feature_levels = base.feature_levels
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._security: SecurityDraft | None = None
        self._controllers = base.controllers
        self._transaction = None if base.open_transaction is None else [*base.open_transaction]
        self._brokers = dict(base.brokers)
        self._topics = dict(base.topics)
        self._names = dict(base.topic_names_by_id)
        self._touched: dict[TopicId, tuple[dict[int, PartitionRegistration], dict[str, str]]] = {}

    def apply(self, record: MetadataRecord) -> None:
        """Apply a record, or keep it until the transaction that it belongs to has ended."""
        match record:
            case BeginTransactionRecord():
                if self._transaction is not None:
                    raise MetadataError("a metadata transaction begins within another")
                self._transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if self._transaction is None:
                    raise MetadataError("a metadata transaction ends that has not begun")
                ended, self._transaction = self._transaction, None
                if isinstance(record, EndTransactionRecord):
                    for each in ended:
                        self._apply(each)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        _RULES[type(record)](self, record)

    def add_topic(self, record: TopicRecord) -> None:
        if record.name in self._topics:
            raise MetadataError(f"topic {record.name} is created twice")
        self._topics[record.name] = TopicImage(record.name, record.topic_id)
        self._names[record.topic_id] = record.name

    def add_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = _broker_of(record)

    def remove_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._brokers[record.broker_id]

    def fence_broker(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> None:
        broker = self._broker(record.id_, record.epoch)
        fenced = isinstance(record, FenceBrokerRecord)
        self._brokers[record.id_] = attrs.evolve(broker, fenced=fenced)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def set_security(self, record: SecurityRecord) -> None:
        self._security = self._security or SecurityDraft(self._base.security)
        self._security.apply(record)

    def pass_over(self, record: NoOpRecord | ZkMigrationStateRecord) -> None:
        """Change nothing: there is no ZooKeeper any more, whatever the state of the migration is."""

    def finish(self, *, offset: Offset, leader_epoch: LeaderEpoch) -> MetadataImage:
        for topic_id, (partitions, configs) in self._touched.items():
            name = self._names[topic_id]
            self._topics[name] = TopicImage(name, topic_id, partitions, configs)
        return MetadataImage(
            offset=offset,
            leader_epoch=leader_epoch,
            brokers=self._brokers,
            topics=self._topics,
            topic_names_by_id=self._names,
            next_producer_id=self._next_producer_id,
            broker_configs=self._broker_configs,
            group_configs=(
                self._base.group_configs if self._group_configs is None else self._group_configs
            ),
            client_metrics=(
                self._base.client_metrics if self._client_metrics is None else self._client_metrics
            ),
            feature_levels=self._feature_levels,
            client_quotas=(
                self._base.client_quotas if self._client_quotas is None else self._client_quotas
            ),
            controllers=self._controllers,
            security=self._base.security if self._security is None else self._security.finish(),
            open_transaction=None if self._transaction is None else tuple(self._transaction),
        )

    def set_feature(self, record: FeatureLevelRecord) -> None:
        name, level = record.name, record.feature_level
        if name == KRAFT_VERSION:
            return  # Kafka 4.0 may have written one; control records have the level (KAFKA-18979)
        check_level(record)
        others = {key: each for key, each in self._feature_levels.items() if key != name}
        self._feature_levels = others | ({name: level} if level else {})

    def set_controller(self, record: RegisterControllerRecord | UnregisterControllerRecord) -> None:
        number = record.controller_id
        others = {key: each for key, each in self._controllers.items() if key != number}
        if isinstance(record, RegisterControllerRecord):
            others[number] = ControllerRegistration(
                controller_id=number,
                incarnation_id=record.incarnation_id,
                zk_migration_ready=record.zk_migration_ready,
                endpoints=tuple(record.end_points),
                features=tuple(record.features),
            )
        self._controllers = others

    def set_client_quota(self, record: ClientQuotaRecord) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self._base.client_quotas)
        entity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
        quotas = dict(self._client_quotas.pop(entity, {}))
        _set(quotas, record.key, None if record.remove else record.value)
        if quotas:
            self._client_quotas[entity] = quotas

    def _broker(self, broker_id: int, epoch: Offset) -> BrokerRegistration:
        """Return the registration; raise MetadataError where that incarnation is not registered."""
        broker = self._brokers.get(broker_id)
        if broker is None or broker.broker_epoch != epoch:
            raise MetadataError(f"broker {broker_id} has no epoch {epoch}")
        return broker

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self._brokers[record.broker_id] = attrs.evolve(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown or record.in_controlled_shutdown > 0
            ),
            directories=tuple(record.log_dirs) or broker.directories,
            cordoned_directories=broker.cordoned_directories
            if cordoned is None
            else tuple(cordoned),
        )

    def _touch(self, topic_id: TopicId) -> tuple[dict[int, PartitionRegistration], dict[str, str]]:
        if topic_id not in self._touched:
            name = self._names.get(topic_id)
            if name is None:
                raise MetadataError(f"no topic has the id {topic_id.hex()}")
            topic = self._topics[name]
            self._touched[topic_id] = dict(topic.partitions), dict(topic.configs)
        return self._touched[topic_id]

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        name = self._names.pop(topic_id, None)
        if name is None:
            raise MetadataError(f"no topic has the id {topic_id.hex()}")
        del self._topics[name]
        self._touched.pop(topic_id, None)

    def set_partition(self, record: PartitionRecord | PartitionChangeRecord) -> None:
        partitions, _ = self._touch(record.topic_id)
        number = record.partition_id
        if isinstance(record, PartitionRecord):
            partitions[number] = registration_of(record)
        elif number in partitions:
            partitions[number] = partitions[number].merge(record)
        else:
            raise MetadataError(f"no partition {number} in {record.topic_id.hex()}")

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of a topic, or of all if the name is empty (KIP-966)."""
        for name in [record.topic_name] if record.topic_name else list(self._names.values()):
            partitions, _ = self._touch(self._topic(name).topic_id)
            for number, each in partitions.items():
                if each.elr or each.last_known_elr:
                    partitions[number] = each.merge(
                        PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    )

    def _topic(self, name: str) -> TopicImage:
        if name not in self._topics:
            raise MetadataError(f"no topic has the name {name}")
        return self._topics[name]

    def set_config(self, record: ConfigRecord) -> None:
        match record.resource_type:
            case ConfigResourceType.TOPIC:
                _, configs = self._touch(self._topic(record.resource_name).topic_id)
                _set(configs, record.name, record.value)
            case ConfigResourceType.BROKER:
                self._set_broker_config(record)
            case ConfigResourceType.GROUP:
                if self._group_configs is None:
                    self._group_configs = dict(self._base.group_configs)
                _configure(self._group_configs, record)
            case ConfigResourceType.CLIENT_METRICS:
                if self._client_metrics is None:
                    self._client_metrics = dict(self._base.client_metrics)
                _configure(self._client_metrics, record)
            case other:
                # The next snapshot would lose it.
                raise MetadataError(
                    f"a ConfigRecord of resource type {other}: this release has no such feature"
                )

    def _set_broker_config(self, record: ConfigRecord) -> None:
        name = record.resource_name
        if name and not (name.isascii() and name.isdigit()):
            raise MetadataError(f"a ConfigRecord of broker {name!r}")
        broker_id = int(name) if name else None
        configs = dict(self._broker_configs.get(broker_id, {}))
        _set(configs, record.name, record.value)
        # Rare enough to copy the rest each time: there is one of these for each broker at most.
        others = {key: each for key, each in self._broker_configs.items() if key != broker_id}
        self._broker_configs = others | ({broker_id: configs} if configs else {})


def _broker_of(record: RegisterBrokerRecord) -> BrokerRegistration:
    cordoned = record.cordoned_log_dirs
    return BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(record.end_points),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        features=tuple(record.features),
        cordoned_directories=None if cordoned is None else tuple(cordoned),
    )


_RULES: Final[Mapping[type[MetadataRecord], Callable[[_Draft, Any], None]]] = MappingProxyType(
    {
        PartitionRecord: _Draft.set_partition,
        PartitionChangeRecord: _Draft.set_partition,
        TopicRecord: _Draft.add_topic,
        RemoveTopicRecord: _Draft.remove_topic,
        ConfigRecord: _Draft.set_config,
        RegisterBrokerRecord: _Draft.add_broker,
        UnregisterBrokerRecord: _Draft.remove_broker,
        BrokerRegistrationChangeRecord: _Draft.change_broker,
        FenceBrokerRecord: _Draft.fence_broker,
        UnfenceBrokerRecord: _Draft.fence_broker,
        ProducerIdsRecord: _Draft.set_producer_ids,
        FeatureLevelRecord: _Draft.set_feature,
        ClientQuotaRecord: _Draft.set_client_quota,
        ClearElrRecord: _Draft.clear_elr,
        RegisterControllerRecord: _Draft.set_controller,
        UnregisterControllerRecord: _Draft.set_controller,
        NoOpRecord: _Draft.pass_over,
        ZkMigrationStateRecord: _Draft.pass_over,
    }
    | dict.fromkeys(SECURITY_RECORDS, _Draft.set_security)
)
"""The change that each record makes to an image."""


def _configure(resources: dict[str, Mapping[str, str]], record: ConfigRecord) -> None:
    """Set a key of one of `resources`; one without any is left out."""
    configs = dict(resources.pop(record.resource_name, {}))
    _set(configs, record.name, record.value)
    if configs:
        resources[record.resource_name] = configs


def _set(configs: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        configs.pop(key, None)
    else:
        configs[key] = value


def apply_batches(image: MetadataImage, batches: Buffer) -> MetadataImage:
    """Return the image after the records of `batches` that lie beyond it.

    A batch is one decision of the controller, and applied at once, so that no image contains half
    of a decision. A partial batch at the end is left out. Raise MetadataError for a record that
    this release does not know.
    """
    view = memoryview(batches)
    for position, header in walk(view):
        if header.last_offset <= image.offset:
            continue
        batch = view[position : position + header.size]
        records: list[MetadataRecord] = []
        if header.is_control:
            control_records_in(batch)  # they change no metadata, but none may be unknown
        else:
            records = records_beyond(image, batch)
        epoch: LeaderEpoch = header.leader_epoch
        image = image.apply_all(records, offset=header.last_offset, leader_epoch=epoch)
    return image


def records_beyond(image: MetadataImage, batch: Batch) -> list[MetadataRecord]:
    """Return the records of one batch that `image` does not contain; it is no control batch."""
    return [
        decode_record(record.value)
        for record in decode_batch(batch)
        if record.offset > image.offset and record.value is not None
    ]


@frozen
class RemovedPartition:
    """A deleted partition, with its topic id: another topic may have the same name."""

    topic_partition: TopicPartition
    topic_id: TopicId


@frozen
class MetadataDelta:
    """The difference of two images. A topic that was deleted and created again between them is
    in both `removed` (its old id) and `changed`.
    """

    changed: frozenset[TopicPartition]
    removed: frozenset[RemovedPartition]
    reconfigured: frozenset[str]
    brokers: frozenset[int]
    reconfigured_brokers: frozenset[int | None]


def delta_between(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return the changes from `old` to `new`; shared topics are not compared."""
    changed: set[TopicPartition] = set()
    removed: set[RemovedPartition] = set()
    reconfigured: set[str] = set()
    for name in sorted(old.topics.keys() | new.topics.keys()):
        before, after = old.topics.get(name), new.topics.get(name)
        if before is after:
            continue
        if before is not None and (after is None or after.topic_id != before.topic_id):
            gone = (TopicPartition(name, number) for number in before.partitions)
            removed.update(RemovedPartition(each, before.topic_id) for each in gone)
            before = None
        if after is None:
            continue
        known = {} if before is None else before.partitions
        changed.update(
            TopicPartition(name, number)
            for number, partition in after.partitions.items()
            if known.get(number) != partition
        )
        if after.configs != ({} if before is None else before.configs):
            reconfigured.add(name)
    brokers = {
        broker_id
        for broker_id in old.brokers.keys() | new.brokers.keys()
        if old.brokers.get(broker_id) != new.brokers.get(broker_id)
    }
    reconfigured_brokers = {
        broker_id
        for broker_id in old.broker_configs.keys() | new.broker_configs.keys()
        # A key that is set to the same value counts as changed: its file is read again (KAFKA-14136).
        if old.broker_configs.get(broker_id) is not new.broker_configs.get(broker_id)
    }
    return MetadataDelta(
        frozenset(changed),
        frozenset(removed),
        frozenset(reconfigured),
        frozenset(brokers),
        frozenset(reconfigured_brokers),
    )
