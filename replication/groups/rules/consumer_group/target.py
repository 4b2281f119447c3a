"""The group epoch and the target assignment: when a group is assigned anew, and to what.

The group epoch rises when a subscription changes, when a member leaves, and when a topic that the
group reads has come, gone, grown or moved to other racks. A target assignment is made for a group
epoch once, by the next heartbeat after the assignment interval (KIP-1263), and the members then go
to it one by one.

The hash of the topics is ours: 64 bits of BLAKE2b, where Kafka 4.1 has XXH3. A coordinator of the
other kind that takes the group over finds another hash, and raises the epoch once; assignments are
sticky, so that no partition moves.

(Kafka: TargetAssignmentBuilder, ModernGroup.computeMetadataHash; KIP-1101.)
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence

from replication.groups.rules.consumer_group.assignors import ASSIGNORS, Subscriber
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    GroupChange,
)
from replication.groups.rules.consumer_group.records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from replication.metadata.rules.image import MetadataImage, TopicImage

_HASH_BYTES = 8


def metadata_hash(topics: Collection[str], image: MetadataImage) -> int:
    """Return a hash of these topics as they are now: ids, names, partitions, racks of replicas.

    Names of topics that do not exist do not count; without any topic it is 0.
    """
    known = [image.topics[name] for name in sorted(topics) if name in image.topics]
    if not known:
        return 0
    hashed = hashlib.blake2b(digest_size=_HASH_BYTES)
    for topic in known:
        hashed.update(repr((topic.topic_id, topic.name, _racks(topic, image))).encode())
    return int.from_bytes(hashed.digest(), signed=True)


def _racks(topic: TopicImage, image: MetadataImage) -> list[list[str]]:
    """Return the racks of each partition's replicas."""
    rack_of = {number: broker.rack for number, broker in image.brokers.items()}
    return [
        sorted(filter(None, (rack_of.get(each) for each in topic.partitions[number].replicas)))
        for number in sorted(topic.partitions)
    ]


def raise_epoch(
    change: GroupChange, image: MetadataImage, *, only_if_changed: bool = False
) -> None:
    """Raise the group epoch; with `only_if_changed` only if its topics are not what they were."""
    group = change.group
    found = metadata_hash(group.subscribed_topics(), image)
    if not only_if_changed or found != group.metadata_hash:
        change.put(ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=found))
    if group.has_partition_metadata:
        change.delete(ConsumerGroupPartitionMetadataValue)


def preferred_assignor(group: ConsumerGroup, assignors: Sequence[str]) -> str:
    """Return the assignor that most members ask for; the first of `assignors` where none does."""
    votes = Counter(each.assignor for each in group.members.values() if each.assignor in assignors)
    return max(assignors, key=lambda name: votes[name])


def assign(
    change: GroupChange, image: MetadataImage, assignors: Sequence[str], *, wall_ms: int = 0
) -> None:
    """Make the target assignment of the group epoch; a record for each member whose share changes."""
    group = change.group
    members = {
        member_id: Subscriber(
            topics=frozenset(
                image.topics[name].topic_id
                for name in group.topics_of(member)
                if name in image.topics
            ),
            assigned=group.target.get(member_id, NO_ASSIGNMENT),
            instance_id=member.instance_id,
        )
        for member_id, member in group.members.items()
    }
    topics = frozenset().union(*(each.topics for each in members.values()))
    partitions = {
        topic.topic_id: len(topic.partitions)
        for topic in map(image.topic_by_id, topics)
        if topic is not None
    }
    assigned = ASSIGNORS[preferred_assignor(group, assignors)](members, partitions)
    for member_id, assignment in assigned.items():
        if assignment != group.target.get(member_id):
            change.put_target(member_id, assignment)
    change.put(
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.epoch, assignment_timestamp=wall_ms
        )
    )
