"""The image at one offset, so that the log below it need not be kept (KIP-630).

    log        [0 1 2 3 4 5 6 7 8 9 10 ...      the image of all of it
    snapshot   (everything up to 6)             equals
    log                        [7 8 9 10 ...    the snapshot's, and the rest applied

Rule 1: a snapshot contains records: the fewest that make its image. So every record's version
and golden file count here too, and there is one way to read metadata.

Rule 2: configuration stands before the partitions: a record that sets `min.insync.replicas` clears
the eligible replicas, which follow from the old value (KIP-966).

The bytes around the records are those of `checkpoint.py`.
"""

from collections.abc import Iterator

import attrs

from replication.metadata.rules.checkpoint import (
    CheckpointReader,
    SnapshotVoters,
    checkpoint_batches,
)
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    TopicImage,
)
from replication.metadata.rules.records import (
    BrokerConfigRecord,
    BrokerDirectoriesRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    FeatureLevelRecord,
    GroupConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    ReplicaDirectoryRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from replication.wire.metadata import NO_LEADER
from storage.types import NO_OFFSET, OffsetAndEpoch

_NO_BROKER = -1


def snapshot_id(image: MetadataImage) -> OffsetAndEpoch:
    """Return the end offset and the epoch of a snapshot of `image`."""
    return OffsetAndEpoch(image.offset + 1, image.leader_epoch)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records that turn an empty image into `image`."""
    if image.cluster_id is not None:
        yield ClusterRecord(image.cluster_id)
    if image.controller_id != NO_LEADER:
        yield ControllerRecord(image.controller_id, image.leader_epoch)
    for name, level in sorted(image.feature_levels.items()):
        yield FeatureLevelRecord(name, level)
    for broker_id, configs in image.broker_configs.items():
        for key, value in sorted(configs.items()):
            yield BrokerConfigRecord(broker_id, key, value)
    for group_id, configs in sorted(image.group_configs.items()):
        for key, value in sorted(configs.items()):
            yield GroupConfigRecord(group_id, key, value)
    for entity, quotas in image.client_quotas.items():
        for key, quota in sorted(quotas.items()):
            yield ClientQuotaRecord(entity, key, quota)
    for broker_id in sorted(image.brokers):
        yield from _records_of_broker(image.brokers[broker_id])
    yield from image.security.records()
    for name in sorted(image.topics):
        yield from _records_of_topic(image.topics[name])
    # Only the beginning of the next block matters, not the owner of the last one.
    yield ProducerIdsRecord(_NO_BROKER, NO_OFFSET, image.next_producer_id)


def _records_of_broker(broker: BrokerRegistration) -> Iterator[MetadataRecord]:
    values = attrs.asdict(broker, recurse=False)
    directories = values.pop("directories")
    yield RegisterBrokerRecord(**values)
    if directories:
        yield BrokerDirectoriesRecord(broker.broker_id, broker.broker_epoch, directories)


def _records_of_topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.topic_id)
    for key, value in sorted(topic.configs.items()):
        yield ConfigRecord(topic.topic_id, key, value)
    for number in sorted(topic.partitions):
        values = attrs.asdict(topic.partitions[number], recurse=False)
        directories = values.pop("directories")
        yield PartitionRecord(topic_id=topic.topic_id, partition=number, **values)
        for broker_id, directory in directories:
            yield ReplicaDirectoryRecord(topic.topic_id, number, broker_id, directory)


def encode_snapshot(
    image: MetadataImage,
    *,
    wall_ms: int,
    last_timestamp_ms: int,
    voters: SnapshotVoters | None = None,
) -> Iterator[bytes | bytearray]:
    """Yield the batches of the snapshot's file."""
    return checkpoint_batches(
        map(encode_record, records_of(image)),
        leader_epoch=snapshot_id(image).leader_epoch,
        wall_ms=wall_ms,
        last_timestamp_ms=last_timestamp_ms,
        voters=voters,
    )


def decode_snapshot(reader: CheckpointReader, end: OffsetAndEpoch) -> MetadataImage:
    """Return the image at `end`; raise MetadataError where the file is damaged or another version
    wrote it.
    """
    return MetadataImage().apply_all(
        map(decode_record, reader.values()), offset=end.offset - 1, leader_epoch=end.leader_epoch
    )
