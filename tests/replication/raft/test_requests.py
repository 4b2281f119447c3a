"""Elections as they go on, and leaders that begin, resign and stop."""

from collections.abc import Callable

import attrs
import pytest

from replication.errors import ErrorCode
from replication.raft.rules.messages import (
    Answered,
    BeginCall,
    Call,
    EndCall,
    FetchAnswered,
    FetchReceived,
    Reply,
    ShutdownAsked,
    ShutdownComplete,
    TakeFetched,
    TimerExpired,
    Unanswered,
    VotersChanged,
)
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    Resigned,
    Unattached,
)
from replication.raft.rules.types import ElectionState
from tests.replication.raft.quorums import (
    ELECTION_MS,
    EPOCH,
    SETTINGS,
    Node,
    begin,
    candidate,
    end,
    follower,
    key,
    leading,
    node,
    prospective,
    resigned,
    unattached,
    vote,
    voter_set,
)

# --- elections -----------------------------------------------------------------------------


@pytest.mark.conformance("KR-50", "KR-71", "KR-72")
def test_the_only_voter_leads_at_once_in_a_new_epoch() -> None:
    for election, epoch in (
        (None, 1),
        (ElectionState(leader_epoch=EPOCH), EPOCH + 1),
        (ElectionState(leader_epoch=EPOCH, leader_id=0), EPOCH + 1),
        (ElectionState(leader_epoch=EPOCH, leader_id=1), EPOCH + 1),
        (ElectionState(leader_epoch=EPOCH, voted=key(0)), EPOCH),
    ):
        one = node(voters=[0], election=election)
        assert one.is_now(Leading)
        assert one.stored == ElectionState(leader_epoch=epoch, leader_id=0)
        assert one.quorum.deadline_ms is None


@pytest.mark.parametrize(
    ("voters", "granted", "won", "lost"),
    [
        pytest.param(
            (0, 1), [False], False, True, marks=pytest.mark.conformance("KR-51"), id="1 of 2"
        ),
        pytest.param((0, 1), [True], True, False, id="2 of 2"),
        pytest.param(
            (0, 1, 2), [True], True, False, marks=pytest.mark.conformance("KR-52"), id="2 of 3"
        ),
        pytest.param((0, 1, 2), [False], False, False, id="one of 3 refused"),
        pytest.param(
            (0, 1, 2),
            [False, False],
            False,
            True,
            marks=pytest.mark.conformance("KR-53"),
            id="two of 3 refused",
        ),
        pytest.param((0, 1, 2, 3), [True], False, False, id="2 of 4"),
        pytest.param((0, 1, 2, 3), [False, False], False, True, id="two of 4 refused"),
    ],
)
def test_what_makes_a_majority(
    voters: tuple[int, ...], granted: list[bool], *, won: bool, lost: bool
) -> None:
    one = candidate(voters=voters)
    for sent, grants in zip(one.sent, granted, strict=False):
        one.answer(sent, epoch=EPOCH, granted=grants)
    assert one.is_now(Leading) == won
    if isinstance(one.quorum.state, Candidate):
        assert one.quorum.state.election.is_lost == lost


@pytest.mark.conformance("KR-54", "KR-55")
def test_a_voter_has_one_vote_and_others_have_none() -> None:
    one = candidate(voters=(0, 1, 2, 3, 4))
    first = one.sent[0]
    one.answer(first, epoch=EPOCH, granted=False)
    one.answer(first, epoch=EPOCH)
    one.answer(attrs.evolve(first, to=key(9)), epoch=EPOCH)
    state = one.quorum.state
    assert isinstance(state, Candidate)
    assert state.election.unrecorded == {2, 3, 4}
    assert state.election.rejected == {1}
    assert state.election.granted == {0}


@pytest.mark.conformance("KR-57")
def test_a_vote_for_itself_of_a_node_that_is_no_voter_is_only_kept() -> None:
    one = node(voters=(1, 2), election=ElectionState(leader_epoch=EPOCH, voted=key(0)))
    assert one.is_now(Unattached)
    assert one.sent == []


@pytest.mark.conformance("KR-87")
def test_a_vote_request_without_an_answer_is_sent_again() -> None:
    for made in (prospective, candidate):
        one = made()
        lost = one.sent[0]
        one.step(Unanswered(lost))
        assert one.quorum.deadline_ms == one.now_ms + SETTINGS.retry_backoff_ms
        one.step(TimerExpired(), after_ms=SETTINGS.retry_backoff_ms)
        assert one.sent == [lost]


@pytest.mark.conformance("KR-537")
@pytest.mark.parametrize(
    ("error", "leader_epoch"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, EPOCH),
        (ErrorCode.INVALID_VOTER_KEY, EPOCH),
        (ErrorCode.INVALID_REQUEST, EPOCH),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, EPOCH),
    ],
)
def test_an_error_is_no_vote(error: ErrorCode, leader_epoch: int) -> None:
    one = candidate()
    asked = one.sent[0]
    one.step(Answered(asked, Reply(error=error, leader_epoch=leader_epoch, vote_granted=True)))
    assert one.is_now(Candidate)
    one.step(TimerExpired(), after_ms=SETTINGS.retry_backoff_ms)
    assert one.sent == [asked]


