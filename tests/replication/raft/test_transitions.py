"""The transitions of a node: where it starts, and what each event makes of each state."""

from collections.abc import Callable

import attrs
import pytest

from replication.errors import ErrorCode
from replication.raft.rules.log_view import Diverging
from replication.raft.rules.messages import (
    Answered,
    BeginReceived,
    Disagreement,
    Effect,
    FetchAnswered,
    FetchFrom,
    HighWatermark,
    Lead,
    LogChanged,
    Reply,
    ResignAsked,
    StopLeading,
    TakeFetched,
    TimerExpired,
)
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from replication.raft.rules.types import (
    ElectionState,
    Endpoints,
    ListenerAddress,
    ReplicaKey,
)
from storage.types import OffsetAndEpoch
from tests.replication.raft.quorums import (
    ELECTION_MS,
    EPOCH,
    SETTINGS,
    Node,
    begin,
    candidate,
    end,
    endpoints,
    fetched,
    follower,
    key,
    leading,
    log_to,
    node,
    prospective,
    resigned,
    unattached,
    vote,
    voted_for,
    voter_set,
)

EVERY_STATE = [
    pytest.param(unattached, id="unattached"),
    pytest.param(lambda: voted_for(key(2)), id="voted"),
    pytest.param(prospective, id="prospective"),
    pytest.param(candidate, id="candidate"),
    pytest.param(follower, id="follower"),
    pytest.param(leading, id="leading"),
    pytest.param(resigned, id="resigned"),
]


@pytest.mark.conformance("KR-1")
def test_a_new_node_begins_in_epoch_0() -> None:
    one = node()
    assert one.is_now(Unattached)
    assert one.stored == ElectionState(leader_epoch=0)
    assert one.quorum.deadline_ms == ELECTION_MS


@pytest.mark.conformance("KR-549", "KR-550", "KR-551")
@pytest.mark.parametrize(
    ("election", "state"),
    [
        pytest.param(
            ElectionState(leader_epoch=EPOCH),
            Unattached,
            marks=pytest.mark.conformance("KR-2"),
            id="nothing known",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, leader_id=1),
            Follower,
            marks=pytest.mark.conformance("KR-3"),
            id="a leader",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, leader_id=7),
            Unattached,
            marks=pytest.mark.conformance("KR-4"),
            id="a leader without endpoints",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, voted=key(1)),
            Unattached,
            marks=pytest.mark.conformance("KR-5"),
            id="a vote",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, voted=key(0)),
            Candidate,
            marks=pytest.mark.conformance("KR-6"),
            id="a vote for itself",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, voted=ReplicaKey(0, bytes([9]) * 16)),
            Unattached,
            id="a vote for itself with another disk",
        ),
        pytest.param(
            ElectionState(leader_epoch=EPOCH, leader_id=0),
            Resigned,
            marks=pytest.mark.conformance("KR-7"),
            id="it led",
        ),
    ],
)
def test_a_node_goes_on_where_it_stopped(election: ElectionState, state: type[State]) -> None:
    one = node(election=election)
    assert one.is_now(state)
    assert one.quorum.state.election_state == election


@pytest.mark.conformance("KR-46")
def test_the_log_knows_a_later_epoch_than_the_file() -> None:
    one = node(election=ElectionState(leader_epoch=2, voted=key(1)), log=log_to(3, epoch=4))
    assert one.stored == ElectionState(leader_epoch=4)


# --- Unattached, with a vote and without ---------------------------------------------------


@pytest.mark.conformance("KR-21")
def test_an_unattached_voter_votes_once() -> None:
    one = unattached()
    granted = one.step(vote(2))
    assert granted is not None
    assert granted.vote_granted
    assert one.stored == ElectionState(leader_epoch=EPOCH, voted=key(2))
    assert one.quorum.state.deadline_ms == ELECTION_MS


@pytest.mark.conformance("KR-22")
def test_a_vote_in_a_higher_epoch_is_a_vote_in_it() -> None:
    one = unattached()
    one.step(vote(2, epoch=EPOCH + 1))
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(2))


