"""Metadata images for the decisions of the controller."""

from collections.abc import Iterable

from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.metadata.rules.records import (
    BrokerRegistrationChangeRecord,
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
        endpoints=(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
    )


def five_brokers() -> list[MetadataRecord]:
    """Return the registrations of brokers 1 to 5, of which 4 is fenced and 5 is shutting down."""
    return [
        *(registered(each, epoch=each * 10, fenced=each == 4) for each in (1, 2, 3, 4, 5)),
        BrokerRegistrationChangeRecord(5, 50, in_controlled_shutdown=True),
    ]


def after(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    """Return the image after the records of a decision."""
    records = tuple(records)
    return image.apply_all(records, offset=image.offset + len(records), leader_epoch=0)


def partition_of(image: MetadataImage, name: str, number: int = 0) -> PartitionRegistration:
    partition = image.partition(TopicPartition(name, number))
    assert partition is not None
    return partition
