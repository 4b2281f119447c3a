"""Runs of stories with one rule taken out: without its rule a story must have another result.

The mistakes are those that the scenarios are about (docs/stories.md), and those that the simulator
found (docs/found.md). A mistake is a mutant (`tests.mutants`), one function replaced by another,
a switch of the museum (`scenarios.museum`), or a function that plants it.

The file is long because it is one table of rules, with the mistakes that take them out.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from replication.client.producer import destinations
from replication.controller import controller
from replication.controller.rules import (
    brokers as controller_brokers,
    configs,
    decisions as controller_decisions,
    election,
    events,
    reassignment,
)
from replication.controller.rules.election import Election, ElectionRules, Wish, after
from replication.errors import ErrorCode
from replication.follower.fetcher import FollowUp, ReplicaFetcher
from replication.follower.partitions import FollowedPartitions
from replication.follower.rules.fetch_session_handler import FetchSessionHandler
from replication.leader import list_offsets
from replication.leader.rules import isr, leadership, log_reader
from replication.leader.rules.fetch_session.cache import CacheShard
from replication.leader.rules.isr import (
    PendingExpand,
    PendingShrink,
)
from replication.leader.rules.leadership import Leadership
from replication.leader.rules.replica_selector import PartitionView
from replication.metadata.rules.image import MetadataDelta, MetadataImage, PartitionRegistration
from replication.replica_manager.configuration import Configuration
from replication.replica_manager.followed import LocalReplicas
from replication.replica_manager.roles import RoleChanges
from scenarios.checkers.committed import CommittedLog
from scenarios.museum.in_sync import (
    a_fenced_broker_may_join,
    one_replica_is_enough_to_commit,
    who_has_the_high_watermark_may_join,
)
from scenarios.museum.truncation import (
    a_divergence_brings_a_high_watermark,
    a_fetch_that_diverges_is_progress,
    a_leader_acts_on_a_late_divergence,
    a_log_begins_anew_and_its_high_watermark_does_not,
    an_epoch_begins_with_its_first_record,
    an_unknown_epoch_ends_where_the_next_begins,
    logs_are_cut_to_their_high_watermark,
)
from scenarios.story.runner import run_story
from scenarios.story.script import ScriptError, StoryChangedError, find_story, read_story
from scenarios.world.clock import SimulatedClock
from storage.batch.record_batch import BatchHeader, read_header
from storage.errors import InvalidRecordError, OffsetOutOfRangeError, StorageError
from storage.log import append
from storage.log.append import LogAppendInfo, analyze, check_sizes
from storage.log.local_log import LocalLog
from storage.log.log import Log
from storage.log.recovery import epochs, loader, tail
from storage.log.recovery.loader import Loader
from storage.log.segment import Segment
from storage.manager.log_directory import LogDirectory
from storage.producers.snapshot import BatchMetadata, ProducerState
from storage.producers.state import ProducerStateManager
from storage.types import Offset, TopicPartition
from tests.deep import one_in
from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import planted

Mistake = Callable[[pytest.MonkeyPatch], None]

REPLACED: dict[str, tuple[object, str, object]] = {
    "a leader answers no divergence": (log_reader, "diverging_end", lambda *_, **__: None),
    "a new leader tells its log end at once": (
        list_offsets,
        "_check_available",
        lambda _: None,
    ),
    "any caught up replica may join": (leadership, "is_eligible", lambda **_: True),
    "a follower ignores the leader's log start": (
        Log,
        "increment_log_start_offset",
        lambda *_: False,
    ),
    "missing synced records are not noticed": (loader.Loader, "_miss_synced", lambda *_: None),
    "appended bytes are not checked": (append, "check_sound", lambda *_: None),
    "lost leader epochs are not read from the log": (epochs, "complete", lambda *_, **__: None),
    "a log directory of another broker is taken": (LogDirectory, "_compare", lambda *_, **__: None),
    "time is what the wall clock says": (SimulatedClock, "now_ms", SimulatedClock.wall_ms),
    "no batch is recognised as a duplicate": (ProducerState, "find_duplicate", lambda *_: None),
    "what was committed has no gaps": (CommittedLog, "_is_in_gap", lambda *_: False),
    "a follower does not start over out of range": (
        LocalReplicas,
        "truncate_fully_and_start_at",
        lambda *_: None,
    ),
    "nothing is synced for an ack": (Log, "flush_is_due", property(lambda _: False)),
    "a full disk is no failure": (Log, "fail", lambda _, error: error),
    "an ISR changes before its leader knows the minimum": (
        configs,
        "before_isr_changes",
        lambda *_: (),
    ),
    "empty segments behind a gap stay": (
        Loader,
        "_end_before_gaps",
        lambda *_: None,
    ),
    "times of lost records stay": (tail, "_check_times", lambda *_: None),
    "times of lost records before a gap stay": (
        Loader,
        "_forget_times_behind_the_end",
        lambda *_: None,
    ),
    "a producer refuses partitions that it has not heard of": (
        destinations,
        "_lacks",
        lambda *_: False,
    ),
    "wrong bytes are not reported": (FollowedPartitions, "report_refused", lambda *_: None),
    "a high watermark is written down over a cut": (
        Log,
        "lasting_high_watermark",
        property(lambda log: log.high_watermark),
    ),
}
"""By the name of a mistake, what is replaced, and by what."""


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


def a_gap_is_a_mistake(planting: pytest.MonkeyPatch) -> None:
    honest = LocalReplicas.process_partition_data

    def process(
        self: LocalReplicas, tp: TopicPartition, fetch_offset: Offset, epoch: int, data: Any
    ) -> Any:
        if data.records and read_header(data.records, 0).base_offset > fetch_offset:
            raise InvalidRecordError(f"{fetch_offset} is missing")
        return honest(self, tp, fetch_offset, epoch, data)

    planting.setattr(LocalReplicas, "process_partition_data", process)


def who_has_everything_may_be_late_too(planting: pytest.MonkeyPatch) -> None:
    def caught_up(self: isr.FollowerState, *, now_ms: int, max_lag_ms: int, **_: object) -> bool:
        return now_ms - self.last_fetch_ms <= max_lag_ms

    planting.setattr(isr.FollowerState, "caught_up", caught_up)


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


def a_number_is_enough(planting: pytest.MonkeyPatch) -> None:
    def find_duplicate(self: ProducerState, header: BatchHeader) -> BatchMetadata | None:
        wanted = header.base_sequence, header.last_sequence
        known = {(each.first_sequence, each.last_sequence): each for each in self.batches}
        return known.get(wanted)

    def move_to_epoch(self: ProducerState, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch

    planting.setattr(ProducerState, "find_duplicate", find_duplicate)
    planting.setattr(ProducerState, "move_to_epoch", move_to_epoch)


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


def a_session_outlives_a_lost_answer(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(FetchSessionHandler, "handle_error", lambda _: None)
    planting.setattr(FetchSessionHandler, "_reject", lambda *_: None)


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


def every_last_leader_is_elected_as_such(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(events, "_surely_whole", lambda *_: [])


def a_minimum_is_lowered_before_roles_are_taken(planting: pytest.MonkeyPatch) -> None:
    honest = RoleChanges.apply

    async def apply(self: RoleChanges, image: MetadataImage, delta: MetadataDelta) -> None:
        await self.configuration.apply(image, delta)
        await honest(self, image, delta)

    planting.setattr(RoleChanges, "apply", apply)


def a_minimum_is_raised_after_roles_are_taken(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Configuration, "_raise_minimums", lambda *_: iter(()))


def what_follows_a_gap_stays(planting: pytest.MonkeyPatch) -> None:
    honest = Loader._joins

    def joins(self: Loader, loaded: Any, *segments: Any) -> bool:
        return honest(self, loaded, *segments) or self.marks.clean

    planting.setattr(Loader, "_joins", joins)
    planting.setattr(Loader, "_end_before_gaps", lambda *_: None)


def a_failed_retention_is_not_noticed(planting: pytest.MonkeyPatch) -> None:
    """And its plan is wrong, or nothing would be refused."""
    planted("segments are deleted up to the high watermark")(planting)
    honest = Log.delete_old_segments

    def delete_old_segments(self: Log, wall_ms: int) -> int:
        try:
            return honest(self, wall_ms)
        except AssertionError as error:
            raise OffsetOutOfRangeError(str(error)) from error

    planting.setattr(Log, "delete_old_segments", delete_old_segments)


def a_follower_refuses_what_it_would_take_of_no_producer(planting: pytest.MonkeyPatch) -> None:
    honest = Log.append_as_follower

    def append_as_follower(self: Log, records: memoryview, **how: Any) -> LogAppendInfo:
        check_sizes(analyze(records), self.config)
        return honest(self, records, **how)

    planting.setattr(Log, "append_as_follower", append_as_follower)


def a_follower_joins_before_its_log_start_has_moved(planting: pytest.MonkeyPatch) -> None:
    def may_expand(follower: isr.FollowerState, **known: Offset) -> bool:
        return isr.may_expand(follower, **{**known, "leader_log_start": 0})

    planting.setattr(leadership, "may_expand", may_expand)


# The scenario, a story that shows it, and the mistake.
CASES: list[tuple[str, str, str | Mistake]] = [
    (
        "S01",
        "a-follower-that-comes-back-keeps-what-was-committed",
        logs_are_cut_to_their_high_watermark,
    ),
    ("S02", "two-logs-of-one-length", "a leader answers no divergence"),
    ("S03", "two-elections-in-quick-succession", an_unknown_epoch_ends_where_the_next_begins),
    ("S04", "a-leader-that-has-written-nothing-yet", an_epoch_begins_with_its_first_record),
    (
        "S07",
        "a-leader-killed-while-it-holds-an-unreplicated-record",
        a_divergence_brings_a_high_watermark,
    ),
    ("S08", "a-fetch-that-diverges-is-no-progress", a_fetch_that_diverges_is_progress),
    ("S09", "two-logs-with-nothing-in-common", "a leader answers no divergence"),
    ("S11", "an-answer-that-comes-too-late", a_leader_acts_on_a_late_divergence),
    ("S12", "an-answer-that-comes-too-late", "a response is for its request"),
    (
        "S11",
        "an-answer-that-outlives-two-elections",
        "an epoch's end is of the leader epoch of the request",
    ),
    ("S12", "an-answer-for-a-fetcher-that-has-its-partition-back", "a response is for its request"),
    ("S15", "equal-offsets-and-other-records", "a fetch of an earlier epoch is refused"),
    ("S15", "two-elections-in-quick-succession", "a fetch of a later epoch is refused"),
    ("S17", "what-a-joining-replica-lacks-is-not-committed", who_may_have_joined_does_not_count),
    ("S18", "who-is-to-leave-counts-until-the-controller-agrees", who_was_asked_to_leave_has_left),
    (
        "S20",
        "a-new-leader-that-does-not-know-yet-what-is-committed",
        "a new leader tells its log end at once",
    ),
    (
        "S21",
        "a-log-that-begins-anew-takes-its-high-watermark-along",
        a_log_begins_anew_and_its_high_watermark_does_not,
    ),
    ("S22", "a-high-watermark-that-the-log-does-not-reach", "a high watermark is inside its log"),
    ("S23", "alone-nothing-is-committed", one_replica_is_enough_to_commit),
    ("S24", "nobody-waits-for-a-broker-that-is-shutting-down", "any caught up replica may join"),
    (
        "S25",
        "a-segment-that-ends-where-the-committed-records-do",
        "a consumer reads committed records only",
    ),
    ("S27", "a-leader-that-was-stopped-wakes-up-deposed", "a leader answers no divergence"),
    ("S27", "a-leader-that-was-stopped-wakes-up-deposed", who_was_asked_to_leave_has_left),
    (
        "S28",
        "a-request-of-another-leader-epoch-is-refused",
        "a fetch of an earlier epoch is refused",
    ),
    ("S29", "a-consumer-that-read-what-was-lost-afterwards", "a leader answers no divergence"),
    (
        "S30",
        "a-joining-replica-has-reached-the-present-leader-epoch",
        who_has_the_high_watermark_may_join,
    ),
    ("S32", "a-fenced-broker-does-not-join", a_fenced_broker_may_join),
    (
        "S33",
        "a-wiped-broker-that-was-about-to-join",
        "only a registered process is added, anywhere",
    ),
    ("S34", "a-registration-that-is-sent-again", two_processes_may_have_one_number),
    ("S34", "a-registration-that-is-sent-again", every_registration_is_a_new_one),
    ("S35", "the-last-one-standing-loses-its-power", the_last_one_stays_in_the_isr),
    ("S36", "nobody-is-left-who-surely-has-everything", "a leader is in sync, or eligible"),
    ("S38", "a-leader-that-is-back-before-anybody-missed-it", a_registration_changes_no_isr),
    (
        "S39",
        "nobody-leads-where-only-an-unclean-election-could-help",
        "a leader is in sync, or eligible",
    ),
    (
        "S39",
        "an-unclean-election-after-which-the-logs-are-the-same-again",
        "a leader answers no divergence",
    ),
    (
        "S39",
        "a-last-leader-that-waits-for-an-eligible-replica",
        every_last_leader_is_elected_as_such,
    ),
    (
        "S40",
        "a-log-that-begins-later-on-every-replica",
        "a follower does not start over out of range",
    ),
    ("S41", "a-leader-that-grew-while-its-follower-was-away", "a leader answers no divergence"),
    (
        "S43",
        "what-is-not-committed-is-not-deleted",
        "segments are deleted up to the high watermark",
    ),
    (
        "S44",
        "a-log-that-begins-later-on-every-replica",
        "a follower ignores the leader's log start",
    ),
    ("S45", "a-follower-finds-gaps-where-records-were", a_gap_is_a_mistake),
    ("S46", "a-log-that-is-cleaned-while-it-begins-later", a_cleaner_learns_of_nothing),
    ("S48", "everybody-killed-at-one-instant", logs_are_cut_to_their_high_watermark),
    (
        "S49",
        "a-replica-that-lost-its-power-is-not-elected",
        "a broker without a clean shutdown is not eligible",
    ),
    ("S50", "a-power-cut-for-everybody-at-once", "nothing is synced for an ack"),
    ("S51", "a-disk-that-lied-about-its-last-sync", "missing synced records are not noticed"),
    ("S53", "a-bit-rots-where-nobody-looks", "appended bytes are not checked"),
    ("S56", "checkpoints-that-were-cut-short", "lost leader epochs are not read from the log"),
    (
        "S58",
        "a-broker-with-the-disk-of-another-does-not-start",
        "a log directory of another broker is taken",
    ),
    ("S59", "wall-clocks-jump", "time is what the wall clock says"),
    ("S60", "wall-clocks-jump", "time is what the wall clock says"),
    ("S62", "a-follower-that-is-sometimes-too-late", who_has_everything_may_be_late_too),
    (
        "S63",
        "a-leader-left-alone-takes-no-more-promises",
        one_replica_is_enough_to_commit,
    ),
    (
        "S65",
        "a-leader-killed-while-it-holds-an-unreplicated-record",
        "a leader does not commit alone",
    ),
    ("S66", "what-one-has-acked-is-seen-no-sooner", "a leader does not commit alone"),
    ("S67", "what-a-joining-replica-lacks-is-not-committed", who_may_have_joined_does_not_count),
    ("S68", "links-that-work-one-way-only", "a leader does not commit alone"),
    ("S69", "swizzled", "a leader does not commit alone"),
    ("S70", "one-bad-partition-does-not-stop-the-others", one_bad_answer_is_the_fetchers_end),
    (
        "S71",
        "a-deposed-leader-changes-no-isr",
        "an ISR is changed by its leader, from the present one",
    ),
    (
        "S72",
        "a-change-of-the-isr-whose-answer-is-lost",
        "an ISR change of unknown outcome is not given up",
    ),
    (
        "S73",
        "an-answer-that-comes-after-the-news",
        "an answer older than the metadata changes nothing",
    ),
    (
        "S75",
        "the-controller-dies-in-the-middle-of-an-election",
        "a decision is synced before it is published",
    ),
    (
        "S74",
        "a-minority-is-cut-off-with-the-leading-controller",
        "a broker is sent what is committed",
    ),
    (
        "S75",
        "a-controller-dies-with-an-election-that-no-other-has",
        "a broker is sent what is committed",
    ),
    (
        "S76",
        "two-of-three-controllers-die",
        "a decision is answered once it is committed",
    ),
    ("S77", "a-move-outlives-its-leader-and-its-controller", a_move_is_over_when_it_has_begun),
    ("S79", "two-elections-within-one-fetch", an_unknown_epoch_ends_where_the_next_begins),
    ("S79", "two-elections-within-one-fetch", the_preferred_replica_is_always_elected),
    ("S81", "a-consumer-in-another-rack", "a consumer reads committed records only"),
    ("S81", "a-consumer-in-another-rack", anybody_near_is_good_enough),
    ("S82", "a-follower-comes-before-a-consumer", consumers_come_first),
    ("S83", "an-answer-that-is-lost-begins-a-new-session", a_session_outlives_a_lost_answer),
    ("S87", "a-producer-without-numbers-writes-twice", "no batch is recognised as a duplicate"),
    ("S88", "a-batch-sent-again-is-known-to-the-next-leader", what_was_cut_is_remembered),
    (
        "S88",
        "a-batch-sent-again-is-known-to-the-next-leader",
        "no batch is recognised as a duplicate",
    ),
    ("S89", "a-number-used-again-is-not-taken-for-the-old-one", a_number_is_enough),
    (
        "S93",
        "a-deposed-leader-does-not-ack-what-it-had-waiting",
        "a waiting produce request fails when its leader is deposed",
    ),
    ("S94", "five-replicas-one-cut-off-three-killed-one-removed", a_move_is_over_when_it_has_begun),
    (
        "S33",
        "an-empty-disk-under-a-broker-that-was-about-to-join",
        "a leader is in sync, or eligible",
    ),
    ("S27", "a-leader-that-is-neither-well-nor-dead", "a leader answers no divergence"),
    ("S30", "a-leader-again-that-missed-a-leader-epoch", positions_outlive_a_missed_leader_epoch),
    ("S35", "a-minimum-lowered-while-nobody-leads", who_was_eligible_stays_so),
    (
        "S23",
        "a-leader-is-deposed-and-its-minimum-lowered-at-once",
        a_minimum_is_lowered_before_roles_are_taken,
    ),
    (
        "S23",
        "a-minimum-is-raised-and-an-isr-made-smaller-at-once",
        a_minimum_is_raised_after_roles_are_taken,
    ),
    (
        "S23",
        "a-minimum-of-which-a-leader-has-not-heard",
        "an ISR changes before its leader knows the minimum",
    ),
    ("S54", "a-full-disk-under-the-metadata", "a full disk is no failure"),
    (
        "S10",
        "a-batch-from-when-segments-were-larger",
        a_follower_refuses_what_it_would_take_of_no_producer,
    ),
    ("S51", "a-disk-that-lied-over-a-roll", what_follows_a_gap_stays),
    (
        "S51",
        "a-disk-that-lied-over-several-rolls",
        "empty segments behind a gap stay",
    ),
    ("S51", "times-of-records-that-are-not-there", "times of lost records stay"),
    (
        "S51",
        "times-of-records-that-are-not-there-before-a-gap",
        "times of lost records before a gap stay",
    ),
    (
        "S99",
        "a-partition-of-which-a-producer-has-not-heard",
        "a producer refuses partitions that it has not heard of",
    ),
    ("S53", "a-bit-rots-where-nobody-looks", "wrong bytes are not reported"),
    ("S43", "what-one-log-keeps-every-log-need-not", a_failed_retention_is_not_noticed),
    ("S22", "a-cut-that-came-undone", "a high watermark is written down over a cut"),
    ("S44", "a-deletion-that-came-undone", a_follower_joins_before_its_log_start_has_moved),
    (
        "S30",
        "what-a-leader-deleted-is-not-what-a-replica-has-there",
        a_follower_joins_before_its_log_start_has_moved,
    ),
    ("S44", "deleted-as-soon-as-it-was-committed", "what was committed has no gaps"),
]


def name_of(mistake: str | Mistake) -> str:
    return mistake if isinstance(mistake, str) else mistake.__name__.replace("_", " ")


def plant(mistake: str | Mistake, planting: pytest.MonkeyPatch) -> None:
    if not isinstance(mistake, str):
        mistake(planting)
    elif mistake in MUTANTS:
        planted(mistake)(planting)
    else:
        planting.setattr(*REPLACED[mistake])


@pytest.mark.parametrize(
    ("scenario", "story", "mistake"),
    one_in(3, CASES),
    ids=name_of,
)
def test_without_its_rule_a_story_comes_out_otherwise(
    scenario: str, story: str, mistake: str | Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = read_story(find_story(story))
    assert scenario in script.shows
    plant(mistake, monkeypatch)
    # A rule of the checkers is an assertion too, and a node may end with what it met on its disk.
    with pytest.raises((AssertionError, StoryChangedError, ScriptError, StorageError, OSError)):
        run_story(script).check()


def test_a_wrong_plan_of_retention_ends_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    planted("segments are deleted up to the high watermark")(monkeypatch)
    script = read_story(find_story("what-one-log-keeps-every-log-need-not"))
    with pytest.raises(AssertionError, match="what is not committed is not deleted"):
        run_story(script)
