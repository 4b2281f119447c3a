"""Elections: who stands, who is asked, who leads (KIP-595, KIP-996)."""

from replication.raft.rules.messages import Lead, LeaderChanged, Persist, TimerExpired, VoteCall
from replication.raft.rules.states import Candidate, Leading, Prospective, Unattached
from replication.raft.rules.types import ElectionState
from tests.replication.raft.quorums import ELECTION_MS, key, node, voter_set


def test_a_quorum_of_one_elects_itself_at_once() -> None:
    alone = node(voters=[0])
    assert alone.is_now(Leading)
    assert alone.effects == (
        Persist(ElectionState(leader_epoch=1, leader_id=0)),
        LeaderChanged(1, 0),
        Lead(
            leader_epoch=1,
            epoch_start_offset=0,
            voters=voter_set(0),
            granting=frozenset({0}),
        ),
    )


def test_a_majority_of_pre_votes_and_votes_makes_a_leader() -> None:
    one = node()
    assert one.is_now(Unattached)
    one.step(TimerExpired(), after_ms=ELECTION_MS)
    assert one.is_now(Prospective)
    asked = VoteCall(leader_epoch=0, last_epoch=0, end_offset=0, pre_vote=True)
    assert [(each.to, each.call) for each in one.sent] == [(key(1), asked), (key(2), asked)]
    one.answer(one.sent[0], epoch=0)
    assert one.is_now(Candidate)
    assert one.stored == ElectionState(leader_epoch=1, voted=key(0))
    one.answer(one.sent[1], epoch=1)
    assert one.is_now(Leading)
    assert one.stored == ElectionState(leader_epoch=1, leader_id=0)


def test_an_observer_that_starts_does_not_stand_for_election() -> None:
    observer = node(7, voters=[1])
    assert observer.quorum.deadline_ms is None
    observer.step(TimerExpired(), after_ms=10 * ELECTION_MS)
    assert observer.is_now(Unattached)