def test_an_answer_tells_of_a_leader_and_of_a_higher_epoch() -> None:
    one = candidate()
    one.step(
        Answered(
            one.sent[0],
            Reply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=EPOCH + 2, leader_id=1),
        )
    )
    assert one.stored == ElectionState(leader_epoch=EPOCH + 2, leader_id=1)
    one = candidate()
    one.step(Answered(one.sent[0], Reply(error=ErrorCode.NONE, leader_epoch=EPOCH, leader_id=2)))
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=2, voted=key(0))


def test_a_voter_without_pre_votes_ends_them() -> None:
    one = prospective()
    too_old = Reply(error=ErrorCode.UNSUPPORTED_VERSION, leader_epoch=-1)
    one.step(Answered(one.sent[0], too_old))
    assert one.is_now(Candidate)
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(0))


def test_an_election_that_is_lost_asks_nobody_any_more() -> None:
    one = candidate(voters=(0, 1, 2, 3))
    first, second, silent = one.sent
    one.step(Unanswered(silent))
    for sent in (first, second):
        one.answer(sent, epoch=EPOCH, granted=False)
    one.step(TimerExpired(), after_ms=SETTINGS.retry_backoff_ms)
    assert one.sent == []
    assert one.quorum.deadline_ms == ELECTION_MS


def test_a_late_word_of_a_voter_without_pre_votes_changes_nothing() -> None:
    one = prospective()
    asked = one.sent[0]
    one.step(begin(1))
    before = one.quorum
    one.step(Answered(asked, Reply(error=ErrorCode.UNSUPPORTED_VERSION, leader_epoch=-1)))
    assert one.quorum == before


def test_an_election_counts_the_voters_of_the_log() -> None:
    one = candidate()
    one.answer(one.sent[0], epoch=EPOCH, granted=False)
    one.step(VotersChanged(voter_set(0, 1, 2, 3, 4)))
    assert [sent.to.id for sent in one.sent] == [3, 4]
    one.step(VotersChanged(voter_set(0)))
    assert one.is_now(Leading)


@pytest.mark.conformance("KR-529")
@pytest.mark.conformance("KR-97")
def test_an_answer_to_a_fetch_counts_only_for_a_follower_of_this_epoch() -> None:
    answer = FetchAnswered(Reply(error=ErrorCode.NONE, leader_epoch=EPOCH, leader_id=1))
    one = follower()
    one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
    one.step(answer)
    assert TakeFetched() not in one.effects
    later = follower()
    later.step(begin(2, epoch=EPOCH + 1))
    later.step(answer)
    assert TakeFetched() not in later.effects
    found = follower()
    found.step(attrs.evolve(answer, reply=attrs.evolve(answer.reply, leader_epoch=EPOCH + 1)))
    assert found.quorum.leader_epoch == EPOCH + 1
    assert TakeFetched() not in found.effects
    refused = attrs.evolve(answer.reply, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    failed = follower()
    failed.step(FetchAnswered(refused))
    assert failed.effects == ()
    found = unattached()
    found.step(answer)
    assert found.is_now(Follower)
    assert TakeFetched() in found.effects


# --- a leader, and one that has resigned ----------------------------------------------------


def sends(one: Node, kind: type[Call]) -> list[int]:
    return [sent.to.id for sent in one.sent if isinstance(sent.call, kind)]


@pytest.mark.conformance("KR-81")
def test_a_leader_says_so_again_every_half_fetch_timeout() -> None:
    one = leading()
    assert sends(one, BeginCall) == [1, 2]
    one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms // 2 - 1)
    assert one.sent == []
    one.step(TimerExpired(), after_ms=1)
    assert sends(one, BeginCall) == [1, 2]


@pytest.mark.conformance("KR-66", "KR-78")
def test_a_resigned_leader_tells_the_voters_until_they_answer() -> None:
    one = resigned()
    assert sends(one, EndCall) == [1, 2]
    lost, heard = one.sent
    one.answer(heard, epoch=EPOCH)
    one.step(Unanswered(lost))
    one.step(TimerExpired(), after_ms=SETTINGS.retry_backoff_ms)
    assert one.sent == [lost]


@pytest.mark.conformance("KR-77", "KR-80")
def test_a_resigned_leader_stands_again_in_a_new_epoch() -> None:
    for one in (resigned(), node(election=ElectionState(leader_epoch=EPOCH, leader_id=0))):
        one.step(TimerExpired(), after_ms=ELECTION_MS)
        assert one.is_now(Unattached)
        assert one.stored == ElectionState(leader_epoch=EPOCH + 1)
        one.step(TimerExpired())
        assert one.is_now(Prospective)


def test_a_resigned_leader_is_still_named_as_the_leader_of_its_epoch() -> None:
    one = resigned()
    heard = Reply(error=ErrorCode.NONE, leader_epoch=EPOCH, leader_id=0)
    one.step(Answered(one.sent[0], heard))
    assert one.effects == ()


def test_the_voters_of_a_leader_that_has_resigned_let_a_successor_stand() -> None:
    one = follower()
    answer = FetchAnswered(Reply(error=ErrorCode.NONE, leader_epoch=EPOCH, leader_id=1))
    one.step(answer)
    refused = one.step(vote(2, epoch=EPOCH, pre_vote=True))
    assert refused is not None
    assert not refused.vote_granted
    one.step(end(1))
    granted = one.step(vote(2, epoch=EPOCH, pre_vote=True))
    assert granted is not None
    assert granted.vote_granted


@pytest.mark.conformance("KR-84")
def test_a_leader_ignores_the_end_of_an_older_epoch() -> None:
    one = leading()
    answer = one.step(end(1, epoch=EPOCH - 1))
    assert answer is not None
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH
    assert one.is_now(Leading)


@pytest.mark.conformance("KR-541")
@pytest.mark.conformance("KR-85", "KR-86")
@pytest.mark.parametrize(
    ("successors", "backoff_ms"),
    [
        pytest.param([], 0, id="nobody is preferred"),
        pytest.param([0, 2], 0, id="this node is the first"),
        pytest.param([2, 0], 50, id="the second of two"),
        pytest.param([2, 0, 3, 4], 12, id="the second of four"),
        pytest.param([2, 3, 4, 0], 48, id="the last of four"),
        pytest.param([2, 3], 100, id="not preferred"),
    ],
)
def test_the_preferred_successors_stand_first(successors: list[int], backoff_ms: int) -> None:
    for made in (unattached, follower):
        one = made()
        answer = one.step(end(1, successors=successors))
        assert answer is not None
        assert answer.error == ErrorCode.NONE
        assert one.is_now(Follower)
        assert one.quorum.deadline_ms == one.now_ms + backoff_ms
        one.step(TimerExpired(), after_ms=backoff_ms)
        assert one.is_now(Prospective)


FETCH = FetchReceived(replica=key(2), leader_epoch=EPOCH, fetch_offset=0)


@pytest.mark.conformance("KR-93")
@pytest.mark.parametrize(
    ("fetch", "error"),
    [
        (FETCH, ErrorCode.NONE),
        (attrs.evolve(FETCH, fetch_offset=-1), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(FETCH, last_fetched_epoch=-1), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(FETCH, last_fetched_epoch=EPOCH + 1), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(FETCH, replica=key(0)), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(FETCH, leader_epoch=EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (attrs.evolve(FETCH, leader_epoch=EPOCH + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_a_leader_answers_to_a_fetch(fetch: FetchReceived, error: ErrorCode) -> None:
    answer = leading().step(fetch)
    assert answer is not None
    assert answer.error == error
    assert (answer.position is not None) == (error == ErrorCode.NONE)


@pytest.mark.conformance("KR-601")
@pytest.mark.parametrize("made", [unattached, prospective, candidate, follower, resigned])
def test_others_refuse_a_fetch_and_name_the_leader(made: Callable[[], Node]) -> None:
    one = made()
    answer = one.step(FETCH)
    assert answer is not None
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_epoch, answer.leader_id) == (EPOCH, one.quorum.leader_id)


# --- shutdown ------------------------------------------------------------------------------


@pytest.mark.conformance("KR-98")
def test_a_leader_that_stops_leaves_once_another_leads() -> None:
    one = leading()
    one.step(ShutdownAsked())
    assert one.is_now(Resigned)
    assert sends(one, EndCall) == [1, 2]
    assert ShutdownComplete() not in one.effects
    one.step(TimerExpired(), after_ms=10 * ELECTION_MS)
    assert one.is_now(Resigned)
    one.step(vote(1, epoch=EPOCH + 1))
    assert ShutdownComplete() not in one.effects
    one.step(begin(1, epoch=EPOCH + 1))
    assert ShutdownComplete() in one.effects


@pytest.mark.conformance("KR-531", "KR-532")
@pytest.mark.conformance("KR-99")
def test_nobody_waits_for_the_only_voter_an_observer_or_a_follower() -> None:
    for one in (node(voters=[0]), unattached(3), follower()):
        one.step(ShutdownAsked())
        assert ShutdownComplete() in one.effects
        one.step(ShutdownAsked())
        assert ShutdownComplete() not in one.effects


@pytest.mark.conformance("KR-76")
def test_a_node_that_stops_votes_but_does_not_stand() -> None:
    one = unattached()
    one.step(ShutdownAsked())
    assert one.quorum.deadline_ms is None
    one.step(TimerExpired(), after_ms=ELECTION_MS)
    assert one.is_now(Unattached)
    answer = one.step(vote(2))
    assert answer is not None
    assert answer.vote_granted


def test_a_candidate_that_stops_and_wins_passes_it_on() -> None:
    one = candidate()
    asked = one.sent
    one.step(ShutdownAsked())
    one.answer(asked[0], epoch=EPOCH)
    assert one.is_now(Resigned)
    assert one.stored == ElectionState(leader_epoch=EPOCH, leader_id=0)
