"""The server-side assignors of KIP-848: which member of a group shall read which partition.

    range      each topic by itself: its subscribers in order get ranges that follow each other
    uniform    as many partitions for each member as for any other, and as few moves as possible

Rule 1: every partition of a topic with subscribers is assigned, to one of them.

Rule 2: members are taken in the order of their ids; with `range` static members come first, in the
order of their instance ids, so that a member which comes back with another id gets the same range.

Rule 3: racks are not looked at, as in Kafka 4.1. A change of racks is noticed (`metadata_hash`),
and assigns anew.

`uniform` knows two cases. Where all members read the same topics, the numbers of partitions differ
by at most one, and a member gives up only what is above its share. Else each topic is balanced
among its own subscribers, over and over until nothing moves; two subscribers of one topic then
differ by at most one in all that they have, unless the heavier one has nothing of that topic.

(Kafka: RangeAssignor, UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder.)
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from storage.attributes import frozen
from storage.types import TopicId

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]
"""The partitions of a member, by topic; a topic without partitions is left out."""

MAX_ROUNDS: Final = 16
"""The most rounds in which topics with different subscribers are balanced."""

_Place: TypeAlias = tuple[TopicId, int]
_Mutable: TypeAlias = dict[str, dict[TopicId, set[int]]]


@frozen(kw_only=True)
class Subscriber:
    """A member as an assignor sees it."""

    topics: frozenset[TopicId]
    """The topics that it reads and that exist."""
    assigned: Assignment = attrs.Factory(dict)
    """The target assignment that it has so far."""
    instance_id: str | None = None


def assign_ranges(
    members: Mapping[str, Subscriber], partitions: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Return the ranges of each member; `partitions` has the number of partitions of each topic."""
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {each: {} for each in members}
    for topic, readers in _readers(members, sorted(members, key=_static_first(members))).items():
        share, extra = divmod(partitions[topic], len(readers))
        end = 0
        for number, reader in enumerate(readers):
            start, end = end, end + share + (number < extra)
            if start < end:
                assigned[reader][topic] = frozenset(range(start, end))
    return dict(assigned)


