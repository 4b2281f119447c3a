"""The assignment of partitions to members: pure functions, run by the group's leader.

    range        t: C1 0 1 2 | C2 3 4      each topic by itself, in runs; the first get the rest
    roundrobin   C1 t0 t2 u1 | C2 t1 u0    all partitions in a row, dealt out one by one
    sticky       as even as possible, and each member keeps as much as possible
    cooperative-sticky   as sticky; a partition that moves is given up first, and assigned in
                         the next rebalance (KIP-429)

Rule 1: each partition of a subscribed topic has exactly one owner, who subscribes to the topic.

Rule 2: the result depends only on the group and the cluster: members are taken in the order of
their instance ids, or else of their member ids.

(Kafka: RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor.)
"""

import enum
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TypeAlias

import attrs

from replication.client.consumer.group.sticky import assign_sticky, without_transfers
from replication.wire.join_group import NO_GENERATION
from storage.types import TopicPartition


class RebalanceProtocol(enum.Enum):
    """Whether members give everything back before they join again, or go on reading."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


@attrs.frozen(kw_only=True)
class MemberSubscription:
    """The subscription of one member, and the partitions that it owns."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """The generation in which it got them; of two claims, the later generation counts."""
    group_instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
PartitionCounts: TypeAlias = Mapping[str, int]
Assigned: TypeAlias = dict[str, list[TopicPartition]]
Assign: TypeAlias = Callable[[PartitionCounts, Members], Assigned]


def in_order(members: Members) -> list[str]:
    """Sort members by id; static members come first, by their instance ids."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return (instance is None, member_id if instance is None else instance)

    return sorted(members, key=rank)


def assign_range(counts: PartitionCounts, members: Members) -> Assigned:
    assigned: Assigned = {member: [] for member in members}
    for topic, count in counts.items():
        readers = [each for each in in_order(members) if topic in members[each].topics]
        if not readers:
            continue
        share, rest = divmod(count, len(readers))
        first = 0
        for place, member in enumerate(readers):
            end = first + share + (place < rest)
            assigned[member] += [TopicPartition(topic, each) for each in range(first, end)]
            first = end
    return assigned


def assign_round_robin(counts: PartitionCounts, members: Members) -> Assigned:
    assigned: Assigned = {member: [] for member in members}
    wanted = {topic for member in members.values() for topic in member.topics}
    turns = cycle(in_order(members))
    for topic in sorted(wanted & counts.keys()):
        for partition in range(counts[topic]):
            member = next(each for each in turns if topic in members[each].topics)
            assigned[member].append(TopicPartition(topic, partition))
    return assigned


def assign_eager_sticky(counts: PartitionCounts, members: Members) -> Assigned:
    return assign_sticky(
        counts,
        {each: members[each].topics for each in in_order(members)},
        {each: (member.owned, member.generation) for each, member in members.items()},
    )


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> Assigned:
    owned = {each: (member.owned, member.generation) for each, member in members.items()}
    return without_transfers(assign_eager_sticky(counts, members), owned)


@attrs.frozen
class Assignor:
    """A strategy, under the name by which a group agrees on it."""

    name: str
    assign: Assign
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)


_BOTH = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
ASSIGNORS: Mapping[str, Assignor] = {
    each.name: each
    for each in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_eager_sticky),
        Assignor("cooperative-sticky", assign_cooperative_sticky, _BOTH),
    )
}


def protocol_of(assignors: tuple[Assignor, ...]) -> RebalanceProtocol:
    """Return the protocol that all assignors support: cooperative, or else eager."""
    can = all(RebalanceProtocol.COOPERATIVE in each.protocols for each in assignors)
    return RebalanceProtocol.COOPERATIVE if can else RebalanceProtocol.EAGER
