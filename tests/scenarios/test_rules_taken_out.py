"""Runs of stories with one rule taken out: without its rule a story must have another result.

The mistakes are those that the scenarios are about (docs/stories.md).
"""

from typing import Any

import attrs
import pytest

from replication.controller import controller
from replication.controller.rules import (
    brokers as controller_brokers,
    isr_changes as controller_isr,
)
from replication.controller.rules.election import ElectionRules
from replication.errors import ErrorCode
from replication.follower import log_truncation
from replication.follower.fetcher import FollowUp, ReplicaFetcher
from replication.follower.partitions import FollowedPartitions
from replication.leader import list_offsets
from replication.leader.partition import Partition
from replication.leader.rules import isr, leadership, log_reader
from replication.leader.rules.isr import FollowerState, PendingExpand, PendingShrink
from replication.leader.rules.leadership import Leadership
from replication.leader.rules.log_reader import LogReader
from replication.replica_manager.followed import LocalReplicas
from storage.log.leader_epoch_cache import UNDEFINED, LeaderEpochCache
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch
from tests.scenarios.without_rule import Case, Mistake, check_comes_out_otherwise, pairs


def logs_are_cut_to_their_high_watermark(planting: pytest.MonkeyPatch) -> None:
    """Let a new follower truncate to its high watermark, as before KIP-101."""
    honest = Partition.make_follower

    def make_follower(self: Partition, registration: Any) -> bool:
        if self.log.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(self.log.high_watermark)
        return honest(self, registration)

    planting.setattr(Partition, "make_follower", make_follower)