@pytest.mark.conformance("KR-23", "KR-28")
@pytest.mark.parametrize("made", [unattached, lambda: voted_for(key(2))])
def test_after_an_election_timeout_a_voter_stands(made: Callable[[], Node]) -> None:
    one = made()
    voted = one.quorum.state.election_state.voted
    one.step(TimerExpired(), after_ms=ELECTION_MS - 1)
    assert one.is_now(Unattached)
    one.step(TimerExpired(), after_ms=1)
    assert one.is_now(Prospective)
    assert one.stored == ElectionState(leader_epoch=EPOCH, voted=voted)
    one.answer(one.sent[0], epoch=EPOCH)
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(0))


@pytest.mark.conformance("KR-24", "KR-32")
@pytest.mark.parametrize("made", [unattached, lambda: voted_for(key(1))])
def test_a_higher_epoch_does_not_put_the_election_off(made: Callable[[], Node]) -> None:
    one = made()
    due_ms = one.quorum.state.deadline_ms
    refused = one.step(vote(2, epoch=EPOCH + 1, pre_vote=True), after_ms=100)
    assert refused is not None
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1)
    assert one.quorum.state.deadline_ms == due_ms


@pytest.mark.conformance("KR-536")
@pytest.mark.parametrize(
    ("made", "voted"),
    [
        pytest.param(unattached, None, marks=pytest.mark.conformance("KR-25"), id="unattached"),
        pytest.param(
            lambda: voted_for(key(2)), key(2), marks=pytest.mark.conformance("KR-30"), id="voted"
        ),
        pytest.param(candidate, key(0), marks=pytest.mark.conformance("KR-11"), id="candidate"),
        pytest.param(prospective, None, id="prospective"),
    ],
)
def test_the_leader_of_this_epoch_is_followed(
    made: Callable[[], Node], voted: ReplicaKey | None
) -> None:
    one = made()
    one.step(begin(1))
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=1, voted=voted)
    assert one.quorum.deadline_ms == one.now_ms + SETTINGS.fetch_timeout_ms
    source = FetchFrom(leader_epoch=EPOCH, leader_id=1, endpoints=endpoints(1))
    assert source in one.effects


@pytest.mark.conformance("KR-535")
@pytest.mark.conformance("KR-16", "KR-26", "KR-31", "KR-36")
@pytest.mark.parametrize("made", EVERY_STATE)
def test_the_leader_of_a_higher_epoch_is_followed(made: Callable[[], Node]) -> None:
    one = made()
    was_leading = one.is_now(Leading)
    one.step(begin(2, epoch=EPOCH + 1))
    assert one.is_now(Follower)
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, leader_id=2)
    assert (StopLeading(EPOCH) in one.effects) == was_leading


@pytest.mark.conformance("KR-12", "KR-17", "KR-38")
@pytest.mark.parametrize("made", EVERY_STATE)
def test_a_higher_epoch_without_a_leader_is_taken(made: Callable[[], Node]) -> None:
    one = made()
    one.step(vote(2, epoch=EPOCH + 3, pre_vote=True))
    assert one.is_now(Unattached)
    assert one.stored == ElectionState(leader_epoch=EPOCH + 3)


@pytest.mark.conformance("KR-534")
@pytest.mark.conformance("KR-13", "KR-18", "KR-39")
@pytest.mark.parametrize("made", EVERY_STATE)
def test_every_state_votes_in_a_higher_epoch(made: Callable[[], Node]) -> None:
    one = made()
    granted = one.step(vote(2, epoch=EPOCH + 1))
    assert granted is not None
    assert granted.vote_granted
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(2))


