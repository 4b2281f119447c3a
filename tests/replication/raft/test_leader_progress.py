"""What a leader knows of its followers: what is committed, who follows, who is to lead next."""

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.errors import ErrorCode
from replication.raft.rules.leader import OBSERVER_SESSION_MS, LeaderProgress, lead
from replication.raft.rules.messages import (
    EndCall,
    FetchReceived,
    HighWatermark,
    LogChanged,
    Misconfiguration,
    TimerExpired,
    VotersChanged,
)
from replication.raft.rules.states import Leading, Resigned
from replication.raft.rules.types import NO_DIRECTORY_ID, ReplicaKey
from replication.raft.rules.voters import VoterSet, static_voters
from tests.replication.raft.quorums import SETTINGS, Node, endpoints, key, log_to, node, voter_set

conformance = pytest.mark.conformance
ME = key(1)
CHECK_MS = 3_000
ANOTHER_DISK = bytes([99]) * 16
MakeVoters = Callable[..., VoterSet]


def unnamed(*ids: int) -> VoterSet:
    return static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in ids})


def leading(voters: VoterSet, *, start: int = 0, end: int | None = None) -> LeaderProgress:
    """Return what the leader 1 knows at time 0, after it has flushed its log up to `end`."""
    progress = lead(
        ME,
        epoch_start_offset=start,
        voters=voters,
        check_quorum_timeout_ms=CHECK_MS,
        now_ms=0,
    )
    return progress if end is None else progress.flushed(end)


def fetch(progress: LeaderProgress, *fetches: tuple[int, int], now_ms: int = 0) -> LeaderProgress:
    """Return the progress after fetches of a replica from an offset each."""
    for replica, offset in fetches:
        progress = progress.fetched(key(replica), offset, now_ms=now_ms)
    return progress


# --- the high watermark --------------------------------------------------------------------

NAMED_OR_NOT = pytest.mark.parametrize(
    "voters_of", [pytest.param(voter_set, id="named"), pytest.param(unnamed, id="unnamed")]
)


@conformance("KR-557")
@conformance("KR-138", "KR-140", "KR-141")
def test_a_leader_alone_commits_what_it_has_flushed_in_its_epoch() -> None:
    alone = leading(voter_set(1), start=15, end=15)
    assert alone.high_watermark is None
    assert alone.flushed(16).high_watermark == 16
    assert alone.flushed(16).flushed(16).high_watermark == 16
    assert alone.flushed(16).flushed(20).high_watermark == 20


@conformance("KR-142")
@NAMED_OR_NOT
def test_two_commit_what_both_have(voters_of: MakeVoters) -> None:
    two = leading(voters_of(1, 2), start=10, end=13)
    assert two.high_watermark is None
    assert fetch(two, (2, 10)).high_watermark is None
    assert fetch(two, (2, 11)).high_watermark == 11
    assert fetch(two, (2, 11), (2, 13)).high_watermark == 13


@conformance("KR-143")
@NAMED_OR_NOT
def test_three_commit_what_two_have(voters_of: MakeVoters) -> None:
    three = leading(voters_of(1, 2, 3), start=10, end=15)
    begun = fetch(three, (2, 10), (3, 10))
    assert begun.high_watermark is None
    grown = fetch(begun, (3, 15))
    assert grown.high_watermark == grown.flushed(20).high_watermark == 15
    assert fetch(grown.flushed(20), (2, 20)).high_watermark == 20


@conformance("KR-139", "KR-148")
@NAMED_OR_NOT
def test_the_high_watermark_does_not_go_back(voters_of: MakeVoters) -> None:
    two = fetch(leading(voters_of(1, 2), end=10), (2, 10))
    assert (two.high_watermark, fetch(two, (2, 5)).high_watermark) == (10, 10)


@conformance("KR-144")
def test_a_new_voter_counts_with_what_it_had_as_an_observer() -> None:
    two = fetch(leading(voter_set(1, 2), start=5, end=15), (2, 10), (3, 15))
    assert two.high_watermark == 10
    three = two.among(voter_set(1, 2, 3))
    assert three.high_watermark == three.flushed(16).high_watermark == 15
    assert fetch(three.flushed(16), (3, 16)).high_watermark == 16


