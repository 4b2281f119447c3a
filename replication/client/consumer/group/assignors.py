"""The assignment of partitions to members: pure functions, run by the group's leader.

    range        t: C1 0 1 2 | C2 3 4      each topic by itself, in runs; the first get the rest
    roundrobin   C1 t0 t2 u1 | C2 t1 u0    all partitions in a row, dealt out one by one
    sticky       as even as possible, and each member keeps as much as possible
    cooperative-sticky   as sticky; a partition that moves is given up first, and assigned in
                         the next rebalance (KIP-429)

Rule 1: each partition of a subscribed topic has exactly one owner, who subscribes to the topic.

Rule 2: the result depends only on the group and the cluster: members are taken in the order of
their instance ids, or else of their member ids.

The sticky assignment is made in three steps:

    1  each member keeps what it claims; not if a member of a later generation claims it, nor if
       two of the same generation do
    2  a partition without an owner goes to the member with the fewest; first the partitions that
       few members may read
    3  as long as a member has two more than another who may read one of them, that one moves

Rule 3: step 3 ends: with each move the squares of the sizes sum up to less.

Rule 4: with equal subscriptions, sizes differ by one at most, and no equally even assignment
moves fewer partitions: a partition leaves only a member that has more than its share.

Rule 5: cooperative members may still be reading what they own. A partition that would move is
assigned to no member this time; its owner gives it up and all join again (KIP-429).

(Kafka: RangeAssignor, RoundRobinAssignor, AbstractStickyAssignor, CooperativeStickyAssignor.)
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import TypeAlias

from replication.wire.join_group import NO_GENERATION
from storage.attributes import frozen
from storage.types import TopicPartition


class RebalanceProtocol(enum.Enum):
    """Whether members give everything back before they join again, or go on reading."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


@frozen(kw_only=True)
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
Owned: TypeAlias = Mapping[str, tuple[Sequence[TopicPartition], int]]


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


def assign_sticky(
    counts: Mapping[str, int], topics: Mapping[str, frozenset[str]], owned: Owned
) -> dict[str, list[TopicPartition]]:
    """Return the assignment; `topics` lists each member's topics, the preferred member first."""
    readers = {
        topic: [member for member, wanted in topics.items() if topic in wanted] for topic in counts
    }
    everything = [
        TopicPartition(topic, each)
        for topic in sorted(counts)
        if readers[topic]
        for each in range(counts[topic])
    ]
    kept = _kept(everything, topics, owned)
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    for tp, member in kept.items():
        assigned[member].append(tp)
    for tp in sorted(
        (tp for tp in everything if tp not in kept), key=lambda tp: len(readers[tp.topic])
    ):
        _least(readers[tp.topic], assigned).append(tp)
    _balance(assigned, readers)
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def _kept(
    everything: Iterable[TopicPartition], topics: Mapping[str, frozenset[str]], owned: Owned
) -> dict[TopicPartition, str]:
    """Return the member that keeps each partition."""
    there = set(everything)
    youngest: dict[TopicPartition, int] = {}
    claims: dict[TopicPartition, str | None] = {}
    for member in topics:
        partitions, generation = owned.get(member, ((), -1))
        for tp in partitions:
            if tp not in there or tp.topic not in topics[member]:
                continue
            before = youngest.get(tp)
            if before is None or generation > before:
                youngest[tp], claims[tp] = generation, member
            elif generation == before and claims[tp] != member:
                claims[tp] = None  # both cannot be right, and neither can be trusted
    return {tp: member for tp, member in sorted(claims.items()) if member is not None}


def _least(
    members: Iterable[str], assigned: Mapping[str, list[TopicPartition]]
) -> list[TopicPartition]:
    return assigned[min(members, key=lambda member: len(assigned[member]))]


def _balance(
    assigned: Mapping[str, list[TopicPartition]], readers: Mapping[str, list[str]]
) -> None:
    while (move := _next_move(assigned, readers)) is not None:
        tp, giver, taker = move
        assigned[giver].remove(tp)
        assigned[taker].append(tp)


def _next_move(
    assigned: Mapping[str, list[TopicPartition]], readers: Mapping[str, list[str]]
) -> tuple[TopicPartition, str, str] | None:
    """Return a move that makes sizes more even, with its giver and taker; None if there is none."""
    for giver in sorted(assigned, key=lambda member: -len(assigned[member])):
        # One of a topic of which it has many, so that topics stay spread as well.
        topics = Counter(tp.topic for tp in assigned[giver])
        for topic, _ in topics.most_common():
            taker = min(readers[topic], key=lambda member: len(assigned[member]))
            if len(assigned[taker]) + 1 < len(assigned[giver]):
                tp = next(each for each in reversed(assigned[giver]) if each.topic == topic)
                return tp, giver, taker
    return None


def without_transfers(
    assigned: Mapping[str, list[TopicPartition]], owned: Owned
) -> dict[str, list[TopicPartition]]:
    """Leave out partitions that another member has to give up first."""
    owners: dict[TopicPartition, set[str]] = {}
    for member, (partitions, _) in owned.items():
        for tp in partitions:
            owners.setdefault(tp, set()).add(member)
    return {
        member: [tp for tp in partitions if owners.get(tp, {member}) <= {member}]
        for member, partitions in assigned.items()
    }


def assign_eager_sticky(counts: PartitionCounts, members: Members) -> Assigned:
    return assign_sticky(
        counts,
        {each: members[each].topics for each in in_order(members)},
        {each: (member.owned, member.generation) for each, member in members.items()},
    )


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> Assigned:
    owned = {each: (member.owned, member.generation) for each, member in members.items()}
    return without_transfers(assign_eager_sticky(counts, members), owned)


@frozen
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
