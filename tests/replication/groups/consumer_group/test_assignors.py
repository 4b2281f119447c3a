"""The assignors: every partition once, balance, few moves; against naive twins and Kafka's cases."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings, strategies as st

from replication.groups.rules.consumer_group.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_ranges,
    assign_uniformly,
)

T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))
TOPICS = (T1, T2, T3)
FEW = settings(derandomize=True, database=None, deadline=None)


def reader(
    *topics: bytes, has: Mapping[bytes, set[int]] | None = None, instance: str | None = None
) -> Subscriber:
    assigned = {topic: frozenset(numbers) for topic, numbers in (has or {}).items()}
    return Subscriber(topics=frozenset(topics), assigned=assigned, instance_id=instance)


def places(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def sizes(assigned: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(places(each)) for each in assigned.values())


def check_whole(
    assigned: Mapping[str, Assignment],
    members: Mapping[str, Subscriber],
    partitions: Mapping[bytes, int],
) -> None:
    """Every partition of a topic with readers belongs to exactly one of them."""
    owners = Counter(place for each in assigned.values() for place in places(each))
    topics = frozenset().union(*(each.topics for each in members.values()))
    assert owners == dict.fromkeys(
        ((topic, number) for topic in topics for number in range(partitions[topic])), 1
    )
    for member, assignment in assigned.items():
        assert assignment.keys() <= members[member].topics
        assert all(assignment.values()), "no topic stands there without partitions"
    assert assigned.keys() == members.keys()


def kept(assigned: Mapping[str, Assignment], members: Mapping[str, Subscriber]) -> int:
    return sum(len(places(assigned[m]) & places(each.assigned)) for m, each in members.items())


PARTITIONS = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})


@st.composite
def groups(draw: st.DrawFn, *, same_topics: bool) -> tuple[dict[str, Subscriber], dict[bytes, int]]:
    """A group in which no partition has two owners; some are of topics that nobody reads now."""
    partitions = draw(PARTITIONS)
    subscriptions = st.frozensets(st.sampled_from(TOPICS))
    common = draw(subscriptions)
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=7, unique=True))
    owner = {
        (topic, number): draw(st.sampled_from([*names, None, None]))
        for topic in TOPICS
        for number in range(partitions[topic] + 1)
    }
    members = {}
    for name in names:
        mine: dict[bytes, set[int]] = {}
        for (topic, number), has in owner.items():
            if has == name:
                mine.setdefault(topic, set()).add(number)
        topics = common if same_topics else draw(subscriptions)
        members[name] = reader(
            *topics, has=mine, instance=draw(st.sampled_from([None, f"i{name}"]))
        )
    return members, partitions


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("same_topics", [True, False])
def test_every_partition_is_assigned_to_one_reader(name: str, same_topics: bool) -> None:
    @FEW
    @given(group=groups(same_topics=same_topics))
    def holds(group: tuple[dict[str, Subscriber], dict[bytes, int]]) -> None:
        members, partitions = group
        check_whole(ASSIGNORS[name](members, partitions), members, partitions)

    holds()


@FEW
@given(group=groups(same_topics=True))
def test_uniform_is_balanced_and_moves_no_more_than_that_takes(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, partitions = group
    assigned = assign_uniformly(members, partitions)
    assert sizes(assigned)[-1] - sizes(assigned)[0] <= 1
    assert kept(assigned, members) == most_kept(members, partitions)


def most_kept(members: Mapping[str, Subscriber], partitions: Mapping[bytes, int]) -> int:
    """Return how many partitions can stay where they are: each member's share is known."""
    topics = next(iter(members.values())).topics
    share, extra = divmod(sum(partitions[topic] for topic in topics), len(members))
    have = [
        sum(
            topic in topics and number < partitions[topic]
            for topic, number in places(each.assigned)
        )
        for each in members.values()
    ]
    return sum(min(each, share) for each in have) + min(extra, sum(each > share for each in have))


