"""As `test_rules_taken_out`: of where logs begin, of disks and clocks, the ISR, the controller,
fetch sessions and producers.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from replication.controller.rules import (
    brokers as controller_brokers,
    decisions as controller_decisions,
    election,
    isr_changes as controller_isr,
    reassignment,
)
from replication.controller.rules.election import Election
from replication.errors import ErrorCode, KafkaError
from replication.follower.fetcher import FollowUp, ReplicaFetcher
from replication.follower.rules.fetch_session_handler import FetchSessionHandler
from replication.leader.rules import isr, leadership
from replication.leader.rules.fetch_session.cache import CacheShard
from replication.leader.rules.isr import Commit, IsrAnswer, Pending
from replication.leader.rules.leadership import Leadership
from replication.leader.rules.log_reader import LogReader
from replication.leader.rules.replica_selector import PartitionView
from replication.metadata.log import MetadataLog
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.replica_manager.delayed import DelayedOutcomes
from replication.replica_manager.followed import LocalReplicas
from scenarios.world.clock import SimulatedClock
from storage.batch.record_batch import BatchHeader, read_header
from storage.errors import InvalidRecordError
from storage.log import append, retention
from storage.log.local_log import LocalLog
from storage.log.log import Log
from storage.log.recovery import epochs, loader
from storage.log.segment import Segment
from storage.manager.log_directory import LogDirectory
from storage.producers.snapshot import BatchMetadata, ProducerState
from storage.producers.state import ProducerStateManager
from storage.types import Offset, TopicPartition
from tests.mutants.planting import planted
from tests.scenarios.test_rules_taken_out import (
    an_unknown_epoch_ends_where_the_next_begins,
    any_leader_is_better_than_none,
    epochs_are_ignored,
    logs_are_cut_to_their_high_watermark,
    who_may_have_joined_does_not_count,
)
from tests.scenarios.without_rule import Case, Mistake, check_comes_out_otherwise, pairs


def what_is_not_committed_may_go(planting: pytest.MonkeyPatch) -> None:
    honest = retention.plan

    def plan(*of: Any, log_end_offset: Offset, **how: Any) -> Any:
        how["high_watermark"] = log_end_offset
        return honest(*of, log_end_offset=log_end_offset, **how)

    planting.setattr(retention, "plan", plan)


def a_log_start_is_the_leaders_own(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Log, "increment_log_start_offset", lambda *_: False)


def a_gap_is_a_mistake(planting: pytest.MonkeyPatch) -> None:
    honest = LocalReplicas.process_partition_data

    def process(
        self: LocalReplicas, tp: TopicPartition, fetch_offset: Offset, epoch: int, data: Any
    ) -> Any:
        if data.records and read_header(data.records, 0).base_offset > fetch_offset:
            raise InvalidRecordError(f"{fetch_offset} is missing")
        return honest(self, tp, fetch_offset, epoch, data)

    planting.setattr(LocalReplicas, "process_partition_data", process)


def what_was_said_to_be_synced_is_there(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(loader.Loader, "_miss_synced", lambda *_: None)


def any_bytes_are_sound(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(append, "check_sound", lambda *_: None)


def lost_epochs_stay_lost(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(epochs, "complete", lambda *_, **__: None)


def any_directory_is_ones_own(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(LogDirectory, "_compare", lambda *_, **__: None)


def time_is_what_the_wall_clock_says(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(SimulatedClock, "now_ms", SimulatedClock.wall_ms)


def who_has_everything_may_be_late_too(planting: pytest.MonkeyPatch) -> None:
    def caught_up(self: isr.FollowerState, *, now_ms: int, max_lag_ms: int, **_: object) -> bool:
        return now_ms - self.last_fetch_ms <= max_lag_ms

    planting.setattr(isr.FollowerState, "caught_up", caught_up)


def there_is_no_minimum(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Leadership, "under_min_isr", property(lambda _: False))


def one_bad_answer_is_the_fetchers_end(planting: pytest.MonkeyPatch) -> None:
    honest = ReplicaFetcher._process_responses
    ended: list[ReplicaFetcher] = []

    def process(self: ReplicaFetcher, requested: Any, responses: Any) -> FollowUp:
        if any(self is each for each in ended):
            return FollowUp(errors=list(requested))
        follow_up = honest(self, requested, responses)
        if follow_up.errors:
            ended.append(self)
        return follow_up

    planting.setattr(ReplicaFetcher, "_process_responses", process)


def any_leader_may_change_an_isr(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(controller_isr, "_judge", lambda *_: ErrorCode.NONE)
    honest = controller_isr._wish

    def wish(partition: Any, data: Any) -> Any:
        asked = controller_isr.proposed_isr(data)
        return attrs.evolve(honest(partition, data), isr=tuple(sorted(asked)))

    planting.setattr(controller_isr, "_wish", wish)


def an_answer_is_newer_than_what_is_known(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership.on_isr_answer

    def on_isr_answer(self: Leadership, pending: Pending, answer: IsrAnswer) -> bool:
        self.isr_state = pending
        return honest(self, pending, answer)

    def outcome_of(answer: IsrAnswer, **_: object) -> Commit:
        return Commit(answer.isr, answer.partition_epoch)

    planting.setattr(Leadership, "on_isr_answer", on_isr_answer)
    planting.setattr(leadership, "outcome_of", outcome_of)


def a_consumer_is_given_whatever_is_there(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(LogReader, "end_for", lambda self, _: self.log.log_end_offset)


def anybody_near_is_good_enough(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership._view

    def view(self: Leadership, fetch_offset: Offset) -> PartitionView:
        committed, self.isr_state = self.isr_state, isr.CommittedIsr(frozenset(self.followers))
        try:
            return honest(self, fetch_offset)
        finally:
            self.isr_state = committed

    planting.setattr(Leadership, "_view", view)


def consumers_come_first(planting: pytest.MonkeyPatch) -> None:
    honest = CacheShard._evict

    def evict(self: CacheShard, newcomer: Any, *, privileged: bool, now_ms: int) -> bool:
        return honest(self, newcomer, privileged=not privileged, now_ms=now_ms)

    planting.setattr(CacheShard, "_evict", evict)


def what_was_cut_is_remembered(planting: pytest.MonkeyPatch) -> None:
    def keep(self: ProducerStateManager, _: Offset, log_end_offset: Offset, **__: Any) -> None:
        self.map_end_offset = log_end_offset

    planting.setattr(ProducerStateManager, "truncate_and_reload", keep)


def nothing_is_known_again(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(ProducerState, "find_duplicate", lambda *_: None)


def a_number_is_enough(planting: pytest.MonkeyPatch) -> None:
    def find_duplicate(self: ProducerState, header: BatchHeader) -> BatchMetadata | None:
        wanted = header.base_sequence, header.last_sequence
        known = {(each.first_sequence, each.last_sequence): each for each in self.batches}
        return known.get(wanted)

    def move_to_epoch(self: ProducerState, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch

    planting.setattr(ProducerState, "find_duplicate", find_duplicate)
    planting.setattr(ProducerState, "move_to_epoch", move_to_epoch)


def only_the_high_watermark_wakes_a_waiting_request(planting: pytest.MonkeyPatch) -> None:
    def look_at(self: DelayedOutcomes, topic_partition: TopicPartition) -> None:
        required = self.required.get(topic_partition)
        if required is None:
            return
        try:
            partition = self.hosted.get(topic_partition)
        except KafkaError:
            return
        if partition.log.high_watermark >= required:
            self.outcomes[topic_partition] = ErrorCode.NONE
            del self.required[topic_partition]

    planting.setattr(DelayedOutcomes, "_look_at", look_at)


def a_move_is_over_when_it_has_begun(planting: pytest.MonkeyPatch) -> None:
    def completed(partition: PartitionRegistration) -> PartitionRegistration:
        if not reassignment.is_reassigned(partition):
            return partition
        replicas = tuple(each for each in partition.replicas if each not in partition.removing)
        members = tuple(each for each in partition.isr if each in replicas)
        return attrs.evolve(partition, replicas=replicas, isr=members, adding=(), removing=())

    planting.setattr(election, "completed", completed)


def the_preferred_replica_is_always_elected(planting: pytest.MonkeyPatch) -> None:
    honest = election._elected

    def elected(wanted: PartitionRegistration, kind: Election, *of: Any, **how: Any) -> Any:
        if kind is Election.PREFERRED:
            wanted = attrs.evolve(wanted, isr=wanted.replicas)
        return honest(wanted, kind, *of, **how)

    planting.setattr(election, "_elected", elected)


def a_cleaner_learns_of_nothing(planting: pytest.MonkeyPatch) -> None:
    end_of, honest = LocalLog.end_of, LocalLog.replace

    def held(log: LocalLog, old: Sequence[Segment]) -> list[Segment]:
        return [each for each in old if each in list(log.segments)]

    def replace(self: LocalLog, old: Sequence[Segment], base_offset: Offset) -> None:
        honest(self, held(self, old), base_offset)

    def end(self: LocalLog, old: Sequence[Segment]) -> Offset:
        return end_of(self, left) if (left := held(self, old)) else 0

    planting.setattr(LocalLog, "end_of", end)
    planting.setattr(LocalLog, "replace", replace)


def every_end_was_in_good_order(planting: pytest.MonkeyPatch) -> None:
    honest = controller_decisions.elections_without

    def elections_without(*of: Any, lost_its_tail: bool = False, **how: Any) -> Any:
        return honest(*of, lost_its_tail=False, **how)

    planting.setattr(controller_brokers, "elections_without", elections_without)


def decisions_are_published_at_once(planting: pytest.MonkeyPatch) -> None:
    honest = MetadataLog.append

    def append(self: MetadataLog, records: Sequence[Any]) -> MetadataImage:
        image = honest(self, records)
        self.log.update_high_watermark(self.log_end_offset)
        self._advanced.set()
        self._advanced = trio.Event()
        return image

    planting.setattr(MetadataLog, "append", append)


def a_session_outlives_a_lost_answer(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(FetchSessionHandler, "handle_error", lambda _: None)
    planting.setattr(FetchSessionHandler, "_reject", lambda *_: None)


def a_log_goes_on_behind_a_hole(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(LocalReplicas, "truncate_fully_and_start_at", lambda *_: None)


def nothing_is_synced_for_an_ack(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Log, "flush_is_due", property(lambda _: False))


def metadata_does_not_end_a_change(planting: pytest.MonkeyPatch) -> None:
    honest = Leadership.install

    def install(self: Leadership, registration: PartitionRegistration) -> None:
        before = self.isr_state, self.partition_epoch
        honest(self, registration)
        if not isinstance(before[0], isr.CommittedIsr):
            self.isr_state, self.partition_epoch = before

    planting.setattr(Leadership, "install", install)


CASES: list[Case] = [
    ("S40", "a-log-that-begins-later-on-every-replica", a_log_goes_on_behind_a_hole),
    ("S41", "a-leader-that-grew-while-its-follower-was-away", epochs_are_ignored),
    ("S43", "what-is-not-committed-is-not-deleted", what_is_not_committed_may_go),
    ("S44", "a-log-that-begins-later-on-every-replica", a_log_start_is_the_leaders_own),
    ("S45", "a-follower-finds-gaps-where-records-were", a_gap_is_a_mistake),
    ("S46", "a-log-that-is-cleaned-while-it-begins-later", a_cleaner_learns_of_nothing),
    ("S48", "everybody-killed-at-one-instant", logs_are_cut_to_their_high_watermark),
    ("S49", "a-replica-that-lost-its-power-is-not-elected", every_end_was_in_good_order),
    ("S50", "a-power-cut-for-everybody-at-once", nothing_is_synced_for_an_ack),
    ("S51", "a-disk-that-lied-about-its-last-sync", what_was_said_to_be_synced_is_there),
    ("S53", "a-bit-rots-where-nobody-looks", any_bytes_are_sound),
    ("S56", "checkpoints-that-were-cut-short", lost_epochs_stay_lost),
    ("S58", "a-broker-with-the-disk-of-another-does-not-start", any_directory_is_ones_own),
    ("S59", "wall-clocks-jump", time_is_what_the_wall_clock_says),
    ("S60", "wall-clocks-jump", time_is_what_the_wall_clock_says),
    ("S62", "a-follower-that-is-sometimes-too-late", who_has_everything_may_be_late_too),
    ("S63", "a-leader-left-alone-takes-no-more-promises", there_is_no_minimum),
    (
        "S65",
        "a-leader-killed-while-it-holds-an-unreplicated-record",
        planted("a leader does not commit alone"),
    ),
    ("S66", "what-one-has-acked-is-seen-no-sooner", planted("a leader does not commit alone")),
    ("S67", "what-a-joining-replica-lacks-is-not-committed", who_may_have_joined_does_not_count),
    ("S68", "links-that-work-one-way-only", planted("a leader does not commit alone")),
    ("S69", "swizzled", planted("a leader does not commit alone")),
    ("S70", "one-bad-partition-does-not-stop-the-others", one_bad_answer_is_the_fetchers_end),
    ("S71", "a-deposed-leader-changes-no-isr", any_leader_may_change_an_isr),
    ("S72", "a-change-of-the-isr-whose-answer-is-lost", metadata_does_not_end_a_change),
    ("S73", "an-answer-that-comes-after-the-news", an_answer_is_newer_than_what_is_known),
    ("S75", "the-controller-dies-in-the-middle-of-an-election", decisions_are_published_at_once),
    ("S77", "a-move-outlives-its-leader-and-its-controller", a_move_is_over_when_it_has_begun),
    ("S79", "two-elections-within-one-fetch", an_unknown_epoch_ends_where_the_next_begins),
    ("S79", "two-elections-within-one-fetch", the_preferred_replica_is_always_elected),
    ("S81", "a-consumer-in-another-rack", a_consumer_is_given_whatever_is_there),
    ("S81", "a-consumer-in-another-rack", anybody_near_is_good_enough),
    ("S82", "a-follower-comes-before-a-consumer", consumers_come_first),
    ("S83", "an-answer-that-is-lost-begins-a-new-session", a_session_outlives_a_lost_answer),
    ("S87", "a-producer-without-numbers-writes-twice", nothing_is_known_again),
    ("S88", "a-batch-sent-again-is-known-to-the-next-leader", what_was_cut_is_remembered),
    ("S88", "a-batch-sent-again-is-known-to-the-next-leader", nothing_is_known_again),
    ("S89", "a-number-used-again-is-not-taken-for-the-old-one", a_number_is_enough),
    (
        "S93",
        "a-deposed-leader-does-not-ack-what-it-had-waiting",
        only_the_high_watermark_wakes_a_waiting_request,
    ),
    ("S94", "five-replicas-one-cut-off-three-killed-one-removed", a_move_is_over_when_it_has_begun),
    (
        "S33",
        "an-empty-disk-under-a-broker-that-was-about-to-join",
        any_leader_is_better_than_none,
    ),
    ("S27", "a-leader-that-is-neither-well-nor-dead", epochs_are_ignored),
]


@pytest.mark.parametrize(("scenario", "story", "mistake"), pairs(CASES))
def test_without_its_rule_a_story_comes_out_otherwise(
    scenario: str, story: str, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_comes_out_otherwise(scenario, story, mistake, monkeypatch)
