"""Checkpoints that are prepared beside the appends: what is on the disk never claims too much."""

import pytest

from storage.checkpoint import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from storage.log.log import Log
from storage.manager.checkpoint_plan import CheckpointPlan
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import fill, lead, new_disk, started

T0 = TopicPartition("t", 0)
OTHER_ID = b"another topic id"


def planned(system: FaultyFileSystem) -> tuple[LogManager, Log, CheckpointPlan]:
    """A log of 30 records, all synced, and the plan to say so."""
    logs = started(system)
    log = logs.get_or_create(T0)
    fill(log, 30)
    log.flush()
    (plan,) = logs.plan_recovery_points()
    plan.prepare()
    return logs, log, plan


def on_disk(system: FaultyFileSystem) -> dict[TopicPartition, int]:

    return OffsetCheckpoint(system, f"/d/{RECOVERY_POINT_CHECKPOINT}").read()


def test_a_planned_checkpoint_is_published() -> None:
    system = new_disk()
    logs, log, plan = planned(system)
    assert on_disk(system) == {}
    fill(log, 10)
    assert plan.publish()
    plan.settle()
    assert on_disk(system) == logs.directories[0].recovery_points == {T0: 30}


def test_a_checkpoint_that_a_truncation_has_overtaken_is_not_published() -> None:
    system = new_disk()
    logs, log, plan = planned(system)
    log.truncate_to(10)
    assert not plan.publish()
    assert on_disk(system) == logs.directories[0].recovery_points == {}


def test_a_truncation_corrects_a_published_checkpoint() -> None:
    system = new_disk()
    _, log, plan = planned(system)
    assert plan.publish()
    log.truncate_to(10)
    assert on_disk(system)[T0] <= 10


def test_another_topic_of_that_name_corrects_what_was_planned_for_the_one_before() -> None:
    system = new_disk()
    logs, _, plan = planned(system)
    logs.async_delete(T0)
    assert plan.publish()
    lead(logs.get_or_create(T0, OTHER_ID))
    assert on_disk(system)[T0] == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cut", ["before", "after", "after it was settled"])
def test_a_power_cut_at_any_time_leaves_no_claim_of_what_was_cut(seed: int, cut: str) -> None:
    system = new_disk(seed)
    _, log, plan = planned(system)
    if cut == "before":
        log.truncate_to(10)
        assert not plan.publish()
    else:
        assert plan.publish()
        if cut == "after it was settled":
            plan.settle()
        log.truncate_to(10)
    lead(log, epoch=1)
    system.crash()
    again = system.reopen()
    claimed = on_disk(again).get(T0, 0)
    assert claimed <= 10
    found = started(again).get(T0)
    assert found is not None
    assert found.log_end_offset >= claimed
