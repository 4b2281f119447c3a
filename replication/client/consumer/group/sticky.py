"""The sticky assignment: as even as possible, and each member keeps as much as possible.

    1  each member keeps what it claims; not if a member of a later generation claims it, nor if
       two of the same generation do
    2  a partition without an owner goes to the member with the fewest; first the partitions that
       few members may read
    3  as long as a member has two more than another who may read one of them, that one moves

Rule 1: 3 ends: with each move the squares of the sizes sum up to less.

Rule 2: with equal subscriptions, sizes differ by one at most, and no equally even assignment
moves fewer partitions: a partition leaves only a member that has more than its share.

Rule 3: cooperative members may still be reading what they own. A partition that would move is
assigned to no member this time; its owner gives it up and all join again (KIP-429).

(Kafka: AbstractStickyAssignor, CooperativeStickyAssignor.)
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from storage.types import TopicPartition

Owned = Mapping[str, tuple[Sequence[TopicPartition], int]]


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
