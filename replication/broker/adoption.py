"""The adoption of existing logs as topics of a cluster, by records in its metadata log.

    copy/controller/log    the controller's log, created if there is none
    copy/broker-1/log      orders-0, orders-1, ...: they keep their topic ids

Rule 1: the records are written into the controller's log and synced before the cluster starts.
Records that exist already are not written again, so a second adoption of the same logs writes
nothing.

Rule 2: a partition has one replica, on the broker that has the log, and no leader: the controller
elects it as soon as that broker is up, and so begins a leader epoch after all that were.

Rule 3: a topic that was adopted under another id is deleted, because it is not the present one.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from replication.broker.nodes import CONTROLLER_ID
from replication.errors import UnderstudyError
from replication.metadata.formatter import new_directory_id
from replication.metadata.log import MetadataLog
from replication.metadata.rules.image import UNASSIGNED, MetadataImage, TopicImage
from replication.metadata.rules.snapshot import config_records
from replication.metadata.snapshots import Snapshot
from replication.net.seams import Seams
from replication.wire.control_records import LeaderChangeMessage
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.attributes import frozen
from storage.checkpoint import MetaProperties, read_meta_properties, write_meta_properties
from storage.types import LeaderEpoch, TopicId


class AdoptionError(UnderstudyError):
    """The error for a controller's log that belongs to another cluster."""


@frozen(kw_only=True)
class AdoptedTopic:
    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    """The whole configuration of the topic; any other key that was set before is removed."""
    leader_epochs: Mapping[int, LeaderEpoch]
    """For each partition, a leader epoch below all later ones."""


async def adopt(
    seams: Seams,
    directory: str,
    *,
    cluster_id: str,
    broker_id: int,
    topics: Sequence[AdoptedTopic],
    next_producer_id: int = 0,
) -> None:
    """Write `topics` into the log of a controller, in `directory`. The controller must not run."""

    def admit(owner: MetaProperties | None, _: Snapshot | None) -> None:
        if owner is not None and owner.cluster_id not in (None, cluster_id):
            raise AdoptionError(f"{directory} belongs to cluster {owner.cluster_id}")

    log = await MetadataLog.open(seams, directory, node_id=CONTROLLER_ID, admit=admit)
    try:
        log.commit_everything()
        image = log.image
        news = list(_news(image, broker_id, topics))
        if image.next_producer_id < next_producer_id:
            news.append(ProducerIdsRecord(broker_id=broker_id, next_producer_id=next_producer_id))
        if not news:
            return
        await seams.offload(partial(_sign, seams, directory, cluster_id))
        leads = LeaderChangeMessage(version=0, leader_id=CONTROLLER_ID)
        log.lead(image.leader_epoch + 1, [leads])
        log.commit_everything()
        log.append(news)
        await log.flush()
    finally:
        log.close()


def _sign(seams: Seams, directory: str, cluster_id: str) -> None:
    """Make a directory the controller's, with an id of its own."""
    owner = read_meta_properties(seams.file_system, directory)
    known = None if owner is None else owner.directory_id
    signed = MetaProperties(
        cluster_id=cluster_id,
        node_id=CONTROLLER_ID,
        directory_id=known or new_directory_id(seams.chance.randbytes),
    )
    if signed != owner:
        write_meta_properties(seams.file_system, directory, signed)


def _news(
    image: MetadataImage, broker_id: int, topics: Sequence[AdoptedTopic]
) -> Iterator[MetadataRecord]:
    for topic in topics:
        known = image.topics.get(topic.name)
        if known is not None and known.topic_id != topic.topic_id:
            yield RemoveTopicRecord(topic_id=known.topic_id)
            known = None
        if known is None:
            known = TopicImage(topic.name, topic.topic_id)
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        yield from _partitions(known, broker_id, topic)
        keys = sorted(topic.configs.keys() | known.configs.keys())
        changed = {
            key: topic.configs.get(key)
            for key in keys
            if known.configs.get(key) != topic.configs.get(key)
        }
        yield from config_records(ConfigResourceType.TOPIC, topic.name, changed)


def _partitions(known: TopicImage, broker_id: int, topic: AdoptedTopic) -> Iterator[MetadataRecord]:
    for number, epoch in sorted(topic.leader_epochs.items()):
        before = known.partitions.get(number)
        if before is not None and before.leader_epoch >= epoch:
            continue
        yield PartitionRecord(
            topic_id=topic.topic_id,
            partition_id=number,
            replicas=[broker_id],
            isr=[broker_id],
            directories=[UNASSIGNED],
            leader=NO_LEADER,
            leader_epoch=epoch,
            partition_epoch=0 if before is None else before.partition_epoch + 1,
        )
