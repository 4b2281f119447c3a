"""Which commits are beyond a truncation: the rules, without Spark."""

import attrs
import pytest

pytest.importorskip("pyarrow", reason="the arrow extra is not installed: understudy[arrow]")

from pipeline.audit.commits import EpochChain, GroupCommit, GroupLoss, Truncation, find_losses
from storage.types import TopicPartition

TP = TopicPartition("t", 0)
# [e0: 0-89][e2: 90-119]
CHAIN = EpochChain(((0, 0), (2, 90)), 120)
CUT = Truncation(
    topic_partition=TP, broker=1, at_ms=1000, from_offset=105, to_offset=90, leader_epoch=2
)


def commit(offset: int, epoch: int, at_ms: int = 500) -> GroupCommit:
    return GroupCommit(group="g", topic_partition=TP, offset=offset, epoch=epoch, at_ms=at_ms)


def losses(
    *commits: GroupCommit, chain: EpochChain | None = CHAIN, cuts: tuple[Truncation, ...] = ()
) -> list[tuple[int, int, int | None, str]]:
    found = find_losses(commits, {} if chain is None else {TP: chain}, cuts)
    return [
        (each.committed_offset, each.truncated_at, each.leader_epoch, each.evidence)
        for each in found
    ]


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (90, 0, []),  # epoch 0 ends there: nothing beyond it was read
        (91, 0, [(91, 90, 2, "leader epochs")]),
        (100, 1, [(100, 90, 2, "leader epochs")]),
        (90, 1, []),
        (120, 2, []),
        (121, 2, [(121, 120, None, "leader epochs")]),
        (130, 3, [(130, 120, None, "leader epochs")]),
        (100, 2, []),
    ],
)
def test_the_surviving_log_judges_as_a_consumer_does(
    offset: int, epoch: int, expected: list[object]
) -> None:
    assert losses(commit(offset, epoch)) == expected


def test_a_journal_judges_commits_without_an_epoch() -> None:
    assert losses(commit(100, -1)) == []
    assert losses(commit(100, -1), cuts=(CUT,)) == [(100, 90, 2, "journal")]
    assert losses(commit(90, -1), commit(106, -1), cuts=(CUT,)) == []
    assert losses(commit(100, -1, at_ms=1001), cuts=(CUT,)) == []


def test_a_replica_that_cuts_off_what_was_never_committed_costs_no_group() -> None:
    # The group read offset 99 of epoch 2, which survived; a stale replica cut its own 90 to 104.
    assert losses(commit(100, 2), cuts=(CUT,)) == []


def test_a_journal_judges_below_the_start_of_the_log_and_adds_the_time() -> None:
    retained = EpochChain(((5, 1000),), 1200)
    assert losses(commit(100, 1), chain=retained) == []
    assert losses(commit(100, 1), chain=retained, cuts=(CUT,)) == [(100, 90, 2, "journal")]
    assert losses(commit(1005, 3), chain=retained) == [(1005, 1000, 5, "leader epochs")]
    assert losses(commit(100, 1), chain=None, cuts=(CUT,)) == [(100, 90, 2, "journal")]
    (loss,) = find_losses([commit(100, 1)], {TP: CHAIN}, [CUT, attrs.evolve(CUT, at_ms=2000)])
    assert loss == GroupLoss(
        group="g",
        topic="t",
        partition=0,
        committed_offset=100,
        committed_epoch=1,
        committed_ms=500,
        truncated_at=90,
        leader_epoch=2,
        truncated_ms=1000,
        broker=1,
        evidence="leader epochs",
    )
    assert str(loss) == "group g had committed 100 in t-0, truncated at 90 for leader epoch 2"
