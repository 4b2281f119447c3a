"""Who reads what: every partition has one owner, as evenly and with as few moves as can be."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings, strategies as st

from replication.client.consumer.group.assignors import (
    ASSIGNORS,
    Assigned,
    Members,
    MemberSubscription,
    RebalanceProtocol,
    assign_cooperative_sticky,
    assign_eager_sticky,
    assign_range,
    assign_round_robin,
    protocol_of,
)
from replication.wire.consumer_protocol import (
    Assignment,
    StickyUserData,
    Subscription,
    by_topic,
    decode_assignment,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_sticky,
    encode_subscription,
    partitions_of,
)
from storage.types import TopicPartition

T, U = frozenset("t"), frozenset("u")
TU = T | U


def group(**topics: frozenset[str]) -> dict[str, MemberSubscription]:
    return {name: MemberSubscription(topics=wanted) for name, wanted in topics.items()}


def as_text(assigned: Assigned) -> dict[str, str]:
    return {
        member: " ".join(f"{topic}{partition}" for topic, partition in partitions)
        for member, partitions in assigned.items()
    }


@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        pytest.param(
            {"t": 5}, group(a=T, b=T), {"a": "t0 t1 t2", "b": "t3 t4"}, id="the rest first"
        ),
        pytest.param(
            {"t": 3, "u": 3},
            group(a=TU, b=TU),
            {"a": "t0 t1 u0 u1", "b": "t2 u2"},
            id="each topic by itself",
        ),
        pytest.param(
            {"t": 1}, group(a=T, b=T), {"a": "t0", "b": ""}, id="more members than partitions"
        ),
        pytest.param({"t": 2, "u": 1}, group(a=T, b=U), {"a": "t0 t1", "b": "u0"}, id="by topic"),
        pytest.param({}, group(a=T), {"a": ""}, id="a topic that is not there"),
    ],
)
def test_range(counts: Mapping[str, int], members: Members, expected: dict[str, str]) -> None:
    assert as_text(assign_range(counts, members)) == expected


@pytest.mark.parametrize(
    ("counts", "members", "expected"),
    [
        pytest.param(
            {"t": 3, "u": 3}, group(a=TU, b=TU), {"a": "t0 t2 u1", "b": "t1 u0 u2"}, id="one by one"
        ),
        pytest.param(
            {"t": 1, "u": 2, "v": 3},
            group(a=frozenset("t"), b=frozenset("tu"), c=frozenset("tuv")),
            {"a": "t0", "b": "u0", "c": "u1 v0 v1 v2"},
            id="Kafka's own example of an uneven one",
        ),
    ],
)
def test_round_robin(counts: Mapping[str, int], members: Members, expected: dict[str, str]) -> None:
    assert as_text(assign_round_robin(counts, members)) == expected


def test_static_members_come_first_in_the_order_of_their_names() -> None:
    members = {
        "x": MemberSubscription(topics=T, group_instance_id="2"),
        "y": MemberSubscription(topics=T, group_instance_id="1"),
        "a": MemberSubscription(topics=T),
    }
    assert as_text(assign_range({"t": 3}, members)) == {"y": "t0", "x": "t1", "a": "t2"}


def having(
    assigned: Assigned, members: Members, generation: int = 1
) -> dict[str, MemberSubscription]:
    return {
        name: MemberSubscription(
            topics=member.topics, owned=tuple(assigned.get(name, ())), generation=generation
        )
        for name, member in members.items()
    }


def test_a_member_that_leaves_or_joins_moves_no_more_than_its_share() -> None:
    members = group(a=T, b=T, c=T)
    first = assign_eager_sticky({"t": 9}, members)
    assert [len(each) for each in first.values()] == [3, 3, 3]
    del members["c"]
    second = assign_eager_sticky({"t": 9}, having(first, members))
    for member in members:
        assert set(second[member]) >= set(first[member])
    members |= group(d=T)
    third = assign_eager_sticky({"t": 9}, having(second, members))
    assert len(third["d"]) == 3
    assert sum(len(set(second[member]) - set(third[member])) for member in "ab") == 3


def test_of_two_claims_the_later_generation_counts() -> None:
    members = {
        "a": MemberSubscription(topics=T, owned=(TopicPartition("t", 0),), generation=4),
        "b": MemberSubscription(topics=T, owned=(TopicPartition("t", 0),), generation=5),
    }
    assert TopicPartition("t", 0) in assign_eager_sticky({"t": 2}, members)["b"]


def test_cooperative_members_give_up_before_another_gets() -> None:
    members = group(a=T)
    first = assign_cooperative_sticky({"t": 4}, members)
    members |= group(b=T)
    second = assign_cooperative_sticky({"t": 4}, having(first, members))
    assert (len(second["a"]), len(second["b"])) == (2, 0), "given up, and not yet given on"
    third = assign_cooperative_sticky({"t": 4}, having(second, members, 2))
    assert second["a"] == third["a"]
    assert len(third["b"]) == 2


TOPICS = ["t", "u", "v"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), min_size=1)
WANTED = st.frozensets(st.sampled_from(TOPICS), min_size=1)
GROUPS = st.dictionaries(st.sampled_from("abcdef"), WANTED, min_size=1)


def check_owners(counts: Mapping[str, int], members: Members, assigned: Assigned) -> None:
    """Rule 1."""
    assert assigned.keys() == members.keys()
    owners = Counter(tp for partitions in assigned.values() for tp in partitions)
    wanted = {topic for member in members.values() for topic in member.topics}
    assert owners == Counter(
        TopicPartition(topic, each)
        for topic, count in counts.items()
        if topic in wanted
        for each in range(count)
    )
    for member, partitions in assigned.items():
        assert {tp.topic for tp in partitions} <= members[member].topics


@settings(max_examples=40)
@given(COUNTS, GROUPS, st.sampled_from(["range", "roundrobin", "sticky"]))
def test_every_partition_has_one_owner_that_wants_it(
    counts: dict[str, int], topics: dict[str, frozenset[str]], name: str
) -> None:
    members = group(**topics)
    assigned = ASSIGNORS[name].assign(counts, members)
    check_owners(counts, members, assigned)
    assert assigned == ASSIGNORS[name].assign(counts, dict(reversed(members.items())))


@settings(max_examples=40)
@given(COUNTS, GROUPS, COUNTS, GROUPS)
def test_sticky_is_even_and_moves_only_what_must_move(
    counts: dict[str, int],
    topics: dict[str, frozenset[str]],
    counts_after: dict[str, int],
    topics_after: dict[str, frozenset[str]],
) -> None:
    before = assign_eager_sticky(counts, group(**topics))
    members = having(before, group(**topics_after))
    after = assign_eager_sticky(counts_after, members)
    check_owners(counts_after, members, after)
    for partitions in after.values():
        for taker, member in members.items():
            if any(tp.topic in member.topics for tp in partitions):
                assert len(partitions) <= len(after[taker]) + 1, "as even as can be"
    assert assign_eager_sticky(counts_after, having(after, members, 2)) == after, "and settled"


@settings(max_examples=40)
@given(
    st.integers(0, 20),
    st.sets(st.sampled_from("abcdef"), min_size=1),
    st.sets(st.sampled_from("abcdef"), min_size=1),
)
def test_with_equal_subscriptions_only_members_above_their_share_give(
    count: int, names: set[str], names_after: set[str]
) -> None:
    before = assign_eager_sticky({"t": count}, group(**dict.fromkeys(names, T)))
    members = having(before, group(**dict.fromkeys(names_after, T)))
    after = assign_eager_sticky({"t": count}, members)
    share = count // len(names_after)
    for member in names & names_after:
        given_up = set(before[member]) - set(after[member])
        assert len(given_up) <= max(len(before[member]) - share, 0)


@settings(max_examples=40)
@given(COUNTS, GROUPS, COUNTS, GROUPS)
def test_cooperative_rebalances_come_to_rest_where_sticky_would(
    counts: dict[str, int],
    topics: dict[str, frozenset[str]],
    counts_after: dict[str, int],
    topics_after: dict[str, frozenset[str]],
) -> None:
    """Nobody is ever given what another has not given up; after that no more than one round."""
    members = having(assign_eager_sticky(counts, group(**topics)), group(**topics_after))
    first = assign_cooperative_sticky(counts_after, members)
    for member, partitions in first.items():
        for other, state in members.items():
            assert other == member or not set(partitions) & set(state.owned)
    second = assign_cooperative_sticky(counts_after, having(first, members, 2))
    check_owners(counts_after, members, second)
    assert assign_cooperative_sticky(counts_after, having(second, members, 3)) == second


def test_a_consumer_is_cooperative_only_if_all_its_assignors_are() -> None:
    both = (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"])
    assert protocol_of(both) is RebalanceProtocol.EAGER
    assert protocol_of(both[1:]) is RebalanceProtocol.COOPERATIVE


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_back_in_every_version(version: int) -> None:
    owned = [TopicPartition("t", 0), TopicPartition("u", 1), TopicPartition("t", 2)]
    subscription = Subscription(
        topics=["t", "u"],
        user_data=b"x",
        owned_partitions=by_topic(owned),
        generation_id=7,
        rack_id="r",
    )
    read = decode_subscription(encode_subscription(subscription, version))
    assert (read.topics, read.user_data) == (["t", "u"], b"x")
    assert sorted(partitions_of(read.owned_partitions)) == (sorted(owned) if version >= 1 else [])
    assert read.generation_id == (7 if version >= 2 else -1)
    assert read.rack_id == ("r" if version >= 3 else None)
    newer = b"\x00\x09" + encode_subscription(subscription)[2:] + b"what comes after"
    assert decode_subscription(newer).rack_id == "r"


def test_an_assignment_is_in_kafkas_bytes() -> None:
    encoded = encode_assignment(
        Assignment(assigned_partitions=by_topic([TopicPartition("t", 1)])), version=0
    )
    assert encoded.hex(" ") == "00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 ff ff ff ff"
    assert partitions_of(decode_assignment(encoded).assigned_partitions) == [TopicPartition("t", 1)]
    sticky = StickyUserData(previous_assignment=by_topic([TopicPartition("t", 1)]), generation=3)
    assert decode_sticky(encode_sticky(sticky)) == sticky
    assert decode_sticky(encode_sticky(sticky)[:-4]).generation == -1