@pytest.mark.conformance("KR-528")
@pytest.mark.conformance("KR-14", "KR-19", "KR-27", "KR-33", "KR-40")
@pytest.mark.parametrize("event", [vote(2, epoch=4), begin(2, epoch=4), end(2, epoch=4)])
@pytest.mark.parametrize("made", EVERY_STATE)
def test_a_lower_epoch_is_fenced(made: Callable[[], Node], event: BeginReceived) -> None:
    one = made()
    before = one.quorum
    fenced = one.step(event)
    assert fenced is not None
    assert fenced.error == ErrorCode.FENCED_LEADER_EPOCH
    assert (fenced.leader_epoch, fenced.leader_id) == (EPOCH, before.leader_id)
    assert one.quorum == before


@pytest.mark.conformance("KR-20")
def test_nobody_follows_itself_or_votes_for_a_request_of_its_own() -> None:
    one = unattached()
    for event in (begin(0, epoch=EPOCH + 1), end(0), vote(0, epoch=EPOCH + 1)):
        refused = one.step(event)
        assert refused is not None
        assert refused.error == ErrorCode.INVALID_REQUEST
        assert one.stored == ElectionState(leader_epoch=EPOCH)


@pytest.mark.conformance("KR-34")
def test_a_second_leader_in_one_epoch_is_not_believed() -> None:
    for made in (follower, leading, resigned):
        one = made()
        refused = one.step(begin(2))
        assert refused is not None
        assert refused.error == ErrorCode.INVALID_REQUEST
        assert isinstance(one.effects[0], Disagreement)
        assert one.quorum.leader_id != 2


@pytest.mark.conformance("KR-35", "KR-83")
def test_more_endpoints_of_the_leader_are_kept() -> None:
    one = follower()
    more = Endpoints((*endpoints(1).addresses, ListenerAddress("SECOND", "localhost", 1)))
    one.step(attrs.evolve(begin(1), leader_endpoints=more))
    assert one.quorum.leader_endpoints == more
    one.step(begin(1))
    assert one.quorum.leader_endpoints == more


@pytest.mark.conformance("KR-405")
def test_a_follower_fetches_where_the_leader_says_that_it_is() -> None:
    one = follower(voters=(0, 2))
    one.step(attrs.evolve(begin(1), leader_endpoints=endpoints(1)))
    [fetching] = [each for each in one.effects if isinstance(each, FetchFrom)]
    assert fetching.endpoints == endpoints(1)
    more = Endpoints((*endpoints(1).addresses, ListenerAddress("SECOND", "localhost", 1)))
    one.step(attrs.evolve(begin(1), leader_endpoints=more))
    [fetching] = [each for each in one.effects if isinstance(each, FetchFrom)]
    assert (fetching.leader_id, fetching.endpoints) == (1, more)
    one.step(attrs.evolve(begin(1), leader_endpoints=endpoints(1)))
    assert not any(isinstance(each, FetchFrom) for each in one.effects)


@pytest.mark.conformance("KR-41")
def test_a_leader_that_is_not_in_the_voter_set_is_followed() -> None:
    one = unattached()
    one.step(attrs.evolve(begin(9), leader_endpoints=endpoints(9)))
    assert one.is_now(Follower)
    assert one.quorum.leader_id == 9


def test_a_leader_without_known_endpoints_is_looked_for() -> None:
    one = unattached()
    one.step(begin(9))
    assert one.is_now(Unattached)
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=9)
    refused = one.step(vote(2))
    assert refused is not None
    assert not refused.vote_granted


# --- Follower ------------------------------------------------------------------------------


@pytest.mark.conformance("KR-578")
@pytest.mark.conformance("KR-37", "KR-60")
def test_a_follower_that_fetches_nothing_stands_and_goes_back() -> None:
    one = follower()
    one.step(fetched(), after_ms=SETTINGS.fetch_timeout_ms - 1)
    assert TakeFetched() in one.effects
    one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms - 1)
    assert one.is_now(Follower)
    one.step(TimerExpired(), after_ms=1)
    assert one.is_now(Prospective)
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=1)
    for sent in one.sent:
        one.answer(sent, epoch=EPOCH, granted=False)
    assert one.is_now(Follower)
    assert one.quorum.leader_id == 1