@conformance("KR-145")
def test_a_new_voter_that_is_behind_takes_nothing_back() -> None:
    three = fetch(leading(voter_set(1, 2, 3), start=5, end=15), (2, 15), (3, 10), (4, 10))
    four = three.among(voter_set(1, 2, 3, 4)).flushed(16)
    assert three.high_watermark == four.high_watermark == 15
    behind = fetch(four, (3, 13), (4, 13), (2, 16))
    assert behind.high_watermark == 15
    assert fetch(behind, (4, 16)).high_watermark == 16


@conformance("KR-146")
def test_a_voter_that_is_removed_does_not_count_any_more() -> None:
    three = fetch(leading(voter_set(1, 2, 3), start=10, end=15), (2, 15), (3, 10))
    left = fetch(three.among(voter_set(1, 3)).flushed(18), (3, 14), (2, 18), (3, 15))
    assert left.high_watermark == 15
    assert fetch(left, (3, 16)).high_watermark == 16


@conformance("KR-147")
def test_a_leader_that_is_removed_does_not_count_any_more() -> None:
    three = fetch(leading(voter_set(1, 2, 3), start=10, end=15), (2, 15), (3, 10))
    left = fetch(three.among(voter_set(2, 3)).flushed(18), (2, 16), (3, 15))
    assert left.high_watermark == 15
    assert fetch(left, (3, 16)).high_watermark == 16
    assert left.observers(0).keys() == {ME}


@conformance("KR-154")
def test_a_voter_that_gets_a_name_keeps_what_it_has() -> None:
    unnamed_three = fetch(leading(unnamed(1, 2, 3), end=10), (2, 10))
    named = unnamed_three.among(voter_set(1, 2, 3)).flushed(15)
    assert named.of(key(2)).end_offset == named.high_watermark == 10
    assert fetch(named, (3, 13)).high_watermark == 13


def test_another_disk_of_a_voter_does_not_count() -> None:
    two = leading(voter_set(1, 2), end=10)
    stranger = two.fetched(ReplicaKey(2, b"another disk    "), 10, now_ms=0)
    assert stranger.high_watermark is None
    assert stranger.of(key(2)).end_offset is None
    assert len(stranger.observers(0)) == 1


# What happens at a leader: it flushes more, a replica fetches, one voter joins or leaves.
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(["flush", "fetch", "voter"]), st.integers(1, 5), st.integers(0, 9)),
    max_size=40,
)


@given(start=st.integers(0, 5), happenings=HAPPENINGS)
def test_the_high_watermark_is_what_counting_each_offset_gives(
    start: int, happenings: list[tuple[str, int, int]]
) -> None:
    ids, end, flushed = {1, 2, 3}, start, {1: start}
    progress = leading(voter_set(*ids), start=start, end=start)
    naive: int | None = None
    for what, replica, offset in happenings:
        match what:
            case "flush":
                end += offset
                flushed[1] = end
                progress = progress.flushed(end)
            case "fetch" if replica != 1:
                flushed[replica] = min(offset, end)
                progress = fetch(progress, (replica, min(offset, end)))
            case "voter" if ids ^ {replica}:
                ids ^= {replica}
                progress = progress.among(voter_set(*ids))
        committed = [
            each
            for each in range(start + 1, end + 1)
            if 2 * sum(flushed.get(voter, -1) >= each for voter in ids) > len(ids)
        ]
        naive = max([*committed, *([] if naive is None else [naive])], default=None)
        assert progress.high_watermark == naive


# --- who follows ---------------------------------------------------------------------------