def epochs_are_ignored(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(log_reader, "diverging_end", lambda *_, **__: None)


def an_unknown_epoch_ends_where_the_next_begins(planting: pytest.MonkeyPatch) -> None:
    """Under its own name, as before KIP-279."""
    honest = LeaderEpochCache.end_offset_for

    def end_offset_for(
        self: LeaderEpochCache, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> OffsetAndEpoch:
        end = honest(self, epoch, log_end_offset)
        return end if end == UNDEFINED else attrs.evolve(end, leader_epoch=epoch)

    planting.setattr(LeaderEpochCache, "end_offset_for", end_offset_for)


def any_epoch_is_served(planting: pytest.MonkeyPatch) -> None:
    honest = Partition.check_access

    def check_access(self: Partition, current_leader_epoch: LeaderEpoch, **how: Any) -> None:
        honest(self, -1, **how)

    planting.setattr(Partition, "check_access", check_access)


def a_leader_epoch_begins_with_its_first_record(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership.begin_leader_epoch

    def begin_leader_epoch(self: Leadership, **how: Any) -> None:
        honest(self, **how)
        self.log.leader_epoch_cache.truncate_from_end(self.log.log_end_offset)

    planting.setattr(Leadership, "begin_leader_epoch", begin_leader_epoch)


def a_divergence_counts_as_progress(planting: pytest.MonkeyPatch) -> None:
    honest = Partition.fetch

    def fetch(self: Partition, params: Any, info: Any, **how: Any) -> Any:
        answer = honest(self, params, info, **how)
        if params.from_follower and answer.diverging_epoch is not None:
            self._lead().on_fetch(
                params.replica_id,
                fetch_offset=info.fetch_offset,
                log_start_offset=info.log_start_offset,
                leader_log_end=self.log.log_end_offset,
                broker_epoch=params.replica_epoch,
            )
        return answer

    planting.setattr(Partition, "fetch", fetch)


def a_divergence_brings_a_high_watermark(planting: pytest.MonkeyPatch) -> None:
    honest = ReplicaFetcher._process_response

    def process(self: ReplicaFetcher, tp: Any, state: Any, data: Any, follow_up: Any) -> None:
        replicas = self.replicas
        if data.diverging_epoch.epoch >= 0 and isinstance(replicas, LocalReplicas):
            replicas.hosted.get(tp).log.update_high_watermark(data.high_watermark)
        honest(self, tp, state, data, follow_up)

    planting.setattr(ReplicaFetcher, "_process_response", process)


def a_leader_acts_on_a_late_divergence(planting: pytest.MonkeyPatch) -> None:
    honest = ReplicaFetcher._process_responses

    def process(self: ReplicaFetcher, requested: Any, responses: Any) -> FollowUp:
        for tp, data in responses.items():
            if tp not in self.partitions.states and data.diverging_epoch.epoch >= 0:
                self.replicas.truncate_to(tp, data.diverging_epoch.end_offset, completed=True)
        return honest(self, requested, responses)

    planting.setattr(ReplicaFetcher, "_process_responses", process)


def an_answer_is_taken_whatever_was_asked(planting: pytest.MonkeyPatch) -> None:
    def process(self: ReplicaFetcher, _: Any, responses: Any) -> FollowUp:
        follow_up = FollowUp()
        for tp, data in responses.items():
            if (state := self.partitions.states.get(tp)) is not None:
                self._process_response(tp, state, data, follow_up)
        return follow_up

    planting.setattr(ReplicaFetcher, "_process_responses", process)


def an_end_of_an_epoch_is_for_any_leader_epoch(planting: pytest.MonkeyPatch) -> None:
    async def truncate(partitions: FollowedPartitions, wanted: Any) -> None:
        answers = await partitions.leader.fetch_epoch_end_offsets(wanted)
        ends = {tp: each.end for tp, each in answers.items() if each.error is ErrorCode.NONE}
        log_truncation.truncate_to_epoch_ends(partitions, ends, cause="leader epoch")

    planting.setattr(log_truncation, "_truncate_to_epoch_end_offsets", truncate)


def who_may_have_joined_does_not_count(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(PendingExpand, "maximal_isr", PendingExpand.isr)
    planting.setattr(Leadership, "_is_about_to_join", lambda *_: False)


def who_was_asked_to_leave_has_left(planting: pytest.MonkeyPatch) -> None:
    without = property(lambda self: self.last_committed.isr - self.leaving)
    planting.setattr(PendingShrink, "maximal_isr", without)
    planting.setattr(Leadership, "_is_about_to_join", lambda *_: False)
    honest = Leadership._propose

    def propose(self: Leadership, pending: Any) -> None:
        honest(self, pending)
        self.maybe_advance_high_watermark()

    planting.setattr(Leadership, "_propose", propose)


def an_end_is_given_though_it_may_have_been_further(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(list_offsets, "_check_available", lambda _: None)


def a_log_begins_anew_and_its_high_watermark_does_not(planting: pytest.MonkeyPatch) -> None:
    honest = Log.truncate_fully_and_start_at

    def begin_anew(self: Log, *where: Any) -> None:
        high_watermark = self.high_watermark
        honest(self, *where)
        self.high_watermark = high_watermark

    planting.setattr(Log, "truncate_fully_and_start_at", begin_anew)


def a_high_watermark_is_what_was_written_down(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(
        Log, "update_high_watermark", lambda self, offset: self._set_high_watermark(offset)
    )


def a_consumer_sees_the_log_end(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(LogReader, "end_for", lambda self, _: self.log.log_end_offset)


def below_the_minimum_it_goes_on(planting: pytest.MonkeyPatch) -> None:
    honest = isr.committed_end

    def committed_end(*of: Any, min_isr: int, **how: Any) -> Offset | None:
        return honest(*of, min_isr=1, **how)

    planting.setattr(leadership, "committed_end", committed_end)


def any_caught_up_replica_may_join(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(leadership, "is_eligible", lambda **_: True)


def a_high_watermark_is_enough_to_join(planting: pytest.MonkeyPatch) -> None:
    def may_expand(follower: FollowerState, *, high_watermark: Offset, **_: object) -> bool:
        return follower.log_end_offset >= high_watermark

    planting.setattr(leadership, "may_expand", may_expand)


def a_fenced_broker_may_join(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(controller_isr, "_may_join", lambda *_: True)


def every_registration_is_a_new_one(planting: pytest.MonkeyPatch) -> None:
    honest = controller_brokers.register

    def register(image: Any, request: Any, **how: Any) -> Any:
        known = image.broker(request.broker_id)
        if known is not None and known.incarnation_id == request.incarnation_id:
            request = attrs.evolve(request, incarnation_id=bytes(16))
        return honest(image, request, **how)

    planting.setattr(controller, "register", register)


def two_processes_may_have_one_number(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(controller_brokers, "_refusal", lambda *_: ErrorCode.NONE)


def a_registration_changes_no_isr(planting: pytest.MonkeyPatch) -> None:
    two_processes_may_have_one_number(planting)
    planting.setattr(controller_brokers, "elections_without", lambda *_, **__: ())


def the_last_one_stays_in_the_isr(planting: pytest.MonkeyPatch) -> None:
    honest = ElectionRules.__init__

    def without_eligible(self: ElectionRules, **how: Any) -> None:
        honest(self, **how | {"eligible": False})

    planting.setattr(ElectionRules, "__init__", without_eligible)


def any_leader_is_better_than_none(planting: pytest.MonkeyPatch) -> None:
    honest = ElectionRules.__init__

    def unclean(self: ElectionRules, **how: Any) -> None:
        honest(self, **how | {"unclean": True})

    planting.setattr(ElectionRules, "__init__", unclean)


CASES: list[Case] = [
    (
        "S01",
        "a-follower-that-comes-back-keeps-what-was-committed",
        logs_are_cut_to_their_high_watermark,
    ),
    ("S02", "two-logs-of-one-length", epochs_are_ignored),
    ("S03", "two-elections-in-quick-succession", an_unknown_epoch_ends_where_the_next_begins),
    ("S04", "a-leader-that-has-written-nothing-yet", a_leader_epoch_begins_with_its_first_record),
    (
        "S07",
        "a-leader-killed-while-it-holds-an-unreplicated-record",
        a_divergence_brings_a_high_watermark,
    ),
    ("S08", "a-fetch-that-diverges-is-no-progress", a_divergence_counts_as_progress),
    ("S09", "two-logs-with-nothing-in-common", epochs_are_ignored),
    (
        "S11",
        "an-answer-that-comes-too-late",
        a_leader_acts_on_a_late_divergence,
    ),
    ("S12", "an-answer-that-comes-too-late", an_answer_is_taken_whatever_was_asked),
    ("S11", "an-answer-that-outlives-two-elections", an_end_of_an_epoch_is_for_any_leader_epoch),
    (
        "S12",
        "an-answer-for-a-fetcher-that-has-its-partition-back",
        an_answer_is_taken_whatever_was_asked,
    ),
    ("S15", "equal-offsets-and-other-records", any_epoch_is_served),
    ("S15", "two-elections-in-quick-succession", any_epoch_is_served),
    ("S17", "what-a-joining-replica-lacks-is-not-committed", who_may_have_joined_does_not_count),
    ("S18", "who-is-to-leave-counts-until-the-controller-agrees", who_was_asked_to_leave_has_left),
    (
        "S20",
        "a-new-leader-that-does-not-know-yet-what-is-committed",
        an_end_is_given_though_it_may_have_been_further,
    ),
    (
        "S21",
        "a-log-that-begins-anew-takes-its-high-watermark-along",
        a_log_begins_anew_and_its_high_watermark_does_not,
    ),
    (
        "S22",
        "a-high-watermark-that-the-log-does-not-reach",
        a_high_watermark_is_what_was_written_down,
    ),
    ("S23", "alone-nothing-is-committed", below_the_minimum_it_goes_on),
    ("S24", "nobody-waits-for-a-broker-that-is-shutting-down", any_caught_up_replica_may_join),
    ("S25", "a-segment-that-ends-where-the-committed-records-do", a_consumer_sees_the_log_end),
    ("S27", "a-leader-that-was-stopped-wakes-up-deposed", epochs_are_ignored),
    ("S27", "a-leader-that-was-stopped-wakes-up-deposed", who_was_asked_to_leave_has_left),
    ("S28", "a-request-of-another-leader-epoch-is-refused", any_epoch_is_served),
    ("S29", "a-consumer-that-read-what-was-lost-afterwards", epochs_are_ignored),
    (
        "S30",
        "a-joining-replica-has-reached-the-present-leader-epoch",
        a_high_watermark_is_enough_to_join,
    ),
    ("S32", "a-fenced-broker-does-not-join", a_fenced_broker_may_join),
    ("S33", "a-wiped-broker-that-was-about-to-join", a_fenced_broker_may_join),
    ("S34", "a-registration-that-is-sent-again", two_processes_may_have_one_number),
    ("S34", "a-registration-that-is-sent-again", every_registration_is_a_new_one),
    ("S35", "the-last-one-standing-loses-its-power", the_last_one_stays_in_the_isr),
    ("S36", "nobody-is-left-who-surely-has-everything", any_leader_is_better_than_none),
    ("S38", "a-leader-that-is-back-before-anybody-missed-it", a_registration_changes_no_isr),
    (
        "S39",
        "nobody-leads-where-only-an-unclean-election-could-help",
        any_leader_is_better_than_none,
    ),
    ("S39", "an-unclean-election-after-which-the-logs-are-the-same-again", epochs_are_ignored),
]


@pytest.mark.parametrize(("scenario", "story", "mistake"), pairs(CASES))
def test_without_its_rule_a_story_comes_out_otherwise(
    scenario: str, story: str, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_comes_out_otherwise(scenario, story, mistake, monkeypatch)
