"""As `test_rules_told`: what the simulator found (docs/found.md), with the bug put back."""

from typing import Any

import attrs
import pytest

from replication.cluster import controller_decisions
from replication.election import Wish, after
from replication.leadership import Leadership
from replication.metadata import MetadataDelta, MetadataImage, PartitionRegistration
from replication.replica_manager.roles import RoleChanges
from storage.loading.loader import Loader
from storage.log import Log
from storage.marked_log import MarkedLog
from tests.scenarios.told import Mistake, Told, check_comes_out_otherwise, pairs


def positions_outlive_a_missed_reign(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership.begin_reign

    def begin_reign(self: Leadership, *, reelected: bool) -> None:
        del reelected
        honest(self, reelected=True)

    planting.setattr(Leadership, "begin_reign", begin_reign)


def who_was_eligible_stays_so(planting: pytest.MonkeyPatch) -> None:
    def changed(partition: PartitionRegistration, wish: Wish, **how: Any) -> PartitionRegistration:
        honest = after(partition, wish, **how)
        kept = tuple(each for each in partition.elr if each not in honest.isr)
        return attrs.evolve(honest, elr=honest.elr or kept)

    planting.setattr(controller_decisions, "after", changed)


def a_minimum_is_lowered_before_roles_are_taken(planting: pytest.MonkeyPatch) -> None:
    honest = RoleChanges.apply

    async def apply(self: RoleChanges, image: MetadataImage, delta: MetadataDelta) -> None:
        await self.configuration.apply(image, delta)
        await honest(self, image, delta)

    planting.setattr(RoleChanges, "apply", apply)


def a_full_disk_is_nobodys_failure(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Log, "fail", lambda _, error: error)


def what_follows_a_gap_stays(planting: pytest.MonkeyPatch) -> None:
    honest = Loader._joins

    def joins(self: Loader, loaded: Any, *segments: Any) -> bool:
        return honest(self, loaded, *segments) or self.marks.clean

    planting.setattr(Loader, "_joins", joins)
    planting.setattr(Loader, "_end_before_gaps", lambda *_: None)


def a_high_watermark_is_written_down_over_a_cut(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(MarkedLog, "lasting_high_watermark", property(lambda log: log.high_watermark))


TOLD: list[Told] = [
    ("S30", "a-leader-again-that-missed-a-reign", positions_outlive_a_missed_reign),
    ("S35", "a-minimum-lowered-while-nobody-leads", who_was_eligible_stays_so),
    (
        "S23",
        "a-leader-is-deposed-and-its-minimum-lowered-at-once",
        a_minimum_is_lowered_before_roles_are_taken,
    ),
    ("S54", "a-full-disk-under-the-metadata", a_full_disk_is_nobodys_failure),
    ("S51", "a-disk-that-lied-over-a-roll", what_follows_a_gap_stays),
    ("S22", "a-cut-that-came-undone", a_high_watermark_is_written_down_over_a_cut),
]


@pytest.mark.parametrize(("scenario", "story", "mistake"), pairs(TOLD))
def test_with_its_bug_a_story_comes_out_otherwise(
    scenario: str, story: str, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_comes_out_otherwise(scenario, story, mistake, monkeypatch)