def assign_uniformly(
    members: Mapping[str, Subscriber], partitions: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Return the partitions of each member, balanced, with as few moves as that takes."""
    kept, free = _kept_and_free(members, partitions)
    if len({each.topics for each in members.values()}) <= 1:
        _fill_shares(kept, free)
    else:
        _balance_topics(kept, free, _readers(members, sorted(members)))
    return {
        member: {topic: frozenset(numbers) for topic, numbers in topics.items() if numbers}
        for member, topics in kept.items()
    }


Assignor: TypeAlias = Callable[
    [Mapping[str, Subscriber], Mapping[TopicId, int]], dict[str, Assignment]
]
ASSIGNORS: Final = MappingProxyType[str, Assignor](
    {"uniform": assign_uniformly, "range": assign_ranges}
)
"""The assignors by name; the first is the one of a group that prefers none."""


def _static_first(members: Mapping[str, Subscriber]) -> Callable[[str], tuple[bool, str]]:
    def order(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return order


def _readers(members: Mapping[str, Subscriber], order: Iterable[str]) -> dict[TopicId, list[str]]:
    """Return the subscribers of each topic, in this order."""
    readers: dict[TopicId, list[str]] = {}
    for member in order:
        for topic in members[member].topics:
            readers.setdefault(topic, []).append(member)
    return readers


def _kept_and_free(
    members: Mapping[str, Subscriber], partitions: Mapping[TopicId, int]
) -> tuple[_Mutable, list[_Place]]:
    """Return what each member has and may keep, and the partitions that nobody has."""
    kept: _Mutable = {}
    taken: dict[TopicId, set[int]] = {}
    for member in sorted(members):
        subscriber = members[member]
        mine = kept[member] = {}
        for topic in subscriber.topics:
            taken.setdefault(topic, set())
        for topic, numbers in subscriber.assigned.items():
            if topic in subscriber.topics:
                there = {each for each in numbers if each < partitions[topic]}
                mine[topic] = there - taken[topic]
                taken[topic] |= there
    free = [
        (topic, number)
        for topic in sorted(taken)
        for number in range(partitions[topic])
        if number not in taken[topic]
    ]
    return kept, free


def _size(assigned: Mapping[TopicId, set[int]]) -> int:
    return sum(map(len, assigned.values()))


def _fill_shares(kept: _Mutable, free: list[_Place]) -> None:
    """Give every member its share, where all may have every partition.

    The shares that have one more go to the members that have the most already.
    """
    total = len(free) + sum(map(_size, kept.values()))
    share, extra = divmod(total, len(kept) or 1)
    largest_first = sorted(kept, key=lambda member: (-_size(kept[member]), member))
    shares = {member: share + (place < extra) for place, member in enumerate(largest_first)}
    for member, mine in kept.items():
        free += _given_up(mine, _size(mine) - shares[member])
    unassigned = iter(free)
    for member, mine in kept.items():
        for _ in range(shares[member] - _size(mine)):
            topic, number = next(unassigned)
            mine.setdefault(topic, set()).add(number)


def _given_up(mine: dict[TopicId, set[int]], surplus: int) -> list[_Place]:
    """Remove so many partitions of a member, and return them."""
    given_up: list[_Place] = []
    for topic in sorted(mine, reverse=True):
        count = min(surplus - len(given_up), len(mine[topic]))
        given_up += [(topic, mine[topic].pop()) for _ in range(count)]
    return given_up


def _balance_topics(
    kept: _Mutable, free: list[_Place], readers: Mapping[TopicId, list[str]]
) -> None:
    """Give free partitions to the least loaded subscriber, then move others from the most loaded.

    The topics with the most partitions for each subscriber come first: the others then level out
    what these leave.
    """
    sizes = {member: _size(mine) for member, mine in kept.items()}
    free_by_topic: dict[TopicId, list[int]] = {}
    for topic, number in free:
        free_by_topic.setdefault(topic, []).append(number)
    counts = {
        topic: len(free_by_topic.get(topic, ()))
        + sum(len(kept[member].get(topic, ())) for member in subscribers)
        for topic, subscribers in readers.items()
    }
    order = sorted(
        readers,
        key=lambda topic: (-counts[topic] / len(readers[topic]), len(readers[topic]), topic),
    )
    for topic in order:
        least = [(sizes[member], member) for member in readers[topic]]
        heapq.heapify(least)
        for number in free_by_topic.get(topic, ()):
            size, member = least[0]
            kept[member].setdefault(topic, set()).add(number)
            sizes[member] = size + 1
            heapq.heapreplace(least, (size + 1, member))
    for _ in range(MAX_ROUNDS):
        moved = [_level(topic, kept, sizes, readers[topic]) for topic in order]
        if not any(moved):
            break


def _level(topic: TopicId, kept: _Mutable, sizes: dict[str, int], subscribers: list[str]) -> int:
    """Move partitions of one topic to the least loaded subscribers; return how many.

    Each move makes two sizes more alike, so that it ends. An entry of a heap that no longer has the
    member's size is passed over.
    """
    least = [(sizes[member], member) for member in subscribers]
    most = [(-sizes[member], member) for member in subscribers if kept[member].get(topic)]
    heapq.heapify(least)
    heapq.heapify(most)
    moved = 0
    while most:
        giver = most[0][1]
        if -most[0][0] != sizes[giver] or not kept[giver].get(topic):
            heapq.heappop(most)
            continue
        taker = least[0][1]
        if least[0][0] != sizes[taker]:
            heapq.heappop(least)
            continue
        if sizes[giver] - sizes[taker] <= 1:
            break
        number = kept[giver][topic].pop()
        kept[taker].setdefault(topic, set()).add(number)
        sizes[giver] -= 1
        sizes[taker] += 1
        for member in (giver, taker):
            heapq.heappush(least, (sizes[member], member))
            heapq.heappush(most, (-sizes[member], member))
        moved += 1
    return moved
