"""Whom a node grants a vote, and which requests for one it refuses."""

from collections.abc import Callable

import attrs
import pytest

from replication.errors import ErrorCode
from replication.raft.rules.messages import (
    Answered,
    Event,
    FetchAnswered,
    FetchReceived,
    Misconfiguration,
    Reply,
    Send,
    VoteCall,
)
from replication.raft.rules.states import (
    Prospective,
)
from replication.raft.rules.types import ElectionState, ReplicaKey
from tests.replication.raft.quorums import (
    EPOCH,
    Node,
    begin,
    candidate,
    end,
    endpoints,
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
)

OTHER_DISK = bytes([77]) * 16


def fetching() -> Node:
    """Return a follower that has fetched from its leader."""
    one = follower()
    one.step(FetchAnswered(Reply(error=ErrorCode.NONE, leader_epoch=EPOCH, leader_id=1)))
    return one


def knows_leader() -> Node:
    """Return a node that knows who leads, but not where."""
    return node(election=ElectionState(leader_epoch=EPOCH, leader_id=7))


# --- Vote ----------------------------------------------------------------------------------


@pytest.mark.conformance("KR-512", "KR-513", "KR-514")
@pytest.mark.parametrize(
    ("made", "grants_vote", "grants_pre_vote"),
    [
        pytest.param(
            unattached, True, True, marks=pytest.mark.conformance("KR-61"), id="unattached"
        ),
        pytest.param(
            knows_leader, False, True, marks=pytest.mark.conformance("KR-62"), id="knows a leader"
        ),
        pytest.param(lambda: voted_for(key(1)), False, True, id="voted for another"),
        pytest.param(lambda: voted_for(key(2)), True, True, id="voted for it"),
        pytest.param(prospective, True, True, id="prospective"),
        pytest.param(
            candidate,
            False,
            True,
            marks=pytest.mark.conformance("KR-56", "KR-74"),
            id="candidate",
        ),
        pytest.param(
            follower, False, True, marks=pytest.mark.conformance("KR-88"), id="has not fetched"
        ),
        pytest.param(
            fetching, False, False, marks=pytest.mark.conformance("KR-58"), id="has fetched"
        ),
        pytest.param(leading, False, False, marks=pytest.mark.conformance("KR-90"), id="leading"),
        pytest.param(
            resigned,
            False,
            True,
            marks=pytest.mark.conformance("KR-65", "KR-73"),
            id="resigned",
        ),
    ],
)
def test_whom_a_state_grants_a_vote(
    made: Callable[[], Node], *, grants_vote: bool, grants_pre_vote: bool
) -> None:
    for pre_vote, grants in ((False, grants_vote), (True, grants_pre_vote)):
        one = made()
        answer = one.step(vote(2, pre_vote=pre_vote))
        assert answer is not None
        assert (answer.error, answer.vote_granted) == (ErrorCode.NONE, grants)


@pytest.mark.parametrize(
    "made", [unattached, prospective, candidate, follower, fetching, leading, resigned]
)
def test_no_state_grants_a_shorter_log_anything(made: Callable[[], Node]) -> None:
    for shorter in (vote(2, end_offset=9, last_epoch=3), vote(2, end_offset=20, last_epoch=2)):
        for pre_vote in (False, True):
            one = made()
            one.log = log_to(10, epoch=3)
            answer = one.step(
                attrs.evolve(shorter, call=attrs.evolve(shorter.call, pre_vote=pre_vote))
            )
            assert answer is not None
            assert not answer.vote_granted


@pytest.mark.conformance("KR-63", "KR-64")
def test_a_vote_is_given_again_to_the_same_disk() -> None:
    anew = attrs.evolve(vote(2), candidate=ReplicaKey(2, OTHER_DISK))
    for voted, again in ((key(2), False), (ReplicaKey(2), True)):
        for request, grants in ((anew, again), (vote(2), True), (vote(1), False)):
            answer = voted_for(voted).step(request)
            assert answer is not None
            assert answer.vote_granted == grants


@pytest.mark.conformance("KR-547")
@pytest.mark.conformance("KR-75")
def test_a_leader_that_resigned_votes_in_a_higher_epoch() -> None:
    answer = resigned().step(vote(2, epoch=EPOCH + 1))
    assert answer is not None
    assert answer.vote_granted