@pytest.mark.conformance("KR-48", "KR-59")
def test_the_high_watermark_is_kept_and_only_goes_forward() -> None:
    one = follower()
    one.log = log_to(10, epoch=EPOCH)
    moved: list[Effect] = []
    for leaders in (8, 7, 12, None):
        one.step(LogChanged(high_watermark=leaders))
        moved += one.effects
    assert moved == [HighWatermark(8), HighWatermark(10)]
    one.step(begin(2, epoch=EPOCH + 1))
    one.step(vote(2, epoch=EPOCH + 2))
    assert one.quorum.high_watermark == 10


def test_a_leader_that_takes_back_what_is_committed_is_not_believed() -> None:
    one = follower()
    one.log = log_to(10, epoch=EPOCH)
    one.step(LogChanged(high_watermark=8))
    reply = attrs.evolve(fetched().reply, position=Diverging(OffsetAndEpoch(7, 3)))
    one.step(FetchAnswered(reply))
    assert [type(each) for each in one.effects] == [Disagreement]


# --- Candidate, Leading, Resigned ----------------------------------------------------------


@pytest.mark.conformance("KR-8", "KR-91")
def test_a_candidate_without_a_majority_asks_again_before_it_raises_the_epoch() -> None:
    one = candidate()
    for sent in one.sent:
        one.answer(sent, epoch=EPOCH, granted=False)
    assert one.is_now(Candidate)
    one.step(TimerExpired(), after_ms=ELECTION_MS)
    assert one.is_now(Prospective)
    assert one.stored == ElectionState(leader_epoch=EPOCH, voted=key(0))
    one.answer(one.sent[0], epoch=EPOCH)
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(0))


@pytest.mark.conformance("KR-548")
@pytest.mark.conformance("KR-9", "KR-82")
def test_a_majority_makes_a_leader() -> None:
    one = candidate()
    one.log = log_to(4, epoch=2)
    one.answer(one.sent[1], epoch=EPOCH)
    assert one.is_now(Leading)
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=0)
    led = Lead(
        leader_epoch=EPOCH,
        epoch_start_offset=4,
        voters=voter_set(0, 1, 2),
        granting=frozenset({0, 2}),
    )
    assert led in one.effects


@pytest.mark.conformance("KR-577")
@pytest.mark.conformance("KR-10")
def test_votes_of_another_epoch_or_kind_do_not_count() -> None:
    asking = prospective()
    asked = asking.sent[0]
    asking.answer(asking.sent[0], epoch=EPOCH)
    assert asking.is_now(Candidate)
    asking.step(Answered(asked, Reply(error=ErrorCode.NONE, leader_epoch=6, vote_granted=True)))
    assert asking.is_now(Candidate)
    again = candidate()
    again.step(TimerExpired(), after_ms=ELECTION_MS)
    assert again.is_now(Prospective)
    again.answer(candidate().sent[0], epoch=EPOCH)
    assert again.is_now(Prospective)


def test_after_a_lost_election_a_node_waits_anew() -> None:
    one = prospective()
    one.now_ms += 100
    for sent in one.sent:
        one.answer(sent, epoch=EPOCH, granted=False)
    assert one.is_now(Unattached)
    assert one.quorum.deadline_ms == one.now_ms + ELECTION_MS


@pytest.mark.conformance("KR-517")
@pytest.mark.conformance("KR-15", "KR-79")
def test_a_leader_resigns_from_the_epoch_that_it_leads_in() -> None:
    one = leading()
    for epoch in (EPOCH - 1, EPOCH + 1):
        one.step(ResignAsked(epoch))
        assert one.is_now(Leading)
    one.step(ResignAsked(EPOCH))
    assert one.is_now(Resigned)
    assert StopLeading(EPOCH) in one.effects
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=0)


@pytest.mark.conformance("KR-47")
def test_who_leads_as_the_node_knows() -> None:
    assert [
        made().quorum.leader_id
        for made in (unattached, prospective, candidate, follower, leading, resigned)
    ] == [None, None, None, 1, 0, 0]
