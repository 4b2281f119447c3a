"""The image at one offset, so that the log below it need not be kept (KIP-630).

    log        [0 1 2 3 4 5 6 7 8 9 10 ...      the image of all of it
    snapshot   (everything up to 6)             equals
    log                        [7 8 9 10 ...    the snapshot's, and the rest applied

Rule 1: a snapshot contains records: the fewest that make its image, in the versions that its level of
`metadata.version` writes. So there is one way to read metadata.

Rule 2: the levels of features stand first, `metadata.version` before the others.

The bytes around the records are those of `checkpoint.py`.
"""

from collections.abc import Iterator, Mapping

from replication.metadata.rules.checkpoint import (
    BOOTSTRAP_SNAPSHOT_ID,
    CheckpointReader,
    SnapshotVoters,
    checkpoint_batches,
)
from replication.metadata.rules.image import (
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    QuotaEntity,
    TopicImage,
)
from replication.metadata.rules.records import encode_all
from replication.wire.api_versions import METADATA_VERSION
from replication.wire.describe_client_quotas import EntityData
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    decode_record,
)
from storage.types import NO_OFFSET, OffsetAndEpoch, TopicId

_NO_BROKER = -1


def snapshot_id(image: MetadataImage) -> OffsetAndEpoch:
    """Return the end offset and the epoch of a snapshot of `image`."""
    return OffsetAndEpoch(image.offset + 1, image.leader_epoch)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records that turn an empty image into `image`."""
    assert image.open_transaction is None, "the records of a transaction are in no snapshot"
    for name, level in sorted(image.feature_levels.items(), key=_metadata_version_first):
        yield FeatureLevelRecord(name=name, feature_level=level)
    for number in sorted(image.controllers):
        yield _record_of_controller(image.controllers[number])
    for broker_id in sorted(image.brokers):
        yield _record_of_broker(image.brokers[broker_id])
    for name in sorted(image.topics):
        yield from _records_of_topic(image.topics[name])
    for broker, configs in image.broker_configs.items():
        name = "" if broker is None else str(broker)
        yield from config_records(ConfigResourceType.BROKER, name, configs)
    for group_id, configs in sorted(image.group_configs.items()):
        yield from config_records(ConfigResourceType.GROUP, group_id, configs)
    for name, configs in sorted(image.client_metrics.items()):
        yield from config_records(ConfigResourceType.CLIENT_METRICS, name, configs)
    for entity, quotas in image.client_quotas.items():
        for key, quota in sorted(quotas.items()):
            yield ClientQuotaRecord(entity=entity_data(entity), key=key, value=quota)
    yield from image.security.records()
    # Only the beginning of the next block matters, not the owner of the last one.
    yield ProducerIdsRecord(
        broker_id=_NO_BROKER, broker_epoch=NO_OFFSET, next_producer_id=image.next_producer_id
    )


def _metadata_version_first(feature: tuple[str, int]) -> tuple[bool, str]:
    return feature[0] != METADATA_VERSION, feature[0]


def config_records(
    resource_type: int, resource_name: str, configs: Mapping[str, str | None]
) -> Iterator[ConfigRecord]:
    """Yield the records that set configuration keys of a resource."""
    for name, value in sorted(configs.items()):
        yield ConfigRecord(
            resource_type=resource_type, resource_name=resource_name, name=name, value=value
        )


def entity_data(entity: QuotaEntity) -> list[EntityData]:
    """Return the entity of a quota as messages and records have it."""
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _record_of_controller(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=list(controller.endpoints),
        features=list(controller.features),
    )


def _record_of_broker(broker: BrokerRegistration) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_directories
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        incarnation_id=broker.incarnation_id,
        end_points=list(broker.endpoints),
        features=list(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def partition_record(
    topic_id: TopicId, number: int, partition: PartitionRegistration
) -> PartitionRecord:
    """Return the record of a whole partition (PartitionRegistration.toRecord)."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories_of(partition.replicas),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _records_of_topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    yield from config_records(ConfigResourceType.TOPIC, topic.name, topic.configs)
    for number in sorted(topic.partitions):
        yield partition_record(topic.topic_id, number, topic.partitions[number])


def encode_snapshot(
    image: MetadataImage,
    *,
    wall_ms: int,
    last_timestamp_ms: int,
    voters: SnapshotVoters | None = None,
) -> Iterator[bytes | bytearray]:
    """Yield the batches of the snapshot's file."""
    return checkpoint_batches(
        encode_all(records_of(image), level=image.metadata_version),
        leader_epoch=snapshot_id(image).leader_epoch,
        wall_ms=wall_ms,
        last_timestamp_ms=last_timestamp_ms,
        voters=voters,
    )


def decode_snapshot(reader: CheckpointReader, end: OffsetAndEpoch) -> MetadataImage:
    """Return the image at `end`; raise MetadataError where the file is damaged or another version
    wrote it.

    The records of a bootstrap snapshot are in no image before the first controller has appended them
    to the log: an image is that of its log on every node.
    """
    image = MetadataImage().apply_all(
        map(decode_record, reader.values()), offset=end.offset - 1, leader_epoch=end.leader_epoch
    )
    return MetadataImage(leader_epoch=end.leader_epoch) if end == BOOTSTRAP_SNAPSHOT_ID else image
