"""The voters of the metadata log: sets of them, and what the log says of them at each offset."""

from collections.abc import Iterable
from itertools import combinations

import attrs
import pytest
from hypothesis import example, given, strategies as st

from replication.raft.rules.quorum import fresh
from replication.raft.rules.types import Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import (
    BOOTSTRAP_OFFSET,
    NO_VOTERS,
    LogHistory,
    VoterNode,
    VoterSet,
    VoterSetHistory,
    from_wire,
    static_voters,
    to_wire,
    voters_of_record,
)
from replication.wire.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    VoterEndpoint,
)
from tests.replication.raft.quorums import CLUSTER, SETTINGS, endpoints

conformance = pytest.mark.conformance
LISTENER = "CONTROLLER"


def key(node_id: int, disk: int = 1) -> ReplicaKey:
    """Return the name of a node with its first disk, or with one that replaced it."""
    return ReplicaKey(node_id, bytes([disk]) * 16)


def node(node_id: int, disk: int = 1) -> VoterNode:
    return VoterNode(
        key(node_id, disk),
        endpoints(node_id),
        KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(map(node, ids)))


def unnamed(*ids: int) -> VoterSet:
    """Return voters whose directories are not known, as those of the configuration."""
    return static_voters(LISTENER, {each: ("localhost", 9990 + each) for each in ids})


# --- a set of voters -----------------------------------------------------------------------


@conformance("KR-100")
def test_a_set_without_voters_is_empty() -> None:
    assert VoterSet(()) == NO_VOTERS
    assert not NO_VOTERS.ids


@conformance("KR-101", "KR-102", "KR-112")
def test_a_voter_is_reached_at_the_address_of_a_listener() -> None:
    three = voters(1, 2, 3)
    assert three.endpoints(1).address(LISTENER) == ListenerAddress(LISTENER, "localhost", 9991)
    assert three.endpoints(1).address("MISSING") is None
    assert not three.endpoints(4)
    assert unnamed(1, 2, 3).endpoints(3) == endpoints(3)


@conformance("KR-103")
def test_the_order_in_which_voters_are_given_does_not_matter() -> None:
    assert voters(3, 1, 2) == voters(1, 2, 3)
    assert voters(3, 1, 2).ids == {1, 2, 3}


@conformance("KR-104")
def test_a_voter_is_added_unless_its_id_is_there() -> None:
    assert voters(1, 2, 3).with_voter(node(4)) == voters(1, 2, 3, 4)
    assert voters(1, 2, 3).with_voter(node(1)) is None
    assert voters(1, 2, 3).with_voter(node(1, disk=2)) is None


@conformance("KR-105", "KR-107")
def test_a_voter_is_removed_by_its_whole_name_and_never_the_last_one() -> None:
    assert voters(1, 2, 3).without_voter(key(3)) == voters(1, 2)
    assert voters(1, 2, 3).without_voter(key(3, disk=2)) is None
    assert voters(1, 2, 3).without_voter(ReplicaKey(3)) is None
    assert voters(1, 2, 3).without_voter(key(4)) is None
    assert voters(1).without_voter(key(1)) is None


@conformance("KR-106")
def test_a_voter_is_updated_by_its_whole_name() -> None:
    three, moved = voters(1, 2, 3), attrs.evolve(node(3), endpoints=endpoints(33))
    assert three.needs_update(moved)
    assert three.with_update(moved) == VoterSet((node(1), node(2), moved))
    for stranger in (node(4), node(3, disk=2)):
        assert not three.needs_update(stranger)
        assert three.with_update(stranger) is None
    assert not three.needs_update(node(3))


def test_a_voter_without_a_directory_id_is_given_one() -> None:
    named = unnamed(1, 2).with_named(node(2))
    assert named is not None
    assert named.keys == {ReplicaKey(1), key(2)}
    assert named.with_named(node(3)) is None


@conformance("KR-108", "KR-110")
def test_another_disk_is_another_voter() -> None:
    three = voters(1, 2, 3)
    assert three.is_voter(key(1))
    assert not three.is_voter(key(1, disk=2))
    assert not three.is_voter(ReplicaKey(1))
    assert not three.is_voter(key(4))


@conformance("KR-109", "KR-111")
def test_a_voter_whose_disk_is_not_known_has_any_disk() -> None:
    three = unnamed(1, 2, 3)
    assert three.is_voter(ReplicaKey(1))
    assert three.is_voter(key(1))
    assert three.is_voter(key(1, disk=2))
    assert not three.is_voter(key(4))