@FEW
@given(group=groups(same_topics=False))
def test_uniform_with_different_topics_leaves_no_move_that_would_help(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, partitions = group
    assigned = assign_uniformly(members, partitions)
    size = {member: len(places(each)) for member, each in assigned.items()}
    for member, assignment in assigned.items():
        for topic in assignment:
            others = [size[each] for each, it in members.items() if topic in it.topics]
            assert size[member] - min(others) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("same_topics", [True, False])
def test_an_assignment_that_is_assigned_again_stays(name: str, same_topics: bool) -> None:
    @FEW
    @given(group=groups(same_topics=same_topics))
    def holds(group: tuple[dict[str, Subscriber], dict[bytes, int]]) -> None:
        members, partitions = group
        once = ASSIGNORS[name](members, partitions)
        again = {
            member: Subscriber(
                topics=each.topics, assigned=once[member], instance_id=each.instance_id
            )
            for member, each in members.items()
        }
        assert ASSIGNORS[name](again, partitions) == once

    holds()


@FEW
@given(group=groups(same_topics=False))
def test_ranges_are_those_of_a_naive_twin(
    group: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, partitions = group
    static = sorted((each.instance_id, m) for m, each in members.items() if each.instance_id)
    order = [m for _, m in static] + sorted(
        m for m, each in members.items() if not each.instance_id
    )
    assigned = assign_ranges(members, partitions)
    for topic, count in partitions.items():
        readers = [m for m in order if topic in members[m].topics]
        turns = sorted(readers[number % len(readers)] for number in range(count) if readers)
        given_in_order = [m for m in readers for _ in range(turns.count(m))]
        for number, member in enumerate(given_in_order):
            assert number in assigned[member][topic]


# Kafka's cases: RangeAssignorTest.


@pytest.mark.conformance("CG-2")
def test_nobody_is_assigned_anything_without_a_topic() -> None:
    for assign in ASSIGNORS.values():
        assert assign({"a": reader()}, {}) == {"a": {}}


@pytest.mark.conformance("CG-3")
def test_range_gives_the_same_numbers_of_topics_that_are_alike() -> None:
    members = {"a": reader(T1, T3), "b": reader(T1, T3)}
    assigned = assign_ranges(members, {T1: 3, T3: 2})
    assert assigned == {"a": {T1: {0, 1}, T3: {0}}, "b": {T1: {2}, T3: {1}}}


@pytest.mark.conformance("CG-4")
def test_range_with_different_topics() -> None:
    members = {"a": reader(T1, T2), "b": reader(T3), "c": reader(T2, T3)}
    assigned = assign_ranges(members, {T1: 3, T2: 3, T3: 2})
    assert assigned == {
        "a": {T1: {0, 1, 2}, T2: {0, 1}},
        "b": {T3: {0}},
        "c": {T2: {2}, T3: {1}},
    }


@pytest.mark.conformance("CG-5")
def test_range_with_more_members_than_partitions() -> None:
    members = {each: reader(T1, T3) for each in "abc"}
    assigned = assign_ranges(members, {T1: 3, T3: 2})
    assert assigned == {"a": {T1: {0}, T3: {0}}, "b": {T1: {1}, T3: {1}}, "c": {T1: {2}}}


@pytest.mark.conformance("CG-6", "CG-7")
def test_static_members_come_first_and_keep_their_range_under_another_id() -> None:
    before = {"a": reader(T1, instance="i1"), "b": reader(T1, instance="i2"), "0": reader(T1)}
    after = {"z": reader(T1, instance="i1"), "b": reader(T1, instance="i2"), "0": reader(T1)}
    first, second = (assign_ranges(each, {T1: 5}) for each in (before, after))
    assert first == {"a": {T1: {0, 1}}, "b": {T1: {2, 3}}, "0": {T1: {4}}}
    assert second == {"z": first["a"], "b": first["b"], "0": first["0"]}


@pytest.mark.conformance("CG-8", "CG-9", "CG-10", "CG-11", "CG-30")
@pytest.mark.parametrize(
    ("members", "count", "expected"),
    [
        pytest.param("abc", 2, [{0}, {1}, None], id="more members than partitions"),
        pytest.param("ab", 4, [{0, 1}, {2, 3}], id="a partition was added"),
        pytest.param("abc", 3, [{0}, {1}, {2}], id="a member was added"),
        pytest.param("abc", 5, [{0, 1}, {2, 3}, {4}], id="a member and partitions were added"),
        pytest.param("b", 3, [{0, 1, 2}], id="a member has left"),
    ],
)
def test_range_after_a_change(members: str, count: int, expected: list[set[int] | None]) -> None:
    group = {each: reader(T1, has={T1: {0}} if each == "a" else None) for each in members}
    assigned = assign_ranges(group, {T1: count})
    assert [assigned[each].get(T1) for each in members] == expected


@pytest.mark.conformance("CG-12")
def test_range_after_members_have_dropped_topics() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0, 1}}),
        "b": reader(T1, T2, T3, has={T2: {0}}),
        "c": reader(T3, has={T2: {1}}),
    }
    assigned = assign_ranges(members, {T1: 3, T2: 3, T3: 2})
    assert assigned == {
        "a": {T1: {0, 1}, T2: {0, 1}},
        "b": {T1: {2}, T2: {2}, T3: {0}},
        "c": {T3: {1}},
    }


# UniformHomogeneousAssignmentBuilderTest.


@pytest.mark.conformance("CG-13", "CG-21")
def test_uniform_at_first() -> None:
    assigned = assign_uniformly({"a": reader(T1, T3), "b": reader(T1, T3)}, {T1: 3, T3: 2})
    assert sizes(assigned) == [2, 3]


