"""What the controller answers, and what the log must say for the answer to be true.

    request, image, time  ->  Decision(answer, records)      a pure function
    records               ->  the metadata log, synced       Controller
    answer                ->  whoever asked, after that

Rule 1: a decision is made from one image and changes nothing. Whoever carries it out
appends its records before the next decision is made, so two never contradict each other.

Rule 2: every path to a new leader goes through `elections_without`, `elections_with` or
`elections_of_leaderless`, and so through `election.elect`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

import attrs

from replication.election import change_record, elect
from replication.metadata import (
    NO_LEADER,
    MetadataImage,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRegistration,
    TopicImage,
)

A = TypeVar("A")

# Whether a topic lets a replica outside the ISR lead.
UncleanRule: TypeAlias = Callable[[TopicImage], bool]


@attrs.frozen
class Decision(Generic[A]):
    """An answer and the records it rests on. `cause` says why, for those who watch."""

    answer: A
    records: tuple[MetadataRecord, ...] = ()
    cause: str = ""


def elections_without(
    image: MetadataImage, broker_id: int, unclean: UncleanRule
) -> Iterator[PartitionChangeRecord]:
    """`broker_id` drops out of every ISR it is in, and its leaderships move."""
    return _elections(
        image,
        unclean,
        concerns=lambda partition: broker_id in partition.isr,
        is_active=image.may_join_isr,
        leaving=broker_id,
    )


def elections_with(
    image: MetadataImage, broker_id: int, unclean: UncleanRule
) -> Iterator[PartitionChangeRecord]:
    """`broker_id` may lead from now on: what has no leader may have found one."""
    return _elections(
        image,
        unclean,
        concerns=_is_leaderless,
        is_active=lambda replica: replica == broker_id or image.may_join_isr(replica),
    )


def elections_of_leaderless(
    image: MetadataImage, unclean: UncleanRule
) -> Iterator[PartitionChangeRecord]:
    """What has no leader and could have one."""
    return _elections(image, unclean, concerns=_is_leaderless, is_active=image.may_join_isr)


def _is_leaderless(partition: PartitionRegistration) -> bool:
    return partition.leader == NO_LEADER


def _elections(
    image: MetadataImage,
    unclean: UncleanRule,
    *,
    concerns: Callable[[PartitionRegistration], bool],
    is_active: Callable[[int], bool],
    leaving: int | None = None,
) -> Iterator[PartitionChangeRecord]:
    for topic in _by_name(image.topics.values()):
        concerned = sorted(
            number for number, partition in topic.partitions.items() if concerns(partition)
        )
        if not concerned:
            continue
        allows_unclean = unclean(topic)
        for number in concerned:
            partition = topic.partitions[number]
            election = elect(
                partition, is_active=is_active, leaving=leaving, unclean=allows_unclean
            )
            change = change_record(partition, election, topic_id=topic.topic_id, number=number)
            if change is not None:
                yield change


def _by_name(topics: Iterable[TopicImage]) -> list[TopicImage]:
    return sorted(topics, key=lambda topic: topic.name)


def is_current_incarnation(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    """Whether a request comes from the broker that is registered, not from a former self.
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