@conformance("KR-113", "KR-114")
@pytest.mark.parametrize(
    ("of", "me", "alone"),
    [
        pytest.param(voters(1), key(1), True, id="itself"),
        pytest.param(voters(1), key(1, disk=2), False, id="another disk"),
        pytest.param(voters(1), ReplicaKey(1), False, id="no disk"),
        pytest.param(voters(1), key(4), False, id="another node"),
        pytest.param(voters(1, 2), key(1), False, id="one of two"),
    ],
)
def test_a_node_is_the_only_voter(of: VoterSet, me: ReplicaKey, *, alone: bool) -> None:
    quorum = fresh(me, endpoints=endpoints(1), cluster_id=CLUSTER, voters=of, settings=SETTINGS)
    assert quorum.is_only_voter is alone


@conformance("KR-115")
def test_a_set_is_read_back_from_its_record() -> None:
    for each in (voters(1, 2, 3), unnamed(1, 2, 3), NO_VOTERS):
        assert voters_of_record(each.to_record()) == each


def test_the_last_address_of_a_listener_counts() -> None:
    twice = [VoterEndpoint(name=LISTENER, host=host, port=9) for host in ("old", "new")]
    assert from_wire(twice) == Endpoints((ListenerAddress(LISTENER, "new", 9),))
    assert from_wire(to_wire(endpoints(1))) == endpoints(1)


def test_a_set_supports_what_every_voter_supports() -> None:
    assert voters(1, 2).lacking(1) == []
    assert voters(1, 2).lacking(2) == [1, 2]
    assert unnamed(1, 2).lacking(1) == [1, 2]
    assert unnamed(1, 2).lacking(0) == []


@conformance("KR-116", "KR-117")
@pytest.mark.parametrize(
    ("before", "after", "overlaps"),
    [
        pytest.param((1, 2, 3), (1, 2, 3, 4), True, id="one more"),
        pytest.param((1, 2, 3), (2, 3), True, id="one less"),
        pytest.param((1,), (1, 2), True, id="a second one"),
        pytest.param((1, 2, 3, 4), (2, 3, 4, 5), True, id="one of four replaced"),
        pytest.param((1, 2, 3), (2, 3, 4), False, id="one of three replaced"),
        pytest.param((1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 7), False, id="two more"),
        pytest.param((1, 2, 3, 4, 5), (3, 4, 5), False, id="two less"),
        pytest.param((1, 2, 3, 4, 5), (3, 4, 5, 6, 7), False, id="two replaced"),
        pytest.param((1,), (2,), False, id="all replaced"),
    ],
)
def test_majorities_overlap(
    before: tuple[int, ...], after: tuple[int, ...], *, overlaps: bool
) -> None:
    assert voters(*before).has_overlapping_majority(voters(*after)) is overlaps
    assert voters(*after).has_overlapping_majority(voters(*before)) is overlaps


