"""Nodes that are no voters, and nodes that become voters or are voters no longer."""

from collections.abc import Callable

import pytest

from replication.errors import ErrorCode
from replication.raft.rules.messages import (
    FetchAnswered,
    FetchFrom,
    Reply,
    TimerExpired,
    VotersChanged,
)
from replication.raft.rules.states import (
    Follower,
    Prospective,
    Unattached,
)
from replication.raft.rules.types import (
    NO_ENDPOINTS,
    ElectionState,
)
from tests.replication.raft.quorums import (
    EPOCH,
    SETTINGS,
    Node,
    candidate,
    endpoints,
    fetched,
    follower,
    key,
    prospective,
    unattached,
    vote,
    voter_set,
)


@pytest.mark.conformance("KR-576")
@pytest.mark.conformance("KR-29", "KR-42", "KR-92")
@pytest.mark.parametrize("made", [unattached, follower])
def test_an_observer_never_stands(made: Callable[..., Node]) -> None:
    one = made(3)
    for _ in range(3):
        one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
        assert one.quorum.deadline_ms is None
        assert one.sent == []
    assert one.stored is not None
    assert one.stored.leader_epoch == EPOCH


@pytest.mark.conformance("KR-546")
@pytest.mark.conformance("KR-43")
def test_an_observer_votes_when_it_is_asked() -> None:
    one = unattached(3)
    granted = one.step(vote(2))
    assert granted is not None
    assert granted.vote_granted
    assert one.stored == ElectionState(leader_epoch=EPOCH, voted=key(2))
    assert one.quorum.deadline_ms is None


@pytest.mark.conformance("KR-564", "KR-567", "KR-570")
@pytest.mark.conformance("KR-552", "KR-566")
@pytest.mark.conformance("KR-44", "KR-45")
def test_an_observer_follows_from_epoch_to_epoch() -> None:
    one = follower(3)
    one.step(vote(2, epoch=EPOCH + 1, pre_vote=True))
    anybody = FetchFrom(leader_epoch=EPOCH + 1, leader_id=None, endpoints=NO_ENDPOINTS)
    assert anybody in one.effects
    named = Reply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=EPOCH + 1, leader_id=2)
    one.step(FetchAnswered(named))
    assert one.is_now(Follower)
    assert one.quorum.leader_id == 2


def test_an_observer_whose_leader_is_silent_asks_the_others() -> None:
    one = follower(3)
    one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
    anybody = FetchFrom(leader_epoch=EPOCH, leader_id=None, endpoints=NO_ENDPOINTS)
    assert one.effects == (anybody,)
    one.step(fetched())
    assert one.effects[0] == FetchFrom(leader_epoch=EPOCH, leader_id=1, endpoints=endpoints(1))


def test_an_observer_that_becomes_a_voter_stands() -> None:
    for one in (unattached(3), follower(3)):
        one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
        one.step(VotersChanged(voter_set(0, 1, 2, 3)))
        assert one.quorum.deadline_ms is not None
        one.step(TimerExpired(), after_ms=SETTINGS.fetch_timeout_ms)
        assert one.is_now(Prospective)


def test_a_voter_that_is_removed_stands_no_longer() -> None:
    for made in (unattached, prospective, candidate):
        one = made()
        one.step(VotersChanged(voter_set(1, 2)))
        assert one.is_now(Unattached)
        assert one.quorum.deadline_ms is None
