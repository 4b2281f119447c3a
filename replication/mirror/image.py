"""The source's metadata as an image, on which a broker of ours acts.

    source                                     image
    topic t, id, partition 0: leader 2, e5     the same, with one more replica: the mirror
    broker 2 at host:port                      the same; fenced while it cannot be reached
    a leader is being elected                  as before
    a topic is gone                            gone: it is not fetched; its copy stays

The mirror's id is below those of all brokers, so no broker has it, and it leads nothing.
"""

from collections.abc import Container, Mapping

import attrs

from replication.client.cluster_view import ClusterView, PartitionInfo, TopicView
from replication.errors import NO_SUCH_TOPIC, ErrorCode
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from replication.mirror.options import LISTENER, MirrorOptions
from replication.wire.broker_registration import Endpoint
from storage.types import TopicPartition

MIRROR_ID = -2


def image_of(
    view: ClusterView, before: MetadataImage, options: MirrorOptions, reachable: Container[int]
) -> MetadataImage:
    topics = {name: view.topics[name] for name in sorted(view.topics)}
    found = {
        name: image
        for name, topic in topics.items()
        if options.follows(topic)
        and (image := _topic(topic, before.topics.get(name), options.topic_configs)) is not None
    }
    return attrs.evolve(
        before,
        offset=before.offset + 1,
        brokers=_brokers(view, reachable),
        topics=found,
        topic_names_by_id={topic.topic_id: name for name, topic in found.items()},
    )


def without(image: MetadataImage, partitions: Container[TopicPartition]) -> MetadataImage:
    """Return the image without these partitions."""
    topics = {
        name: attrs.evolve(
            topic,
            partitions={
                number: each
                for number, each in topic.partitions.items()
                if TopicPartition(name, number) not in partitions
            },
        )
        for name, topic in image.topics.items()
    }
    return attrs.evolve(image, topics=topics)


def _brokers(view: ClusterView, reachable: Container[int]) -> dict[int, BrokerRegistration]:
    return {
        node.id: BrokerRegistration(
            broker_id=node.id,
            broker_epoch=-1,
            incarnation_id=b"",
            endpoints=(Endpoint(LISTENER, node.host, node.port),),
            rack=node.rack,
            fenced=node.id not in reachable,
        )
        for node in view.nodes.values()
    }


def _topic(
    topic: TopicView, before: TopicImage | None, configs: Mapping[str, str]
) -> TopicImage | None:
    if topic.error is not ErrorCode.NONE:
        return None if topic.error in NO_SUCH_TOPIC else before
    if before is not None and before.topic_id != topic.topic_id:
        before = None
    known = {} if before is None else dict(before.partitions)
    for number, partition in sorted(topic.partitions.items()):
        registration = _partition(partition, known.get(number))
        if registration is not None:
            known[number] = registration
    image = TopicImage(topic.name, topic.topic_id, known, configs)
    return before if image == before else image


def _partition(
    seen: PartitionInfo, before: PartitionRegistration | None
) -> PartitionRegistration | None:
    """Return the partition as the source has it; None if no leader of it is known."""
    if seen.leader < 0 or (before is not None and seen.leader_epoch < before.leader_epoch):
        return before
    return PartitionRegistration(
        replicas=(*seen.replicas, MIRROR_ID),
        isr=seen.isr,
        leader=seen.leader,
        leader_epoch=seen.leader_epoch,
        # Metadata does not name it; a follower only looks at whether it grows.
        partition_epoch=seen.leader_epoch,
    )
