"""A decision: the controller's answer, and the records that must be in the log before it.

    request, image, time  ->  Decision(answer, records)      a pure function
    records               ->  the metadata log, synced       Controller
    answer                ->  the client, after that

Rule 1: a decision is made from one image and changes nothing. The controller appends its
records before the next decision is made, so two never contradict each other.

Rule 2: every path to a new leader goes through `election.after`, by `PartitionChanges`.
"""

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import attrs

from replication.controller.rules.election import (
    Election,
    ElectionRules,
    Wish,
    after,
    change_record,
)
from replication.metadata.rules.image import MetadataImage, PartitionRegistration, TopicImage
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import MetadataRecord, PartitionChangeRecord
from storage.attributes import define, frozen
from storage.types import TopicId

A = TypeVar("A")

RulesOf: TypeAlias = Callable[[TopicImage], ElectionRules]
"""Returns the election rules of a topic, which follow from its configuration."""


@frozen
class Decision(Generic[A]):
    """An answer and the records it rests on; events show the cause."""

    answer: A
    records: tuple[MetadataRecord, ...] = ()
    cause: str = ""


@define
class PartitionChanges:
    """The changes of partitions in one decision.

    Each one starts from the partition as the changes before have left it: a request may name a
    partition twice.
    """

    image: MetadataImage
    rules_of: RulesOf
    records: list[PartitionChangeRecord] = attrs.field(factory=list, init=False)
    _made: dict[tuple[TopicId, int], PartitionRegistration] = attrs.field(factory=dict, init=False)
    _rules: dict[TopicId, ElectionRules] = attrs.field(factory=dict, init=False)

    def partition(self, topic: TopicImage, number: int) -> PartitionRegistration | None:
        """Return the partition with the changes made so far."""
        return self._made.get((topic.topic_id, number)) or topic.partitions.get(number)

    def rules(self, topic: TopicImage) -> ElectionRules:
        if topic.topic_id not in self._rules:
            self._rules[topic.topic_id] = self.rules_of(topic)
        return self._rules[topic.topic_id]

    def make(
        self,
        topic: TopicImage,
        number: int,
        wish: Wish,
        *,
        election: Election | None = None,
        is_active: Callable[[int], bool] | None = None,
    ) -> PartitionChangeRecord | None:
        """Return the record that fulfils `wish` and its consequences; None where nothing changes."""
        partition = self.partition(topic, number)
        assert partition is not None, "a wish is for a partition that is there"
        wanted = after(
            partition,
            wish,
            rules=self.rules(topic),
            is_active=_in_place(self.image, partition, is_active or self.image.may_join_isr),
            election=election,
        )
        change = change_record(partition, wanted, topic_id=topic.topic_id, number=number)
        if change is not None:
            self.records.append(change)
            self._made[topic.topic_id, number] = partition.merge(change)
        return change


def elections_without(
    image: MetadataImage, broker_id: int, rules_of: RulesOf, *, lost_its_tail: bool = False
) -> list[PartitionChangeRecord]:
    """Return the changes that take `broker_id` out of every ISR and move its leaderships; where it may have
    `lost_its_tail`, it drops out of every ELR as well.
    """

    def wish(partition: PartitionRegistration) -> Wish | None:
        if broker_id not in partition.isr and not (lost_its_tail and broker_id in partition.elr):
            return None
        isr = tuple(replica for replica in partition.isr if replica != broker_id)
        return Wish(isr=isr, lost_its_tail=broker_id if lost_its_tail else None)

    return _elections(image, rules_of, wish, is_active=_others_of(image, broker_id))


def elections_without_directories(
    image: MetadataImage, broker_id: int, lost: frozenset[bytes], rules_of: RulesOf
) -> list[PartitionChangeRecord]:
    """Return the changes that take replicas of `broker_id` in the `lost` directories out of every
    ISR and move their leaderships.
    """

    def wish(partition: PartitionRegistration) -> Wish | None:
        if broker_id not in partition.isr or partition.directory(broker_id) not in lost:
            return None
        return Wish(isr=tuple(replica for replica in partition.isr if replica != broker_id))

    return _elections(image, rules_of, wish, is_active=_others_of(image, broker_id))


def _others_of(image: MetadataImage, broker_id: int) -> Callable[[int], bool]:
    """Return the check that a broker is another one than `broker_id` and may join an ISR."""
    return lambda replica: replica != broker_id and image.may_join_isr(replica)


def _in_place(
    image: MetadataImage, partition: PartitionRegistration, is_active: Callable[[int], bool]
) -> Callable[[int], bool]:
    """Restrict `is_active` to brokers whose replica of `partition` is in an online directory."""
    if not partition.directories:
        return is_active
    return lambda replica: is_active(replica) and image.is_in_place(partition, replica)


def elections_with(
    image: MetadataImage, broker_id: int, rules_of: RulesOf
) -> list[PartitionChangeRecord]:
    """Return the elections of partitions without a leader that `broker_id` may lead from now on."""
    return _elections(
        image,
        rules_of,
        _leader_if_none,
        is_active=lambda replica: replica == broker_id or image.may_join_isr(replica),
    )


def elections_of_leaderless(image: MetadataImage, rules_of: RulesOf) -> list[PartitionChangeRecord]:
    """Return the elections of partitions that have no leader and could have one."""
    return _elections(image, rules_of, _leader_if_none, is_active=image.may_join_isr)


def _leader_if_none(partition: PartitionRegistration) -> Wish | None:
    return Wish() if partition.leader == NO_LEADER else None


def _elections(
    image: MetadataImage,
    rules_of: RulesOf,
    wish: Callable[[PartitionRegistration], Wish | None],
    *,
    is_active: Callable[[int], bool],
) -> list[PartitionChangeRecord]:
    changes = PartitionChanges(image, rules_of)
    for _, topic in sorted(image.topics.items()):
        for number in sorted(topic.partitions):
            wanted = wish(topic.partitions[number])
            if wanted is not None:
                changes.make(topic, number, wanted, is_active=is_active)
    return changes.records


def is_current_incarnation(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    """Return whether a request comes from the registered incarnation of a broker.

    Otherwise the answer is STALE_BROKER_EPOCH (ClusterControlManager.checkBrokerEpoch).
    """
    broker = image.broker(broker_id)
    return broker is not None and broker.broker_epoch == broker_epoch


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )
