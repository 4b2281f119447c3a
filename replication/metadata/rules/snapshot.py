"""The image at one offset, so that the log below it need not be kept (KIP-630).

    log        [0 1 2 3 4 5 6 7 8 9 10 ...      the image of all of it
    snapshot   (everything up to 6)             equals
    log                        [7 8 9 10 ...    the snapshot's, and the rest applied

    bytes      CRC-32C of the rest, 4 bytes
               msgpack: ["metadata_snapshot", version, end offset, leader epoch, [record, ...]]

Rule 1: a snapshot contains records: the fewest that make its image. So every record's version
and golden file count here too, and there is one way to read metadata.

Rule 2: configuration stands before the partitions: a record that sets `min.insync.replicas` clears
the eligible replicas, which follow from the old value (KIP-966).

Rule 3: `end_offset` is the first offset that is not contained, as in Kafka's SnapshotId, and
`leader_epoch` is that of the last contained offset.
"""

import struct
from collections.abc import Iterator

import attrs
import crc32c
import msgpack

from replication.errors import MetadataError
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
from storage.types import NO_OFFSET, Buffer, OffsetAndEpoch

_TYPE = "metadata_snapshot"
_VERSION = 1
_CRC = struct.Struct(">I")
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


def encode_snapshot(image: MetadataImage) -> bytes:
    end = snapshot_id(image)
    records = [encode_record(record) for record in records_of(image)]
    body: bytes = msgpack.packb([_TYPE, _VERSION, end.offset, end.leader_epoch, records])
    return _CRC.pack(crc32c.crc32c(body)) + body


def decode_snapshot(data: Buffer) -> MetadataImage:
    """Return the image; raise MetadataError for damaged bytes or another version."""
    view = memoryview(data)
    if len(view) < _CRC.size or _CRC.unpack_from(view)[0] != crc32c.crc32c(view[_CRC.size :]):
        raise MetadataError("a metadata snapshot that is not whole: its CRC is another")
    try:
        kind, version, end_offset, leader_epoch, records = msgpack.unpackb(view[_CRC.size :])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MetadataError(f"a metadata snapshot that is not msgpack: {error!r}") from error
    if (kind, version) != (_TYPE, _VERSION):
        raise MetadataError(
            f"metadata snapshot {kind!r} of version {version!r}, but this release reads only"
            f" {_TYPE!r} of version {_VERSION}: a newer version wrote it"
        )
    if not isinstance(records, list) or not isinstance(end_offset, int) or end_offset < 1:
        raise MetadataError(f"a metadata snapshot that ends at {end_offset!r}")
    return MetadataImage().apply_all(
        map(decode_record, records), offset=end_offset - 1, leader_epoch=leader_epoch
    )
