"""Committed records that are gone, counted from events in any order."""

from collections.abc import Sequence

import pytest

from replication.events import (
    BecameLeader,
    Event,
    HighWatermarkAdvanced,
    LeaderElected,
    TopicDeleted,
)
from replication.observe.losses import LossCount
from storage.types import TopicId, TopicPartition

T0 = TopicPartition("t", 0)


def reached(epoch: int, high_watermark: int) -> Event:
    return HighWatermarkAdvanced(
        partition=T0,
        high_watermark=high_watermark,
        log_end_offset=high_watermark,
        leader_epoch=epoch,
    )


def leads(epoch: int, start: int) -> Event:
    return BecameLeader(
        partition=T0, leader_epoch=epoch, leader_epoch_start_offset=start, high_watermark=0
    )


def elected(epoch: int, leader: int, previous: int) -> Event:
    return LeaderElected(
        partition=T0,
        leader=leader,
        leader_epoch=epoch,
        isr=(leader,),
        cause="clean",
        previous_leader=previous,
    )


@pytest.mark.parametrize(
    ("events", "lost"),
    [
        pytest.param([leads(0, 0), reached(0, 20), leads(1, 20)], 0, id="all is there"),
        pytest.param([leads(0, 0), reached(0, 20), leads(1, 25)], 0, id="uncommitted too"),
        pytest.param([leads(0, 0), reached(0, 20), leads(1, 17)], 3, id="three are gone"),
        pytest.param(
            [leads(0, 0), leads(1, 17), reached(0, 18), reached(0, 20)],
            3,
            id="the old high watermark is heard of late",
        ),
        pytest.param(
            [leads(0, 0), reached(0, 20), leads(1, 17), reached(1, 30), leads(2, 29)],
            4,
            id="two losses",
        ),
        pytest.param(
            [leads(0, 0), reached(0, 20), leads(1, 17), leads(1, 17), leads(2, 17)],
            3,
            id="a loss counts once",
        ),
        pytest.param(
            [leads(3, 0), reached(3, 20), TopicDeleted(topic="t", topic_id=TopicId(b"i" * 16)),
             leads(0, 0), reached(0, 5)],
            0,
            id="a topic of the same name is another one",
        ),
    ],
)  # fmt: skip
def test_committed_records_that_a_new_leader_lacks_are_counted(
    events: Sequence[Event], lost: int
) -> None:
    count = LossCount()
    for event in events:
        count.sink(event)
    assert count.lost == lost


def test_leaders_that_were_replaced_are_counted_once() -> None:
    count = LossCount()
    for event in (
        elected(0, leader=1, previous=-1),  # created
        elected(1, leader=2, previous=1),
        elected(1, leader=2, previous=1),  # reported by another controller
        elected(2, leader=2, previous=2),  # the epoch alone
    ):
        count.sink(event)
    assert count.leader_changes == 1