def majorities(of: VoterSet) -> Iterable[set[ReplicaKey]]:
    return map(set, combinations(of.keys, len(of.nodes) // 2 + 1))


@given(
    before=st.sets(st.integers(1, 7), min_size=1).map(lambda ids: voters(*ids)),
    after=st.sets(st.integers(1, 7), min_size=1).map(lambda ids: voters(*ids)),
)
def test_majorities_overlap_as_their_enumeration_says(before: VoterSet, after: VoterSet) -> None:
    naive = all(one & other for one in majorities(before) for other in majorities(after))
    assert before.has_overlapping_majority(after) is naive


# --- the history of a log ------------------------------------------------------------------


def history(*sets: tuple[int, VoterSet], static: VoterSet = NO_VOTERS) -> VoterSetHistory:
    made = VoterSetHistory(static=static)
    for offset, each in sets:
        made = made.after(each.to_record(), offset)
    return made


@conformance("KR-118", "KR-119", "KR-127", "KR-128")
@pytest.mark.parametrize("static", [voters(1, 2, 3), NO_VOTERS], ids=["configured", "none"])
def test_a_log_without_voters_leaves_those_of_the_configuration(static: VoterSet) -> None:
    empty = VoterSetHistory(static=static)
    for each in (empty, empty.truncated(100), empty.trimmed(100), empty.cleared()):
        assert each.voters == static
        assert each.voters_offset is None
        assert each.voters_at(100) is None
        assert (each.kraft_version, each.kraft_version_at(100)) == (0, 0)


@conformance("KR-120", "KR-121", "KR-129")
@pytest.mark.parametrize("first", [BOOTSTRAP_OFFSET, 100])
def test_a_set_counts_from_its_record_on(first: int) -> None:
    changed = history(
        (first, voters(1, 2, 3)), (101, voters(1, 2, 3, 4)), (200, voters(1, 2, 3)),
        static=voters(9),
    )  # fmt: skip
    assert changed.voters_at(first - 1) is None
    assert changed.voters_at(first) == changed.voters_at(100) == voters(1, 2, 3)
    assert changed.voters_at(101) == changed.voters_at(199) == voters(1, 2, 3, 4)
    assert changed.voters_at(200) == changed.voters == voters(1, 2, 3)
    assert changed.voters_offset == 200
    with pytest.raises(AssertionError):
        changed.after(voters(1).to_record(), 200)
    with pytest.raises(AssertionError):
        VoterSetHistory().after(voters(1).to_record(), BOOTSTRAP_OFFSET - 1)


@conformance("KR-122", "KR-123")
def test_what_stands_in_the_log_counts_even_without_an_overlap() -> None:
    """A follower cannot refuse what its leader wrote; the leader checks (Kafka 4.1 does the same)."""
    assert history((100, voters(1, 2, 3)), (200, voters(3))).voters == voters(3)
    assert history((100, voters(3)), static=voters(1, 2, 3)).voters == voters(3)


@conformance("KR-124", "KR-133")
def test_a_truncation_takes_a_set_back() -> None:
    changed = history((100, voters(1, 2)), (200, voters(1, 2, 3)), static=voters(1))
    assert changed.truncated(201) == changed
    assert changed.truncated(200).voters == changed.truncated(101).voters == voters(1, 2)
    assert changed.truncated(100).voters == changed.truncated(0).voters == voters(1)


@conformance("KR-125", "KR-134")
def test_the_newest_set_below_the_start_of_the_log_is_kept() -> None:
    changed = history((100, voters(1, 2)), (200, voters(1, 2, 3)))
    for start in (0, 99, 100, 101, 199):
        assert changed.trimmed(start) == changed
    for start in (200, 300):
        trimmed = changed.trimmed(start)
        assert (trimmed.voters_at(199), trimmed.voters) == (None, voters(1, 2, 3))


@conformance("KR-126")
def test_a_snapshot_takes_the_place_of_what_the_log_said() -> None:
    changed = history((100, voters(1, 2)), (200, voters(1, 2, 3)), static=voters(1))
    assert changed.cleared() == VoterSetHistory(static=voters(1))


@conformance("KR-130", "KR-131", "KR-132")
def test_a_snapshot_counts_at_its_last_offset_and_the_log_goes_on_from_there() -> None:
    empty = VoterSetHistory(static=voters(1))
    version, leader = KRaftVersionRecord(kraft_version=1), LeaderChangeMessage(leader_id=1)
    loaded = empty.cleared().after(version, 9).after(voters(4, 5).to_record(), 9)
    assert (loaded.voters_at(9), loaded.kraft_version_at(9)) == (voters(4, 5), 1)
    assert (loaded.voters_at(8), loaded.kraft_version_at(8)) == (None, 0)
    grown = loaded.after(leader, 10).after(voters(4, 5, 6).to_record(), 11)
    assert (grown.voters, grown.voters_at(9), grown.kraft_version) == (
        *(voters(4, 5, 6), voters(4, 5)),
        1,
    )
    log_alone = empty.after(version, 10).after(voters(4, 5).to_record(), 11)
    assert (log_alone.voters, log_alone.kraft_version_at(10)) == (voters(4, 5), 1)


# Offsets of records with a value each, and what happens to the log that holds them.
LOGS = st.lists(
    st.tuples(st.sampled_from(["add", "truncate", "trim"]), st.integers(0, 5)), max_size=30
)


@example(changes=[("add", 0), ("add", 0), ("trim", 1), ("truncate", 1)])
@given(changes=LOGS)
def test_a_history_is_what_reading_the_log_again_would_give(changes: list[tuple[str, int]]) -> None:
    made: LogHistory[int] = LogHistory()
    records: list[tuple[int, int]] = []
    start = end = 0
    for value, (change, size) in enumerate(changes):
        if change == "add":
            end += size + 1
            made, records = made.added(end - 1, value), [*records, (end - 1, value)]
        elif change == "truncate":
            end = max(start, end - size)
            made, records = made.truncated(end), [each for each in records if each[0] < end]
        else:
            start = min(end, start + size)
            made = made.trimmed(start - 1)
        naive = {at: value for offset, value in records for at in range(offset, end + 1)}
        for offset in range(start, end + 1):
            assert made.at(offset) == naive.get(offset)
        assert made.last == naive.get(end)
        assert sum(offset < start for offset in made.offsets) <= 1, "one counts before the start"
