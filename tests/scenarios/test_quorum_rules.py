"""The rules of controllers find the history made for each, and nothing in a sound one."""

from typing import Any

import attrs
import pytest

from replication.metadata.rules.image import MetadataImage, PartitionRegistration, TopicImage
from replication.raft.rules.types import ElectionState, ReplicaKey
from scenarios.checkers import quorum
from scenarios.checkers.admin_requests import ANSWERED, AdminRequests
from scenarios.checkers.observed import Batch
from scenarios.checkers.quorum import ControllerState
from tests.scenarios.values import rules

LEADS = ControllerState(
    node="c3001", life=1, leader_epoch=4, high_watermark=8, leads=True, decides=4
)
FOLLOWS = attrs.evolve(LEADS, node="c3002", leads=False, decides=None)


def now(state: ControllerState, **otherwise: Any) -> ControllerState:
    return attrs.evolve(state, **otherwise)


@pytest.mark.parametrize(
    ("state", "broken"),
    [
        (LEADS, []),
        (FOLLOWS, []),
        (now(FOLLOWS, leads=True), [quorum.ONE_LEADER]),
        (now(FOLLOWS, leads=True, leader_epoch=5, decides=5), []),
        (now(FOLLOWS, decides=4), [quorum.DECIDES]),
        (now(LEADS, leads=False, leader_epoch=5), []),
    ],
)
def test_one_controller_leads_in_an_epoch(state: ControllerState, broken: list[str]) -> None:
    assert rules(quorum.one_leader({4: "c3001"}, state)) == broken


@pytest.mark.parametrize(
    ("after", "broken"),
    [
        (now(LEADS, high_watermark=9), []),
        (now(LEADS, leader_epoch=3), [quorum.EPOCH]),
        (now(LEADS, high_watermark=7), [quorum.WATERMARK]),
        (now(LEADS, life=2, high_watermark=0, leader_epoch=3), []),
    ],
)
def test_nothing_goes_back(after: ControllerState, broken: list[str]) -> None:
    assert rules(quorum.never_back(LEADS, after)) == broken


def election(
    leader_epoch: int, leader_id: int | None = None, voted: int | None = None
) -> ElectionState:
    return ElectionState(
        leader_epoch=leader_epoch,
        leader_id=leader_id,
        voted=None if voted is None else ReplicaKey(voted),
    )


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        (None, None, []),
        (election(4), election(4, 3001), []),
        (election(4), election(3), [quorum.SYNCED_EPOCH]),
        (election(4), None, [quorum.SYNCED_EPOCH]),
    ],
)
def test_a_synced_epoch_stays(
    before: ElectionState | None, after: ElectionState | None, broken: list[str]
) -> None:
    assert rules(quorum.synced_never_back("c3001", before, after)) == broken


@pytest.mark.parametrize(
    ("synced", "broken"),
    [
        (election(4, voted=3001), []),
        (election(4, leader_id=3001), []),
        (election(5), []),
        (election(4), [quorum.VOTE]),
        (election(4, voted=3003), [quorum.VOTE]),
        (election(3, voted=3001), [quorum.VOTE]),
        (None, [quorum.VOTE]),
    ],
)
def test_a_vote_is_synced(synced: ElectionState | None, broken: list[str]) -> None:
    found = quorum.vote_is_synced("c3002", synced, leader_id=3001, leader_epoch=4)
    assert rules(found) == broken


def test_what_is_committed_is_on_a_majority() -> None:
    batch = Batch(7, 7, 4, 1)
    assert not rules(quorum.on_a_majority(batch, ["c3001", "c3003"], 3))
    assert rules(quorum.on_a_majority(batch, ["c3001"], 3)) == [quorum.MAJORITY]
    assert rules(quorum.on_a_majority(batch, [], 1)) == [quorum.MAJORITY]


def test_metadata_that_ends_at_one_record_is_the_same() -> None:
    image = MetadataImage(offset=7)
    assert not rules(quorum.same_metadata("c3001", image, MetadataImage(offset=7)))
    other = attrs.evolve(image, next_producer_id=1000)
    assert rules(quorum.same_metadata("c3001", image, other)) == [quorum.SAME]


def image_with(**configs: str) -> MetadataImage:
    partition = PartitionRegistration((1,), (1,), 1, 0, 0)
    topic = TopicImage("t", bytes(16), {0: partition}, configs)
    return MetadataImage(topics={"t": topic})


def test_what_was_answered_is_there_or_what_may_have_come_late() -> None:
    requests = AdminRequests()
    requests.created("t", 1)
    assert rules(requests.missing(MetadataImage())) == [ANSWERED]
    requests.asked("t", "k", "1")
    assert not rules(requests.missing(image_with()))
    requests.answered("t", "k", "1")
    assert rules(requests.missing(image_with())) == [ANSWERED]
    assert not rules(requests.missing(image_with(k="1")))
    requests.asked("t", "k", "2")
    assert not rules(requests.missing(image_with(k="2")))
    requests.asked("t", "k", "3")
    requests.answered("t", "k", "3")
    assert not rules(requests.missing(image_with(k="2")))
    assert rules(requests.missing(image_with(k="1"))) == [ANSWERED]
    requests.asked("t", "k", "4")
    requests.asked("t", "k", "4")
    requests.answered("t", "k", "4")
    requests.asked("t", "k", "5")
    requests.answered("t", "k", "5")
    assert not rules(requests.missing(image_with(k="4"))), "its first attempt may have come late"
    assert rules(requests.missing(image_with(k="3"))) == [ANSWERED]
    requests.created("t", 2)
    assert rules(requests.missing(image_with(k="5"))) == [ANSWERED]
    requests.grown("t", 3, deletions=requests.deletions("t"))
    assert len(rules(requests.missing(image_with(k="5")))) == 1
    asked_before = requests.deletions("t")
    requests.deleted("t")
    requests.answered("t", "k", "4")
    requests.grown("t", 4, deletions=asked_before)
    assert not rules(requests.missing(MetadataImage()))