@pytest.mark.conformance("CG-14", "CG-22")
def test_uniform_with_more_members_than_partitions() -> None:
    members = {each: reader(T3) for each in "abc"}
    assert sizes(assign_uniformly(members, {T3: 2})) == [0, 1, 1]
    members["d"] = reader(T3, T1)
    assert sizes(assign_uniformly(members, {T3: 2, T1: 0})) == [0, 0, 1, 1]


@pytest.mark.conformance("CG-15")
def test_uniform_of_a_large_group() -> None:
    topics = [number.to_bytes(16) for number in range(10)]
    members = {f"m{number}": reader(*topics) for number in range(50)}
    partitions = dict.fromkeys(topics, 7)
    assigned = assign_uniformly(members, partitions)
    check_whole(assigned, members, partitions)
    assert sizes(assigned) == [1] * 30 + [2] * 20


@pytest.mark.conformance("CG-16")
def test_uniform_takes_only_what_is_above_a_share() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0, 1}, T2: {0, 1}}),
        "b": reader(T1, T2, has={T1: {2}, T2: {2}}),
    }
    assigned = assign_uniformly(members, {T1: 3, T2: 3})
    assert sizes(assigned) == [3, 3]
    assert places(assigned["b"]) > places(members["b"].assigned)


@pytest.mark.conformance("CG-17")
def test_uniform_gives_new_partitions_away_and_moves_none() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0, 2}, T2: {0}}),
        "b": reader(T1, T2, has={T1: {1}, T2: {1, 2}}),
    }
    partitions = {T1: 6, T2: 5}
    assigned = assign_uniformly(members, partitions)
    check_whole(assigned, members, partitions)
    assert kept(assigned, members) == 6
    assert sizes(assigned) == [5, 6]


@pytest.mark.conformance("CG-18", "CG-25")
def test_a_member_that_joins_gets_its_share_of_the_others() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0, 2}, T2: {0}}),
        "b": reader(T1, T2, has={T1: {1}, T2: {1, 2}}),
        "c": reader(T1, T2),
    }
    assigned = assign_uniformly(members, {T1: 3, T2: 3})
    assert sizes(assigned) == [2, 2, 2]
    assert kept(assigned, members) == 4


@pytest.mark.conformance("CG-19", "CG-26")
def test_the_partitions_of_a_member_that_has_left_are_shared_and_no_other_moves() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0}, T2: {0}}),
        "b": reader(T1, T2, has={T1: {1}, T2: {1}}),
    }
    assigned = assign_uniformly(members, {T1: 3, T2: 3})
    assert sizes(assigned) == [3, 3]
    assert kept(assigned, members) == 4


@pytest.mark.conformance("CG-20")
def test_a_topic_that_nobody_reads_any_more_is_taken_away() -> None:
    members = {
        "a": reader(T2, has={T1: {0, 2}, T2: {0}}),
        "b": reader(T2, has={T1: {1}, T2: {1}}),
    }
    assert assign_uniformly(members, {T1: 3, T2: 2}) == {"a": {T2: {0}}, "b": {T2: {1}}}


# UniformHeterogeneousAssignmentBuilderTest.


@pytest.mark.conformance("CG-23", "CG-24")
def test_different_topics_are_balanced_and_keep_what_they_can() -> None:
    members = {
        "a": reader(T1, T2, has={T1: {0, 1, 2, 3}, T2: {0, 1, 2, 3}}),
        "b": reader(T1, T2, T3, has={T3: {0}}),
    }
    partitions = {T1: 4, T2: 4, T3: 2}
    assigned = assign_uniformly(members, partitions)
    check_whole(assigned, members, partitions)
    assert sizes(assigned) == [5, 5]
    assert kept(assigned, members) == 6


@pytest.mark.conformance("CG-27")
def test_a_member_that_drops_a_topic_leaves_it_to_the_other_readers() -> None:
    members = {
        "a": reader(T1, has={T1: {0, 1}, T2: {1, 3}}),
        "b": reader(T1, T2, has={T1: {2, 3}, T2: {0, 2}}),
    }
    partitions = {T1: 5, T2: 4}
    assigned = assign_uniformly(members, partitions)
    check_whole(assigned, members, partitions)
    assert assigned["b"][T2] == {0, 1, 2, 3}
    assert sizes(assigned) == [4, 5]


@pytest.mark.conformance("CG-28")
def test_a_member_without_subscriptions_gets_nothing() -> None:
    members = {"a": reader(T1, T2), "b": reader()}
    assigned = assign_uniformly(members, {T1: 3, T2: 2})
    assert sizes(assigned) == [0, 5]


@pytest.mark.conformance("CG-29")
def test_members_go_without_partitions_where_their_topics_have_none_left() -> None:
    members = {each: reader(T1) for each in "abcd"} | {"e": reader(T1, T2)}
    partitions = {T1: 2, T2: 5}
    assigned = assign_uniformly(members, partitions)
    check_whole(assigned, members, partitions)
    assert len(places(assigned["e"])) == 5
