"""Exhibits: where two logs diverge, and where a follower truncates its log."""

from typing import Any

import attrs

from replication.follower.fetcher import FollowUp, ReplicaFetcher
from replication.leader.partition import Partition
from replication.leader.rules.leadership import Leadership
from replication.replica_manager.followed import LocalReplicas
from scenarios.museum.exhibit import Exhibit, Replacing
from storage.log.leader_epoch_cache import UNDEFINED, LeaderEpochCache
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch


def logs_are_cut_to_their_high_watermark(replacing: Replacing) -> None:
    """Let a new follower truncate to its high watermark, as before KIP-101."""
    honest = Partition.make_follower

    def make_follower(self: Partition, registration: Any) -> bool:
        if self.log.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(self.log.high_watermark)
        return honest(self, registration)

    replacing.setattr(Partition, "make_follower", make_follower)


def an_unknown_epoch_ends_where_the_next_begins(replacing: Replacing) -> None:
    """Let a leader answer about an epoch that it does not know under that epoch's own name."""
    honest = LeaderEpochCache.end_offset_for

    def end_offset_for(
        self: LeaderEpochCache, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> OffsetAndEpoch:
        end = honest(self, epoch, log_end_offset)
        return end if end == UNDEFINED else attrs.evolve(end, leader_epoch=epoch)

    replacing.setattr(LeaderEpochCache, "end_offset_for", end_offset_for)


def an_epoch_begins_with_its_first_record(replacing: Replacing) -> None:
    """Let a new leader note its epoch only when it appends."""
    honest = Leadership.begin_leader_epoch

    def begin_leader_epoch(self: Leadership, *, reelected: bool, is_recorded: bool = True) -> None:
        del is_recorded
        honest(self, reelected=reelected, is_recorded=False)

    replacing.setattr(Leadership, "begin_leader_epoch", begin_leader_epoch)


def a_fetch_that_diverges_is_progress(replacing: Replacing) -> None:
    """Let a leader note the position of a follower whose log diverges."""
    honest = Partition.fetch

    def fetch(self: Partition, params: Any, info: Any, **how: Any) -> Any:
        log_end = self.log.local.log_end_offset
        answer = honest(self, params, info, **how)
        if how["note"] and params.from_follower and answer.diverging_epoch is not None:
            assert self.leadership is not None, "only a leader answers a follower"
            self.leadership.on_fetch(
                params.replica_id,
                fetch_offset=info.fetch_offset,
                log_start_offset=info.log_start_offset,
                leader_log_end=log_end,
                broker_epoch=params.replica_epoch,
            )
        return answer

    replacing.setattr(Partition, "fetch", fetch)


def a_divergence_brings_a_high_watermark(replacing: Replacing) -> None:
    """Let a follower take the leader's high watermark before it truncates."""
    honest = ReplicaFetcher._process_response

    def process(self: ReplicaFetcher, tp: Any, state: Any, data: Any, follow_up: FollowUp) -> None:
        replicas = self.replicas
        if data.diverging_epoch.epoch >= 0 and isinstance(replicas, LocalReplicas):
            replicas.hosted.get(tp).log.update_high_watermark(data.high_watermark)
        honest(self, tp, state, data, follow_up)

    replacing.setattr(ReplicaFetcher, "_process_response", process)


def a_leader_acts_on_a_late_divergence(replacing: Replacing) -> None:
    """Let a fetcher truncate a log that it does not follow any more."""
    honest = ReplicaFetcher._process_responses

    def process(self: ReplicaFetcher, requested: Any, responses: Any) -> FollowUp:
        for tp, data in responses.items():
            if tp not in self.partitions.states and data.diverging_epoch.epoch >= 0:
                self.replicas.truncate_to(tp, data.diverging_epoch.end_offset, completed=True)
        return honest(self, requested, responses)

    replacing.setattr(ReplicaFetcher, "_process_responses", process)


def a_log_begins_anew_and_its_high_watermark_does_not(replacing: Replacing) -> None:
    """Let a log that starts over keep the high watermark of the log that it was."""
    honest = Log.truncate_fully_and_start_at

    def begin_anew(self: Log, *where: Any) -> None:
        high_watermark = self.high_watermark
        honest(self, *where)
        self.high_watermark = high_watermark

    replacing.setattr(Log, "truncate_fully_and_start_at", begin_anew)


EXHIBITS = (
    Exhibit(
        name="KIP-101",
        title="A follower forgets what was acknowledged",
        year=2017,
        versions="before 0.11.0.0",
        happened=(
            "A replica that became a follower truncated its log to its own high watermark."
            " A follower learns the high watermark one fetch later than the leader,"
            " so a follower that restarted cut records that the leader had acknowledged."
            " If the leader died before the follower had fetched them again, the follower led"
            " without them, and the old leader cut them as well."
        ),
        missing=(
            "Leader epochs, not high watermarks, say where two logs diverge:"
            " a follower asks its leader where its last epoch ended, and truncates to there."
        ),
        fixed="KIP-101 stamps each batch with its leader epoch, and keeps where each epoch began.",
        story="a-follower-that-comes-back-keeps-what-was-committed",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=logs_are_cut_to_their_high_watermark,
    ),
    Exhibit(
        name="KIP-279",
        also=("KAFKA-6361",),
        title="Two elections in quick succession leave two different logs",
        year=2018,
        versions="0.11.0 to 1.1; fixed in 2.0.0",
        happened=(
            "A follower asked where its last epoch ended."
            " If the leader had never known that epoch, because it missed the election,"
            " it answered with the start of its next epoch, and did not say that"
            " the answer was about another epoch."
            " The follower kept records of its own epoch at offsets where the leader"
            " had records of an older one."
        ),
        missing=(
            "The answer names the largest epoch up to the requested one that the leader knows;"
            " a follower that does not know that epoch truncates to its next smaller one,"
            " and asks again."
        ),
        fixed="KIP-279 added the epoch to the response of OffsetForLeaderEpoch.",
        story="two-elections-in-quick-succession",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=an_unknown_epoch_ends_where_the_next_begins,
    ),
    Exhibit(
        name="KAFKA-7415",
        title="A leader that has written nothing cannot say where older epochs end",
        year=2018,
        versions="up to 2.0.0; fixed in 2.0.1 and 2.1.0",
        happened=(
            "A leader noted its epoch with its first append."
            " Until then, after elections in quick succession, a follower might hold records of"
            " an epoch that was later than all that the leader had noted,"
            " and the leader's answer about it was undefined."
            " The follower had to fall back on offsets or on its high watermark."
        ),
        missing="A leader notes its epoch, and the end of its log, before it answers any fetch.",
        fixed=("KAFKA-7415 writes the epoch and its start offset when a replica becomes leader."),
        story="a-leader-that-has-written-nothing-yet",
        damage="+epoch -1 ends at -1",
        switch=an_epoch_begins_with_its_first_record,
    ),
    Exhibit(
        name="KAFKA-13141",
        title="A fetch that diverges counts as an acknowledgement",
        year=2021,
        versions="2.7.0 to 2.8.0; fixed in 2.7.2, 2.8.1 and 3.0.0",
        happened=(
            "Since KIP-595 the leader compares the epoch of a follower's last record with its"
            " own log, and answers with the place where they diverge."
            " It noted the offset of such a fetch as the follower's progress all the same."
            " So the high watermark passed offsets at which the follower had other records,"
            " and the producer had its acknowledgement."
        ),
        missing="A fetch that is answered with a divergence changes nothing at the leader.",
        fixed="KAFKA-13141 skips the update of the follower's position for such a fetch.",
        story="a-fetch-that-diverges-is-no-progress",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=a_fetch_that_diverges_is_progress,
    ),
    Exhibit(
        name="KAFKA-13207",
        title="A leader truncates its own log",
        year=2021,
        versions="2.7.0 to 2.8.0; fixed in 2.8.1 and 3.0.0",
        happened=(
            "A broker had asked its leader for records, and was made leader itself before the"
            " answer came. The answer named a divergence, and the fetcher truncated the log"
            " without a look at whether it still followed the partition."
            " What was cut may have been committed."
        ),
        missing="A response counts only for a partition that its fetcher still follows.",
        fixed=(
            "KAFKA-13207 truncates only partitions that the fetcher still has,"
            " under the lock that a removal takes too."
        ),
        story="an-answer-that-comes-too-late",
        damage="a leader's log start, high watermark and log end only grow",
        switch=a_leader_acts_on_a_late_divergence,
        also=("KAFKA-8012",),
    ),
    Exhibit(
        name="KAFKA-14704",
        title="A follower shows records that it is about to truncate",
        year=2023,
        versions="2.7 to 3.4.0; fixed in 3.4.1 and 3.5.0",
        happened=(
            "A response that names a divergence carries the leader's high watermark too."
            " A deposed leader took the high watermark first, and truncated after it:"
            " for a moment its own uncommitted records counted as committed,"
            " and a consumer that reads from followers could receive them."
        ),
        missing="A response that names a divergence moves nothing but the end of the log.",
        fixed="KAFKA-14704 looks for a divergence first, and skips the rest of such a response.",
        story="a-leader-killed-while-it-holds-an-unreplicated-record",
        damage="no log is cut below its high watermark",
        switch=a_divergence_brings_a_high_watermark,
    ),
    Exhibit(
        name="KAFKA-9491",
        title="A log that starts over keeps its old high watermark",
        year=2020,
        versions="up to 2.4.0; fixed in 2.4.1 and 2.5.0",
        happened=(
            "A follower that is behind its leader's log start drops its log and starts over there."
            " It moved its log start, and left the high watermark where it was: below the log."
            " If it became leader before its next fetch, each read that had to find the"
            " high watermark in the log failed as out of range."
        ),
        missing="The high watermark is never below the log start.",
        fixed="KAFKA-9491 moves the high watermark together with the log start.",
        story="a-log-that-begins-anew-takes-its-high-watermark-along",
        damage="log start <= high watermark <= log end",
        switch=a_log_begins_anew_and_its_high_watermark_does_not,
    ),
)
