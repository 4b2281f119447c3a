"""As `test_rules_taken_out`: what the simulator found (docs/found.md), with the bug put back."""

from typing import Any

import attrs
import pytest

from replication.client.producer import destinations
from replication.controller.rules import decisions as controller_decisions
from replication.controller.rules.election import Wish, after
from replication.follower.partitions import FollowedPartitions
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules.image import MetadataDelta, MetadataImage, PartitionRegistration
from replication.replica_manager.roles import RoleChanges
from scenarios.story.runner import run_story
from scenarios.story.script import find_story, read_story
from storage.errors import OffsetOutOfRangeError
from storage.log.append import LogAppendInfo, analyze, check_sizes
from storage.log.log import Log
from storage.log.recovery import tail
from storage.log.recovery.loader import Loader
from tests.scenarios.test_log_rules_taken_out import what_is_not_committed_may_go
from tests.scenarios.without_rule import Case, Mistake, check_comes_out_otherwise, pairs


def positions_outlive_a_missed_leader_epoch(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership.begin_leader_epoch

    def begin_leader_epoch(self: Leadership, *, reelected: bool, **how: Any) -> None:
        del reelected
        honest(self, reelected=True, **how)

    planting.setattr(Leadership, "begin_leader_epoch", begin_leader_epoch)


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


def a_full_disk_is_no_failure(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Log, "fail", lambda _, error: error)


def what_follows_a_gap_stays(planting: pytest.MonkeyPatch) -> None:
    honest = Loader._joins

    def joins(self: Loader, loaded: Any, *segments: Any) -> bool:
        return honest(self, loaded, *segments) or self.marks.clean

    planting.setattr(Loader, "_joins", joins)
    planting.setattr(Loader, "_end_before_gaps", lambda *_: None)


def what_follows_a_gap_stays_though_nothing_is_left_of_it(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Loader, "_end_before_gaps", lambda *_: None)


def times_outlive_their_records(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(tail, "_check_times", lambda *_: None)


def times_outlive_their_records_before_a_gap(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Loader, "_forget_times_behind_the_end", lambda *_: None)


def only_partitions_of_which_one_has_heard_are_there(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(destinations, "_lacks", lambda *_: False)


def wrong_bytes_are_not_reported(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(FollowedPartitions, "report_refused", lambda *_: None)


def a_failed_retention_is_not_noticed(planting: pytest.MonkeyPatch) -> None:
    """And its plan is wrong, or nothing would be refused."""
    what_is_not_committed_may_go(planting)
    honest = Log.delete_old_segments

    def delete_old_segments(self: Log, wall_ms: int) -> int:
        try:
            return honest(self, wall_ms)
        except AssertionError as error:
            raise OffsetOutOfRangeError(str(error)) from error

    planting.setattr(Log, "delete_old_segments", delete_old_segments)


def a_high_watermark_is_written_down_over_a_cut(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Log, "lasting_high_watermark", property(lambda log: log.high_watermark))


def a_follower_refuses_what_it_would_take_of_no_producer(planting: pytest.MonkeyPatch) -> None:
    honest = Log.append_as_follower

    def append_as_follower(self: Log, records: memoryview, **how: Any) -> LogAppendInfo:
        check_sizes(analyze(records), self.config)
        return honest(self, records, **how)

    planting.setattr(Log, "append_as_follower", append_as_follower)


CASES: list[Case] = [
    ("S30", "a-leader-again-that-missed-a-leader-epoch", positions_outlive_a_missed_leader_epoch),
    ("S35", "a-minimum-lowered-while-nobody-leads", who_was_eligible_stays_so),
    (
        "S23",
        "a-leader-is-deposed-and-its-minimum-lowered-at-once",
        a_minimum_is_lowered_before_roles_are_taken,
    ),
    ("S54", "a-full-disk-under-the-metadata", a_full_disk_is_no_failure),
    (
        "S10",
        "a-batch-from-when-segments-were-larger",
        a_follower_refuses_what_it_would_take_of_no_producer,
    ),
    ("S51", "a-disk-that-lied-over-a-roll", what_follows_a_gap_stays),
    (
        "S51",
        "a-disk-that-lied-over-several-rolls",
        what_follows_a_gap_stays_though_nothing_is_left_of_it,
    ),
    ("S51", "times-of-records-that-are-not-there", times_outlive_their_records),
    (
        "S51",
        "times-of-records-that-are-not-there-before-a-gap",
        times_outlive_their_records_before_a_gap,
    ),
    (
        "S99",
        "a-partition-of-which-a-producer-has-not-heard",
        only_partitions_of_which_one_has_heard_are_there,
    ),
    ("S53", "a-bit-rots-where-nobody-looks", wrong_bytes_are_not_reported),
    ("S43", "what-one-log-keeps-every-log-need-not", a_failed_retention_is_not_noticed),
    ("S22", "a-cut-that-came-undone", a_high_watermark_is_written_down_over_a_cut),
]


@pytest.mark.parametrize(("scenario", "story", "mistake"), pairs(CASES))
def test_with_its_bug_a_story_comes_out_otherwise(
    scenario: str, story: str, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_comes_out_otherwise(scenario, story, mistake, monkeypatch)


def test_a_wrong_plan_of_retention_ends_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    what_is_not_committed_may_go(monkeypatch)
    script = read_story(find_story("what-one-log-keeps-every-log-need-not"))
    with pytest.raises(AssertionError, match="what is not committed is not deleted"):
        run_story(script)