def test_a_leader_votes_for_a_node_that_it_takes_for_an_observer() -> None:
    """The log of that node may name it as a voter already."""
    one = leading()
    granted = one.step(vote(7, epoch=EPOCH + 1))
    assert granted is not None
    assert granted.vote_granted
    assert one.stored == ElectionState(leader_epoch=EPOCH + 1, voted=key(7))


def test_a_pre_vote_changes_nothing() -> None:
    for made in (unattached, prospective, candidate, follower):
        one = made()
        before = one.quorum
        one.step(vote(2, pre_vote=True))
        assert one.quorum == before


def test_a_prospective_that_votes_begins_to_ask_anew() -> None:
    one = prospective()
    one.answer(one.sent[0], epoch=EPOCH, granted=False)
    one.step(vote(2))
    assert one.is_now(Prospective)
    assert one.stored == ElectionState(leader_epoch=EPOCH, voted=key(2))
    assert [sent.to for sent in one.sent] == [key(1), key(2)]


@pytest.mark.conformance("KR-96")
@pytest.mark.parametrize(
    "impossible",
    [
        vote(2, end_offset=-1),
        vote(2, last_epoch=-1),
        vote(2, last_epoch=EPOCH),
        vote(2, last_epoch=EPOCH + 1, pre_vote=True),
        attrs.evolve(vote(2), candidate=ReplicaKey(-1)),
    ],
)
def test_an_impossible_vote_request_is_refused(impossible: Event) -> None:
    one = unattached()
    before = one.quorum
    answer = one.step(impossible)
    assert answer is not None
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert one.quorum == before


@pytest.mark.conformance("KR-89")
def test_an_old_vote_request_names_the_leader() -> None:
    answer = follower().step(vote(2, epoch=EPOCH - 1))
    assert answer == Reply(
        error=ErrorCode.FENCED_LEADER_EPOCH,
        leader_epoch=EPOCH,
        leader_id=1,
        leader_endpoints=endpoints(1),
    )


@pytest.mark.conformance("KR-553")
@pytest.mark.conformance("KR-95")
def test_a_request_to_another_disk_of_this_node_is_refused() -> None:
    for voter in (key(1), ReplicaKey(0, OTHER_DISK)):
        for request in (vote(2, epoch=EPOCH + 1), begin(2, epoch=EPOCH + 1)):
            one = unattached()
            answer = one.step(attrs.evolve(request, voter=voter))
            assert answer is not None
            assert answer.error == ErrorCode.INVALID_VOTER_KEY
            assert not answer.vote_granted
            assert one.quorum.leader_epoch == EPOCH + 1
    assert unattached().step(attrs.evolve(begin(1), voter=ReplicaKey(0))) is not None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "this node is of another cluster"),
        (
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "another process has the node id of this one",
        ),
        (ErrorCode.INVALID_VOTER_KEY, "its directory is not the one that the voter set names"),
    ],
)
def test_a_refusal_that_only_an_operator_can_end_is_reported(error: ErrorCode, why: str) -> None:
    refused = Reply(error=error, leader_epoch=0)
    one = candidate()
    before = one.state
    one.step(
        Answered(
            Send(key(1), VoteCall(leader_epoch=EPOCH, last_epoch=0, end_offset=0, pre_vote=False)),
            refused,
        )
    )
    assert Misconfiguration(f"controller 1 says that {why}") in one.effects
    assert one.state == before
    one = follower()
    one.step(FetchAnswered(refused))
    assert one.effects == (
        Misconfiguration(f"the controller that was asked for records says that {why}"),
    )
    one.step(FetchAnswered(attrs.evolve(refused, leader_epoch=EPOCH, leader_id=1)))
    assert one.effects == (Misconfiguration(f"the controller 1, which leads, says that {why}"),)


@pytest.mark.conformance("KR-509", "KR-510", "KR-511")
@pytest.mark.conformance("KR-94")
def test_a_request_of_another_cluster_changes_nothing() -> None:
    fetch = FetchReceived(replica=key(2), leader_epoch=EPOCH, fetch_offset=0)
    for request in (vote(2, epoch=9), begin(2, epoch=9), end(2, epoch=9), fetch):
        one = leading()
        before = one.quorum
        answer = one.step(attrs.evolve(request, cluster_id="another"))
        assert answer is not None
        assert answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert one.quorum == before
