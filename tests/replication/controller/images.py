"""Metadata images for the decisions of the controller."""

from collections.abc import Iterable

from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from storage.types import TopicPartition

ORDERS = bytes(range(16))
"""The id of the topic in these images."""


def registered(broker_id: int, *, epoch: int = 7, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=bytes(16),
        end_points=[],
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
    )


def five_brokers() -> list[MetadataRecord]:
    """Return the registrations of brokers 1 to 5, of which 4 is fenced and 5 is shutting down."""
    return [
        *(registered(each, epoch=each * 10, fenced=each == 4) for each in (1, 2, 3, 4, 5)),
        BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=50, in_controlled_shutdown=1),
    ]


def topic_config(name: str, key: str, value: str | None) -> ConfigRecord:
    return _config(ConfigResourceType.TOPIC, name, key, value)


def broker_config(broker: str, key: str, value: str | None) -> ConfigRecord:
    """Return a key of a broker; of all brokers, where the name is empty."""
    return _config(ConfigResourceType.BROKER, broker, key, value)


def group_config(group_id: str, key: str, value: str | None) -> ConfigRecord:
    return _config(ConfigResourceType.GROUP, group_id, key, value)


def client_metrics(subscription: str, key: str, value: str | None) -> ConfigRecord:
    return _config(ConfigResourceType.CLIENT_METRICS, subscription, key, value)


def _config(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def after(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    """Return the image after the records of a decision."""
    records = tuple(records)
    return image.apply_all(records, offset=image.offset + len(records), leader_epoch=0)


def partition_of(image: MetadataImage, name: str, number: int = 0) -> PartitionRegistration:
    partition = image.partition(TopicPartition(name, number))
    assert partition is not None
    return partition
