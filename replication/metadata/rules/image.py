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

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar, assert_never

import attrs

from replication.errors import MetadataError
from replication.metadata.rules.records import (
    AclRecord,
    BrokerConfigRecord,
    BrokerDirectoriesRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    Endpoint,
    FeatureLevelRecord,
    GroupConfigRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAclRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ReplicaDirectoryRecord,
    ScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
)
from replication.metadata.rules.security_image import SecurityDraft, SecurityImage, SecurityRecord
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KAFKA_4_4,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.metadata import NO_LEADER
from storage.batch.record_batch import walk
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
FEATURES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
        GROUP_VERSION: (0, 1),
        METADATA_VERSION: (KAFKA_4_4, KAFKA_4_4),
        TRANSACTION_VERSION: (0, 2),
    }
)
"""The features of this release, and their lowest and highest level; the highest is the default."""


@attrs.frozen
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
    """The ids of its online log directories; none where it has only one directory (KIP-858)."""

    def has_online(self, directory: bytes | None) -> bool:
        """Return whether `directory` is online, as far as is known (DirectoryId.isOnline)."""
        return directory is None or not self.directories or directory in self.directories

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((each for each in self.endpoints if each.name == listener), None)


@attrs.frozen
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
    directories: tuple[tuple[int, bytes], ...] = ()
    """Broker and log directory, for replicas whose brokers have said where they lie."""

    def directory(self, broker_id: int) -> bytes | None:
        """Return the log directory of the replica on `broker_id`, None where it is not known."""
        return next((each for broker, each in self.directories if broker == broker_id), None)

    def placed(self, record: ReplicaDirectoryRecord) -> "PartitionRegistration":
        places = dict(self.directories) | {record.broker_id: record.directory}
        return attrs.evolve(self, directories=tuple(sorted(places.items())))

    def merge(self, change: PartitionChangeRecord) -> "PartitionRegistration":
        changed = {
            name: value for name in _CHANGEABLE if (value := getattr(change, name)) is not None
        }
        if change.replicas is not None:
            # The directories of removed replicas are dropped.
            staying = (each for each in self.directories if each[0] in change.replicas)
            changed["directories"] = tuple(staying)
        return attrs.evolve(
            self,
            leader_epoch=self.leader_epoch + ("leader" in changed),
            partition_epoch=self.partition_epoch + 1,
            **changed,
        )


_CHANGEABLE = (
    "isr",
    "leader",
    "leader_recovery_state",
    "replicas",
    "adding",
    "removing",
    "elr",
    "last_known_elr",
)


@attrs.frozen
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionRegistration] = attrs.Factory(dict)
    configs: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen
class MetadataImage:
    """The state of the cluster. `offset` is that of the last record applied, -1 before any;
    `leader_epoch` is that of the controller that appended it.
    """

    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    cluster_id: str | None = None
    controller_id: int = NO_LEADER
    brokers: Mapping[int, BrokerRegistration] = attrs.Factory(dict)
    topics: Mapping[str, TopicImage] = attrs.Factory(dict)
    topic_names_by_id: Mapping[TopicId, str] = attrs.Factory(dict)
    next_producer_id: int = 0
    broker_configs: Mapping[int | None, Mapping[str, str]] = attrs.Factory(dict)
    """The configuration that was set at run time, by broker id; None stands for all brokers."""
    group_configs: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The configuration of consumer groups, by group; a group without any is left out."""
    feature_levels: Mapping[str, int] = attrs.Factory(dict)
    """The levels of features that were set to less than the highest."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = attrs.Factory(dict)
    security: SecurityImage = attrs.Factory(SecurityImage)

    def feature(self, name: str) -> int:
        """Return the level of a feature in this cluster (KIP-584)."""
        return self.feature_levels.get(name, FEATURES[name][1])

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
        self._cluster_id = base.cluster_id
        self._controller_id = base.controller_id
        self._next_producer_id = base.next_producer_id
        self._broker_configs = base.broker_configs
        self._group_configs: dict[str, Mapping[str, str]] | None = None
        self._feature_levels = base.feature_levels
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._security: SecurityDraft | None = None
        self._brokers = dict(base.brokers)
        self._topics = dict(base.topics)
        self._names = dict(base.topic_names_by_id)
        self._touched: dict[TopicId, tuple[dict[int, PartitionRegistration], dict[str, str]]] = {}

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case ClusterRecord():
                self._cluster_id = record.cluster_id
            case ControllerRecord():
                self._controller_id = record.controller_id
            case RegisterBrokerRecord():
                values = attrs.asdict(record, recurse=False)
                self._brokers[record.broker_id] = BrokerRegistration(**values)
            case (
                UnregisterBrokerRecord()
                | BrokerRegistrationChangeRecord()
                | BrokerDirectoriesRecord()
            ):
                self._change_broker(record)
            case TopicRecord():
                if record.name in self._topics:
                    raise MetadataError(f"topic {record.name} is created twice")
                self._topics[record.name] = TopicImage(record.name, record.topic_id)
                self._names[record.topic_id] = record.name
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case PartitionRecord() | PartitionChangeRecord() | ReplicaDirectoryRecord():
                self._set_partition(record)
            case ConfigRecord():
                self._set_config(record)
            case (
                BrokerConfigRecord()
                | GroupConfigRecord()
                | FeatureLevelRecord()
                | ClientQuotaRecord()
                | ScramCredentialRecord()
                | RemoveScramCredentialRecord()
                | AclRecord()
                | RemoveAclRecord()
            ):
                self._set_for_all(record)
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case never:
                assert_never(never)

    def finish(self, *, offset: Offset, leader_epoch: LeaderEpoch) -> MetadataImage:
        for topic_id, (partitions, configs) in self._touched.items():
            name = self._names[topic_id]
            self._topics[name] = TopicImage(name, topic_id, partitions, configs)
        return MetadataImage(
            offset=offset,
            leader_epoch=leader_epoch,
            cluster_id=self._cluster_id,
            controller_id=self._controller_id,
            brokers=self._brokers,
            topics=self._topics,
            topic_names_by_id=self._names,
            next_producer_id=self._next_producer_id,
            broker_configs=self._broker_configs,
            group_configs=(
                self._base.group_configs if self._group_configs is None else self._group_configs
            ),
            feature_levels=self._feature_levels,
            client_quotas=(
                self._base.client_quotas if self._client_quotas is None else self._client_quotas
            ),
            security=self._base.security if self._security is None else self._security.finish(),
        )

    def _set_for_all(
        self,
        record: BrokerConfigRecord
        | GroupConfigRecord
        | FeatureLevelRecord
        | ClientQuotaRecord
        | SecurityRecord,
    ) -> None:
        if isinstance(record, BrokerConfigRecord):
            self._set_broker_config(record)
        elif isinstance(record, GroupConfigRecord):
            self._set_group_config(record)
        elif isinstance(record, FeatureLevelRecord):
            self._set_feature(record)
        elif isinstance(record, ClientQuotaRecord):
            self._set_client_quota(record)
        else:
            self._security = self._security or SecurityDraft(self._base.security)
            self._security.apply(record)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        if record.name not in FEATURES:
            raise MetadataError(f"feature {record.name}: a newer version wrote this log")
        lowest, highest = FEATURES[record.name]
        if not lowest <= record.level <= highest:
            raise MetadataError(
                f"feature {record.name} of level {record.level}, but this release knows"
                f" {lowest} to {highest}: a newer version wrote this log"
            )
        others = {key: each for key, each in self._feature_levels.items() if key != record.name}
        changed = {record.name: record.level} if record.level != highest else {}
        self._feature_levels = others | changed

    def _set_client_quota(self, record: ClientQuotaRecord) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self._base.client_quotas)
        quotas = dict(self._client_quotas.pop(record.entity, {}))
        _set(quotas, record.key, record.value)
        if quotas:
            self._client_quotas[record.entity] = quotas

    def _change_broker(
        self,
        record: UnregisterBrokerRecord | BrokerRegistrationChangeRecord | BrokerDirectoriesRecord,
    ) -> None:
        broker = self._brokers.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise MetadataError(f"broker {record.broker_id} has no epoch {record.broker_epoch}")
        if isinstance(record, UnregisterBrokerRecord):
            del self._brokers[record.broker_id]
            return
        if isinstance(record, BrokerDirectoriesRecord):
            self._brokers[record.broker_id] = attrs.evolve(broker, directories=record.online)
            return
        leaving = record.in_controlled_shutdown
        self._brokers[record.broker_id] = attrs.evolve(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if leaving is None else leaving,
        )

    def _touch(self, topic_id: TopicId) -> tuple[dict[int, PartitionRegistration], dict[str, str]]:
        if topic_id not in self._touched:
            name = self._names.get(topic_id)
            if name is None:
                raise MetadataError(f"no topic has the id {topic_id.hex()}")
            topic = self._topics[name]
            self._touched[topic_id] = dict(topic.partitions), dict(topic.configs)
        return self._touched[topic_id]

    def _remove_topic(self, topic_id: TopicId) -> None:
        name = self._names.pop(topic_id, None)
        if name is None:
            raise MetadataError(f"no topic has the id {topic_id.hex()}")
        del self._topics[name]
        self._touched.pop(topic_id, None)

    def _set_partition(
        self, record: PartitionRecord | PartitionChangeRecord | ReplicaDirectoryRecord
    ) -> None:
        partitions, _ = self._touch(record.topic_id)
        if not isinstance(record, PartitionRecord):
            if record.partition not in partitions:
                raise MetadataError(f"no partition {record.partition} in {record.topic_id.hex()}")
            partition = partitions[record.partition]
            if isinstance(record, PartitionChangeRecord):
                partitions[record.partition] = partition.merge(record)
            else:
                partitions[record.partition] = partition.placed(record)
            return
        values = attrs.asdict(record, recurse=False)
        del values["topic_id"], values["partition"]
        partitions[record.partition] = PartitionRegistration(**values)

    def _set_config(self, record: ConfigRecord) -> None:
        _, configs = self._touch(record.topic_id)
        _set(configs, record.key, record.value)
        if record.key == MIN_INSYNC_REPLICAS:
            self._forget_eligible(record.topic_id)

    def _set_group_config(self, record: GroupConfigRecord) -> None:
        if self._group_configs is None:
            self._group_configs = dict(self._base.group_configs)
        configs = dict(self._group_configs.pop(record.group_id, {}))
        _set(configs, record.key, record.value)
        if configs:
            self._group_configs[record.group_id] = configs

    def _set_broker_config(self, record: BrokerConfigRecord) -> None:
        configs = dict(self._broker_configs.get(record.broker_id, {}))
        _set(configs, record.key, record.value)
        # Rare enough to copy the rest each time: there is one of these for each broker at most.
        others = {
            key: each for key, each in self._broker_configs.items() if key != record.broker_id
        }
        self._broker_configs = others | ({record.broker_id: configs} if configs else {})
        if record.key == MIN_INSYNC_REPLICAS:
            for topic_id in self._names:
                self._forget_eligible(topic_id)

    def _forget_eligible(self, topic_id: TopicId) -> None:
        """Clear the ELRs of a topic: they follow from another minimum (ClearElrRecord).

        Where there is no leader nothing is committed by any minimum, and the ELR stays.
        """
        partitions, _ = self._touch(topic_id)
        for number, partition in partitions.items():
            if partition.leader != NO_LEADER:
                partitions[number] = attrs.evolve(partition, elr=())


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
        records: list[MetadataRecord] = []
        if not header.is_control:  # such a batch changes the offset and the epoch only
            records = [
                decode_record(record.value)
                for record in decode_batch(view[position : position + header.size])
                if record.offset > image.offset and record.value is not None
            ]
        epoch: LeaderEpoch = header.leader_epoch
        image = image.apply_all(records, offset=header.last_offset, leader_epoch=epoch)
    return image


@attrs.frozen
class RemovedPartition:
    """A deleted partition, with its topic id: another topic may have the same name."""

    topic_partition: TopicPartition
    topic_id: TopicId


@attrs.frozen
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