@conformance("KR-150")
@NAMED_OR_NOT
def test_a_leader_that_no_majority_follows_resigns(voters_of: MakeVoters) -> None:
    five = leading(voters_of(1, 2, 3, 4, 5), end=0)
    assert five.deadline_ms == CHECK_MS
    half = fetch(five, (2, 0), (3, 0), now_ms=CHECK_MS // 2)
    assert half.deadline_ms == CHECK_MS // 2 + CHECK_MS
    assert fetch(half, (4, 0), (6, 0), now_ms=CHECK_MS).deadline_ms == half.deadline_ms


@conformance("KR-151")
def test_a_change_of_the_voters_does_not_end_a_leader_sooner() -> None:
    half, whole = CHECK_MS // 2, CHECK_MS
    three = fetch(leading(voter_set(1, 2, 3), end=0), (2, 0), now_ms=half)
    assert three.deadline_ms == half + CHECK_MS
    four = fetch(three.among(voter_set(1, 2, 3, 4)), (2, 0), now_ms=whole)
    assert four.deadline_ms == half + CHECK_MS
    four = fetch(four, (3, 0), now_ms=whole)
    assert four.deadline_ms == whole + CHECK_MS
    without_me = fetch(four.among(voter_set(2, 3, 4)), (3, 0), now_ms=whole + half)
    assert without_me.deadline_ms == whole + CHECK_MS
    without_me = fetch(without_me, (2, 0), now_ms=whole + half)
    assert without_me.deadline_ms == whole + half + CHECK_MS


@conformance("KR-559")
@conformance("KR-152")
def test_a_leader_alone_never_resigns_for_want_of_followers() -> None:
    alone = leading(voter_set(1), end=0)
    assert alone.deadline_ms is None
    assert fetch(alone, (2, 0), now_ms=CHECK_MS).deadline_ms is None


def test_a_voter_that_reads_a_snapshot_is_alive() -> None:
    two = leading(voter_set(1, 2), end=5).is_alive(key(2), now_ms=100)
    assert two.deadline_ms == 100 + CHECK_MS
    assert two.of(key(2)).end_offset is None
    assert two.is_alive(key(3), now_ms=200) == two


@conformance("KR-149")
@NAMED_OR_NOT
def test_the_voter_that_has_the_most_is_to_lead_next(voters_of: MakeVoters) -> None:
    four = fetch(leading(voters_of(1, 2, 3, 4), start=10, end=15), (2, 10), (3, 15), (9, 15))
    assert [each.id for each in four.successors] == [3, 2, 4]


def test_a_replica_has_caught_up_when_it_has_read_to_the_end() -> None:
    progress = leading(voter_set(1, 2), end=10)
    assert progress.of(key(3)).last_caught_up_ms is None
    progress = fetch(progress, (3, 4), now_ms=100)
    assert progress.of(key(3)).last_caught_up_ms is None
    grown = fetch(progress.flushed(20), (3, 10), now_ms=200)
    assert grown.of(key(3)).last_caught_up_ms == 100  # it has what the leader had then
    assert fetch(grown, (3, 20), now_ms=300).of(key(3)).last_caught_up_ms == 300


def test_an_observer_that_is_silent_is_forgotten() -> None:
    progress = fetch(leading(voter_set(1, 2), end=10), (2, 4), (7, 4))
    late = OBSERVER_SESSION_MS
    assert progress.observers(late - 1).keys() == {key(7)}
    assert not progress.observers(late)
    later = fetch(progress, (8, 4), now_ms=late)
    assert later.replicas.keys() == {ME, key(2), key(8)}, "a voter is not forgotten"


# --- as a step of the node -----------------------------------------------------------------


def leader_of_three() -> Node:
    """Return a node that leads in epoch 1, whose log ends at 3 after the start of its epoch."""
    one = node(1, voters=[1, 2, 3])
    one.step(TimerExpired(), after_ms=100_000)
    for epoch in (0, 1):
        one.answer(one.sent[0], epoch=epoch)
    assert one.is_now(Leading)
    one.log = log_to(3, epoch=1)
    one.step(LogChanged())
    return one


def fetch_of(replica: int, offset: int | None, *, epoch: int = 1) -> FetchReceived:
    return FetchReceived(
        replica=key(replica), leader_epoch=1, fetch_offset=offset, last_fetched_epoch=epoch
    )


def test_a_fetch_commits_what_is_below_its_offset() -> None:
    one = leader_of_three()
    reply = one.step(fetch_of(2, 0, epoch=0))
    assert reply is not None
    assert reply.high_watermark is None
    reply = one.step(fetch_of(2, 2))
    assert reply is not None
    assert reply.high_watermark == one.quorum.high_watermark == 2
    assert HighWatermark(2) in one.effects


def test_what_a_follower_has_yet_to_truncate_does_not_count() -> None:
    one = leader_of_three()
    one.step(fetch_of(2, 9))
    assert one.quorum.high_watermark is None


@conformance("KR-563")
@conformance("KR-523")
def test_a_follower_that_was_truncated_has_less() -> None:
    one = leader_of_three()
    for offset in (3, 1):
        one.step(fetch_of(2, offset))
        assert isinstance(one.state, Leading)
        assert one.state.progress.of(key(2)).end_offset == offset
    assert one.quorum.high_watermark == 3


def test_a_consumer_is_no_replica() -> None:
    one = leader_of_three()
    one.step(attrs.evolve(fetch_of(2, 3), replica=ReplicaKey(-1)))
    assert isinstance(one.state, Leading)
    assert one.state.progress.replicas.keys() == {key(1)}


@conformance("KR-560")
@pytest.mark.parametrize("reads_a_snapshot", [False, True])
def test_of_two_processes_with_the_id_of_a_voter_one_counts(*, reads_a_snapshot: bool) -> None:
    """The other one counts after the first has been silent for as long as check quorum takes."""
    one, patience_ms = leader_of_three(), SETTINGS.fetch_timeout_ms * 3 // 2
    one.step(VotersChanged(unnamed(1, 2, 3)))
    one.step(LogChanged())
    one.step(fetch_of(2, None if reads_a_snapshot else 2))
    second = attrs.evolve(fetch_of(2, 3), replica=ReplicaKey(2, ANOTHER_DISK))
    reply = one.step(second, after_ms=patience_ms - 1)
    assert reply is not None
    assert reply.error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert Misconfiguration("two processes fetch as controller 2") in one.effects
    assert one.quorum.high_watermark == (None if reads_a_snapshot else 2)
    for waiting in (fetch_of(2, 2), attrs.evolve(second, has_waited=True)):
        reply = one.step(waiting)
        assert reply is not None
        assert reply.error == ErrorCode.NONE
    reply = one.step(second, after_ms=patience_ms)
    assert reply is not None
    assert reply.error == ErrorCode.NONE
    assert one.quorum.high_watermark == 3


def test_a_fetch_without_a_directory_counts_for_its_voter() -> None:
    """Replicas before Fetch version 17 name none."""
    one = leader_of_three()
    one.step(VotersChanged(unnamed(1, 2, 3)))
    one.step(LogChanged())
    for directory_id in (key(2).directory_id, NO_DIRECTORY_ID, ANOTHER_DISK):
        reply = one.step(attrs.evolve(fetch_of(2, 2), replica=ReplicaKey(2, directory_id)))
        assert reply is not None
        assert reply.error == ErrorCode.NONE


@conformance("KR-530")
@conformance("KR-136", "KR-156")
def test_a_voter_that_fetches_need_not_be_told_of_the_epoch() -> None:
    one, interval_ms = leader_of_three(), SETTINGS.fetch_timeout_ms // 2
    one.step(fetch_of(2, 0, epoch=0), after_ms=interval_ms - 1)
    one.step(TimerExpired(), after_ms=1)
    assert [each.to for each in one.sent] == [key(3)]
    one.step(TimerExpired(), after_ms=interval_ms - 1)
    assert [each.to for each in one.sent] == [key(2)]


@conformance("KR-137")
def test_an_observer_is_not_told_of_the_epoch() -> None:
    one = leader_of_three()
    one.step(fetch_of(7, 3))
    one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
    assert {each.to for each in one.sent} == {key(2), key(3)}


@conformance("KR-527", "KR-623")
@pytest.mark.parametrize("reads_a_snapshot", [False, True])
def test_a_leader_resigns_one_and_a_half_fetch_timeouts_after_the_last_majority(
    *, reads_a_snapshot: bool
) -> None:
    one, patience_ms = leader_of_three(), SETTINGS.fetch_timeout_ms * 3 // 2
    one.step(fetch_of(3, None if reads_a_snapshot else 2), after_ms=patience_ms - 1)
    one.step(TimerExpired(), after_ms=patience_ms - 1)
    assert one.is_now(Leading)
    one.step(TimerExpired(), after_ms=1)
    assert one.is_now(Resigned)
    first = 2 if reads_a_snapshot else 3
    successors = (key(first), key(5 - first))
    assert {each.call for each in one.sent} == {EndCall(leader_epoch=1, successors=successors)}


@conformance("KR-153", "KR-155")
def test_a_leader_names_itself_and_votes_for_nobody() -> None:
    state = leader_of_three().state
    assert isinstance(state, Leading)
    assert state.leader_endpoints == endpoints(1)
    for up_to_date in (False, True):
        for pre_vote in (False, True):
            assert not state.grants(key(2), up_to_date=up_to_date, pre_vote=pre_vote)


def test_a_voter_that_joins_or_leaves_changes_what_is_committed() -> None:
    one = leader_of_three()
    one.step(VotersChanged(voter_set(1)))
    assert HighWatermark(3) in one.effects
    assert one.quorum.deadline_ms is None
