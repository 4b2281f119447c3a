"""Each rule of the checkers finds the history made for it, and nothing in a sound one.

The file is long because each rule needs a history of its own.
"""

from typing import Any

import attrs
import pytest

from replication.events import (
    FetchSessionEvicted,
    FetchSessionOpened,
    LogTruncated,
    PartitionFailed,
)
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from scenarios.checkers import committed, ends, epochs, leadership, offsets, sessions
from scenarios.checkers.committed import CommittedLog
from scenarios.checkers.decisions import PartitionDecision
from scenarios.checkers.ends import (
    FETCHING,
    LEFT_OVER,
    SERVING,
    BrokerResources,
    ClusterResources,
    left_over,
)
from scenarios.checkers.observed import Batch, Held, HeldLog, OnlineReplica
from scenarios.checkers.offsets import FailedLog
from scenarios.checkers.out_of_sync import ReplicaAndLeader, reason_out_of_sync
from storage.checkpoint import EpochEntry
from storage.errors import (
    KafkaStorageError,
    OffsetsOutOfOrderError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from storage.types import LeaderEpoch
from tests.scenarios.values import PARTITION, SOUND, decided, rules
from tests.storage.logs import batch, fill, headers, lead, new_disk, open_log, small_config

RECOVERING = LeaderRecoveryState.RECOVERING

FOLLOWER = OnlineReplica(
    node="b2",
    life=1,
    partition=PARTITION,
    topic_id=bytes(16),
    is_leader=False,
    leader_epoch=4,
    partition_epoch=7,
    log_start=3,
    high_watermark=8,
    log_end=10,
)
LEADER = attrs.evolve(
    FOLLOWER,
    node="b1",
    is_leader=True,
    isr=frozenset({1, 2}),
    maximal_isr=frozenset({1, 2}),
    min_isr=2,
)


def now(replica: OnlineReplica, **otherwise: Any) -> OnlineReplica:
    return attrs.evolve(replica, **otherwise)


# Marks, and how they move.


@pytest.mark.parametrize(
    ("replica", "broken"),
    [
        (FOLLOWER, []),
        (now(FOLLOWER, log_start=8, log_end=8), []),
        (now(FOLLOWER, log_start=9), [offsets.MARKS]),
        (now(FOLLOWER, high_watermark=11), [offsets.MARKS]),
        (now(FOLLOWER, log_start=-1), [offsets.MARKS, offsets.FIRST_SEGMENT]),
        (now(FOLLOWER, first_segment=4), [offsets.FIRST_SEGMENT]),
    ],
)
def test_marks_are_in_order(replica: OnlineReplica, broken: list[str]) -> None:
    assert rules(offsets.marks(replica)) == broken


@pytest.mark.parametrize(
    ("after", "broken"),
    [
        (now(LEADER, log_end=12, high_watermark=10), []),
        (now(LEADER, log_end=9), [offsets.LEADER_GROWS]),
        (now(LEADER, high_watermark=7), [offsets.LEADER_GROWS]),
        (now(LEADER, log_start=2), [offsets.LEADER_GROWS]),
        (now(LEADER, log_end=9, is_leader=False), []),
        (now(LEADER, high_watermark=7, leader_epoch=6), []),
        (now(LEADER, log_end=9, life=2), []),
    ],
)
def test_a_leaders_log_and_marks_only_grow(after: OnlineReplica, broken: list[str]) -> None:
    assert rules(offsets.leader_grows(LEADER, after)) == broken


def test_nothing_is_committed_below_the_minimum() -> None:
    alone = now(LEADER, isr=frozenset({1}))
    further = now(alone, high_watermark=9)
    assert rules(offsets.waits_for_min_isr(alone, further)) == [offsets.UNDER_MIN_ISR]
    assert not rules(offsets.waits_for_min_isr(LEADER, further)), "it moved, then the ISR shrank"
    assert not rules(offsets.waits_for_min_isr(alone, now(further, isr=LEADER.isr)))
    assert not rules(offsets.waits_for_min_isr(alone, alone))


def test_truncations_that_are_allowed() -> None:
    cut = LogTruncated(
        partition=PARTITION, from_offset=9, to_offset=5, high_watermark=5, cause="diverging epoch"
    )
    assert not rules(offsets.cut(cut, log_start=0))
    below = attrs.evolve(cut, to_offset=4)
    assert rules(offsets.cut(below, log_start=0)) == [offsets.CUT]
    assert rules(offsets.cut(below, log_start=8)) == [offsets.CUT]
    assert not rules(offsets.cut(below, log_start=9)), "there was nothing in it"
    assert not rules(offsets.leader_truncates(cut, FOLLOWER))
    assert rules(offsets.leader_truncates(cut, LEADER)) == [offsets.LEADER_TRUNCATES]


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (UnexpectedAppendOffsetError("t-0", first_offset=2, last_offset=3), [offsets.CONTINUES]),
        (OffsetsOutOfOrderError("t-0"), [offsets.CONTINUES]),
        (KafkaStorageError("the disk is full"), []),
    ],
)
def test_a_follower_that_was_sent_other_records_is_found(
    error: StorageError, broken: list[str]
) -> None:
    failed = PartitionFailed(partition=PARTITION, cause=f"{type(error).__name__}: {error}")
    assert rules(offsets.failed_append(failed)) == broken


# What has been committed. A log is drawn as its batches, each by its first offset, its
# length and its epoch.


def held(*drawn: tuple[int, int, int], other: int = -1) -> Held:
    """The batch of offset `other` has other bytes than elsewhere."""
    log = Held()
    for first, count, epoch in drawn:
        log.add(Batch(first, first + count - 1, epoch, first + (first == other)))
    return log


def committed_is(*drawn: tuple[int, int, int], committed_in: LeaderEpoch = 1) -> CommittedLog:
    log = CommittedLog()
    end = drawn[-1][0] + drawn[-1][1]
    assert not log.note(held(*drawn), log_start=0, high_watermark=end, leader_epoch=committed_in)
    return log


A, B, C, D = (0, 3, 0), (3, 1, 0), (4, 2, 1), (6, 2, 1)


def test_committed_is_what_was_first_seen_below_a_high_watermark() -> None:
    log = CommittedLog()
    first, second = held(A, B, C), held(A, B, C, D)
    assert not log.note(first, log_start=0, high_watermark=5, leader_epoch=1)
    assert (log.end, first.agreed) == (4, 2), "a batch of which a part is committed waits"
    assert not log.note(second, log_start=0, high_watermark=8, leader_epoch=1)
    assert (log.end, second.agreed) == (8, 4)
    assert not log.note(first, log_start=0, high_watermark=6, leader_epoch=1)
    assert first.agreed == 3
    assert [each.base_offset for each in log.batches] == [0, 3, 4, 6]


def test_nothing_is_compared_where_the_list_has_a_gap() -> None:
    """Below the log start of the first replica that was seen, and where it had deleted since."""
    log, whole = CommittedLog(), held(A, B, C, D)
    assert not log.note(held(B), log_start=3, high_watermark=4, leader_epoch=1)
    assert not log.note(held(D), log_start=6, high_watermark=8, leader_epoch=1)
    assert [each.base_offset for each in log.batches] == [3, 6]
    assert not log.compare(held(A, B, C, D), log_start=0, until=8)
    for high_watermark in (3, 6, 8):
        assert not log.note(whole, log_start=0, high_watermark=high_watermark, leader_epoch=1)
    assert whole.agreed == 4
    assert [each.base_offset for each in log.batches] == [3, 6]
    for lacks in (held(A, C, D), held(A, B, C), held(A, B, (4, 3, 1), (7, 1, 1))):
        assert log.compare(lacks, log_start=0, until=8)
        lacks.agreed = 0
        assert log.note(lacks, log_start=0, high_watermark=8, leader_epoch=1)


def test_what_was_deleted_before_it_was_seen_counts_as_committed() -> None:
    log, replica = committed_is(A, B), now(FOLLOWER, log_start=0, log_end=5)
    assert not log.note(held(), log_start=6, high_watermark=6, leader_epoch=1)
    assert log.end == 6
    assert rules(committed.may_lead(log, replica, held(A, B, (4, 1, 1)), standing="is in the ISR"))
    assert not log.note(held(A, B, C), log_start=0, high_watermark=6, leader_epoch=1)
    assert [each.base_offset for each in log.batches] == [0, 3, 4]


def test_only_the_end_of_a_compacted_log_is_compared() -> None:
    log = committed_is(A, B, C, D)
    log.compact()
    replica = now(FOLLOWER, high_watermark=8, log_end=9)
    assert not rules(committed.below(log, replica, held(B, D)))
    assert not rules(committed.may_lead(log, replica, held(D), standing="is in the ISR"))
    assert not rules(committed.below(log, now(replica, high_watermark=9), held(D)))
    log.compact()
    assert log.end == 9
    short = now(replica, log_end=8)
    assert rules(committed.may_lead(log, short, held(D), standing="is in the ISR"))


@pytest.mark.parametrize(
    ("log", "log_start", "high_watermark", "holds"),
    [
        (held(A, B, C), 0, 6, True),
        (held(A, B, C, (6, 2, 2)), 0, 6, True),  # not committed there, and may be cut
        (held(A, B, (4, 2, 2)), 0, 4, True),
        (held(A, B, (4, 2, 2)), 0, 6, False),  # another epoch
        (held(A, B, C, other=4), 0, 6, False),  # other bytes
        (held(A, B, (4, 1, 1), (5, 1, 1)), 0, 6, False),  # other batches
        (held(A, C), 0, 6, False),  # a gap
        (held(A, B), 0, 6, False),
        (held(C), 4, 6, True),  # what is before the log start is gone
        (held(A, B, C), 4, 6, True),
        (held(B, C), 4, 6, True),
        (held(C), 3, 6, False),
        (held((0, 3, 9), B, C), 3, 6, True),
    ],
)
def test_below_its_high_watermark_a_replica_has_what_was_committed(
    log: Held, log_start: int, high_watermark: int, *, holds: bool
) -> None:
    replica = now(FOLLOWER, log_start=log_start, high_watermark=high_watermark)
    found = rules(committed.below(committed_is(A, B, C, D), replica, log))
    assert found == ([] if holds else [committed.BELOW])


@pytest.mark.parametrize(
    ("log", "lost", "excused"),
    [
        (held(C), range(4), True),
        (held(A, C), range(3, 4), True),
        (held(C), range(3), False),  # B was not lost by the disk
        (held(B, C), range(2), False),  # nor all of A
        (held(B, C), range(1, 3), False),
        (held((0, 3, 9), C), range(4), False),  # there is another batch
        (held(A), range(3, 6), False),  # the log does not go on behind it
    ],
)
def test_what_a_disk_has_lost_within_a_log_may_be_lacking(
    log: Held, lost: range, *, excused: bool
) -> None:
    log.lost, history = [lost], committed_is(A, B, C)
    replica = now(FOLLOWER, log_start=0, high_watermark=6, log_end=6)
    found = rules(committed.below(history, replica, log))
    log.agreed = 0
    found += rules(committed.may_lead(history, replica, log, standing="is in the ISR"))
    assert found == ([] if excused else [committed.BELOW, committed.MAY_LEAD])


def test_a_leader_may_lack_what_its_disk_has_lost() -> None:
    history, leads, log = committed_is(A, B, C), now(LEADER, leader_epoch=2, log_start=0), held(C)
    log.lost = [range(4)]
    assert rules(committed.elected(history, leads, log)) == []
    log.lost = [range(3)]
    assert rules(committed.elected(history, leads, log)) == [committed.ELECTED]


def test_a_truncated_log_is_compared_again() -> None:
    log, replica = committed_is(A, B, C), held(A, B, C)
    assert not log.compare(replica, log_start=0, until=6)
    replica.drop_last()
    replica.add(Batch(4, 5, 2, 4))
    assert "4-5@e2, where 4-5@e1 was committed" in log.compare(replica, log_start=0, until=6)


@pytest.mark.parametrize(
    ("log", "broken"),
    [
        (held(A, B, C), False),
        (held(A, B, C, (6, 9, 3)), False),
        (held(A, B), True),
        (held(A, B, (4, 2, 2)), True),
        (held(A, B, C, other=0), True),
    ],
)
def test_a_replica_in_the_isr_or_elr_has_all_that_was_committed(log: Held, *, broken: bool) -> None:
    """Whatever it knows of its own high watermark."""
    for standing, rule in (("joined the ISR", committed.JOINED), ("is", committed.MAY_LEAD)):
        replica = now(FOLLOWER, log_start=0, high_watermark=0, log_end=log.batches[-1][1] + 1)
        found = rules(committed.may_lead(committed_is(A, B, C), replica, log, standing=standing))
        assert found == ([rule] if broken else [])
        log.agreed = 0


def test_an_elected_leader_has_all_of_the_epochs_before() -> None:
    log = committed_is(A, B, C)
    leads = now(LEADER, leader_epoch=2, log_start=0)
    assert rules(committed.elected(log, leads, held(A, B, C))) == []
    assert rules(committed.elected(log, leads, held(A, B))) == [committed.ELECTED]
    deposed = now(leads, leader_epoch=1)
    assert rules(committed.elected(log, deposed, held(A, B))) == [], "nothing of its own epoch"
    assert rules(committed.elected(log, now(leads, log_start=3), held(B, C))) == []


def test_a_deposed_leader_may_lack_what_was_committed_after_its_epoch() -> None:
    """It was frozen, and takes its leadership of epoch 3 when the next leader has committed what
    had been written in epoch 0. A leader of epoch 5 must have it.
    """
    log = committed_is(A, committed_in=1)
    whole = held(A, B)
    assert not log.note(whole, log_start=0, high_watermark=4, leader_epoch=4)
    deposed, later = (now(LEADER, leader_epoch=each, log_start=0) for each in (3, 5))
    assert rules(committed.elected(log, deposed, held(A))) == []
    assert rules(committed.elected(log, deposed, held(B))) == [committed.ELECTED], "committed in 1"
    assert rules(committed.elected(log, later, held(A))) == [committed.ELECTED]
    assert rules(committed.elected(log, later, whole)) == []


def test_a_joining_replica_has_what_is_committed_while_it_joins() -> None:
    assert not rules(committed.joining(LEADER, FOLLOWER))
    assert rules(committed.joining(LEADER, now(FOLLOWER, log_end=7))) == [committed.JOINING]


# Epochs.


@pytest.mark.parametrize("name", ["leader_epoch", "partition_epoch"])
def test_epochs_never_fall(name: str) -> None:
    later = now(FOLLOWER, life=2, **{name: 9})
    assert not rules(epochs.never_fall(FOLLOWER, later))
    assert rules(epochs.never_fall(later, FOLLOWER)) == [epochs.EPOCHS_RISE]


@pytest.mark.parametrize(("acts_on", "holds"), [(4, True), (3, True), (2, False)])
def test_no_replica_holds_a_later_epoch_than_it_acts_on(acts_on: int, *, holds: bool) -> None:
    replica = now(FOLLOWER, leader_epoch=acts_on, epochs=(EpochEntry(0, 0), EpochEntry(3, 5)))
    assert rules(epochs.none_is_later(replica)) == ([] if holds else [epochs.FOLLOWED])
    assert not rules(epochs.none_is_later(now(FOLLOWER, leader_epoch=acts_on, epochs=())))


@pytest.mark.parametrize(
    ("cache", "holds"),
    [
        ([(0, 3), (2, 5)], True),
        ([(0, 3), (2, 5), (4, 10)], True),  # leads, and has written nothing
        ([(0, 0), (2, 5)], False),  # says more than there is
        ([(2, 5)], False),
        ([(0, 3)], False),
        ([(0, 3), (2, 6)], False),
        ([(0, 3), (2, 5), (4, 9)], False),  # within the log
        ([(0, 3), (2, 5), (4, 10), (5, 10)], False),
        ([], False),
    ],
)
def test_the_epoch_cache_is_what_the_log_says(cache: list[Any], *, holds: bool) -> None:
    scanned = [EpochEntry(0, 0), EpochEntry(2, 5)]
    replica = now(FOLLOWER, epochs=tuple(EpochEntry(*each) for each in cache))
    assert set(rules(epochs.cache_is_derived(replica, scanned))) == set([epochs.CACHE][holds:])


def look_at(held: HeldLog) -> OnlineReplica:
    held.read_on()
    return now(
        FOLLOWER,
        log_start=held.log.log_start_offset,
        log_end=held.log.log_end_offset,
        epochs=tuple(held.log.leader_epoch_cache.entries),
        emptied=held.emptied(),
    )


def cut_inside_a_batch(before: int) -> HeldLog:
    """[`before` batches of epoch 0][three records of epoch 1], cut behind the first of those."""
    file_system = new_disk()
    log = open_log(file_system)
    fill(log, before, epoch=0)
    lead(log, 3, epoch=1)
    log.truncate_to(before + 1)
    return HeldLog(file_system.disk, log)


@pytest.mark.parametrize("before", [0, 3])
def test_an_epoch_whose_batch_was_cut_whole_stays_known(before: int) -> None:
    """So where the leader's log begins inside what its followers have as one batch."""
    held, cut = cut_inside_a_batch(before), before + 1

    def known() -> list[EpochEntry]:
        replica = look_at(held)
        assert rules(epochs.cache_is_derived(replica, held.scanned())) == []
        assert replica.emptied <= {EpochEntry(1, before)}
        return list(replica.epochs)

    older = [EpochEntry(0, 0)] if before else []
    assert known() == [*older, EpochEntry(1, before)]
    held.log.append_as_follower(batch(2, at=cut, epoch=2))
    assert known() == [*older, EpochEntry(1, before), EpochEntry(2, cut)]
    held.log.update_high_watermark(cut)
    held.log.increment_log_start_offset(cut)
    assert known() == [EpochEntry(2, cut)]


@pytest.mark.parametrize("before", [0, 3])
def test_an_epoch_that_goes_on_behind_its_cut_batch_begins_there(before: int) -> None:
    held, cut = cut_inside_a_batch(before), before + 1
    held.log.append_as_follower(batch(2, at=cut, epoch=1))
    replica = look_at(held)
    older = [EpochEntry(0, 0)] if before else []
    assert list(replica.epochs) == [*older, EpochEntry(1, before)]
    assert not rules(epochs.cache_is_derived(replica, held.scanned()))
    assert rules(epochs.cache_is_derived(replica, held.epochs)) == [epochs.CACHE]


@pytest.mark.parametrize("start_offset", [1, 2, 6])
def test_an_epoch_that_begins_inside_a_batch_or_outside_the_log_is_none(start_offset: int) -> None:
    held = cut_inside_a_batch(3)
    held.log.leader_epoch_cache.assign(9, start_offset)
    replica = look_at(held)
    assert EpochEntry(9, start_offset) not in replica.emptied
    assert epochs.CACHE in rules(epochs.cache_is_derived(replica, held.scanned()))


def test_a_log_that_begins_anew_knows_no_epochs() -> None:
    anew = now(FOLLOWER, log_start=7, high_watermark=7, log_end=7)
    assert not rules(epochs.cache_is_derived(anew, [EpochEntry(0, 0)]))


def test_epochs_from_a_log_start_on() -> None:
    scanned = [EpochEntry(0, 0), EpochEntry(2, 5), EpochEntry(3, 8)]
    assert epochs.from_start(scanned, 0) == scanned
    assert epochs.from_start(scanned, 6) == [EpochEntry(2, 6), EpochEntry(3, 8)]
    assert epochs.from_start(scanned, 8) == [EpochEntry(3, 8)]
    assert epochs.from_start([], 8) == []


# Who leads, and what the controller says.


def test_one_replica_leads_in_an_epoch() -> None:
    assert not rules(leadership.one_leader(None, LEADER))
    assert not rules(leadership.one_leader(LEADER, now(LEADER, log_end=12)))
    assert rules(leadership.one_leader(LEADER, now(LEADER, node="b3"))) == [leadership.ONE_LEADER]
    assert rules(leadership.one_leader(LEADER, now(LEADER, life=2))) == [leadership.ONE_LEADER]


def test_a_partition_is_followed_once_and_not_by_its_leader() -> None:
    assert not rules(leadership.followed_once(FOLLOWER, 1))
    assert not rules(leadership.followed_once(FOLLOWER, 0))
    assert not rules(leadership.followed_once(LEADER, 0))
    assert rules(leadership.followed_once(FOLLOWER, 2)) == [leadership.FETCHERS]
    assert rules(leadership.followed_once(LEADER, 1)) == [leadership.FETCHERS]


@pytest.mark.parametrize(
    ("otherwise", "broken"),
    [
        ({}, []),
        ({"isr": (1,), "elr": (2,)}, []),
        ({"isr": (), "elr": (1, 2), "leader": NO_LEADER}, []),
        ({"isr": (), "leader": NO_LEADER, "last_known_elr": (1,)}, []),
        ({"isr": (1,), "leader_recovery_state": RECOVERING}, []),
        ({"leader": 3}, [leadership.LEADER_IN_ISR]),
        ({"isr": (), "elr": (1,)}, [leadership.LEADER_IN_ISR]),
        ({"isr": (1, 2, 4)}, [leadership.ALGEBRA]),
        ({"isr": (1,), "elr": (1, 2)}, [leadership.ALGEBRA]),
        ({"elr": (3,)}, [leadership.ALGEBRA]),
        ({"replicas": (1, 2, 9), "isr": (1, 2, 9)}, [leadership.ALGEBRA]),
        ({"leader_recovery_state": RECOVERING}, [leadership.ALGEBRA]),
        ({"isr": (), "leader": NO_LEADER}, [leadership.ALGEBRA]),
    ],
)
def test_isr_and_elr(otherwise: Any, broken: list[str]) -> None:
    assert rules(leadership.isr_and_elr(decided(**otherwise))) == broken


LOST: dict[str, Any] = {"isr": (), "last_known_elr": (2,), "leader": NO_LEADER}


@pytest.mark.parametrize(
    ("risk", "asked", "epoch", "broken"),
    [
        ("unclean", False, 8, [leadership.UNCLEAN]),
        ("unclean", True, 8, []),
        ("unclean", False, 9, []),  # of two changes the first may have named it
        ("last known", False, 8, []),
        ("", False, 8, []),
    ],
)
def test_an_unclean_election_needs_a_request(
    risk: str, asked: bool, epoch: int, broken: list[str]
) -> None:
    before = decided(**LOST)
    after = decided(isr=(3,), leader=3, leader_epoch=5, partition_epoch=epoch)
    assert rules(leadership.at_risk(before, after, risk, asked=asked)) == broken
    allowed = attrs.evolve(after, unclean=True)
    assert not rules(leadership.at_risk(before, allowed, risk, asked=asked))


@pytest.mark.parametrize(
    ("was", "leader", "risk"),
    [
        (LOST, 2, "last known"),
        (LOST, 3, "unclean"),
        (LOST, NO_LEADER, ""),
        ({"isr": (), "elr": (3,), "leader": NO_LEADER}, 3, ""),
        ({"isr": (1, 2)}, 2, ""),
        ({"isr": (1, 2)}, 3, "unclean"),
    ],
)
def test_leaders_that_may_lack_committed_records(
    was: dict[str, Any], leader: int, risk: str
) -> None:
    """A leader from the ISR or ELR does not, even while the one before it still recovered."""
    after = decided(leader=leader, isr=(leader,), leader_recovery_state=RECOVERING)
    found = PartitionDecision(decided(**was), after, registered=frozenset(), goes_on=True).risk
    assert found == risk


def test_without_an_elr_the_last_in_sync_stays_fenced_or_not() -> None:
    last = decided(replicas=(1, 9), isr=(9,), leader=NO_LEADER)
    assert rules(leadership.isr_and_elr(last)) == [leadership.ALGEBRA]
    assert not rules(leadership.isr_and_elr(attrs.evolve(last, eligible=False)))
    nobody = attrs.evolve(decided(isr=(), leader=NO_LEADER), eligible=False)
    assert rules(leadership.isr_and_elr(nobody)) == [leadership.ALGEBRA]


@pytest.mark.parametrize(
    ("otherwise", "broken"),
    [
        ({"partition_epoch": 8, "isr": (1, 2, 3)}, []),
        ({"partition_epoch": 8, "leader_epoch": 5, "leader": 2}, []),
        ({"partition_epoch": 8, "leader": 2}, [leadership.DECIDED]),
        ({"isr": (1, 2, 3)}, [leadership.DECIDED]),
        ({"partition_epoch": 6}, [leadership.DECIDED]),
        ({"partition_epoch": 8, "isr": (1,), "elr": (2,)}, []),
        ({"partition_epoch": 8, "isr": (1,)}, [leadership.SLIPPED]),
        ({"partition_epoch": 9, "isr": (1,)}, []),  # of two changes, the first may have
        ({"partition_epoch": 8, "isr": (1,), "replicas": (1,)}, []),
        ({"partition_epoch": 8, "isr": (1,), "replicas": (1, 3)}, [leadership.MOVES]),
        ({"partition_epoch": 8, "isr": (1,), "leader_recovery_state": RECOVERING}, []),
    ],
)
def test_from_one_decision_to_the_next(otherwise: Any, broken: list[str]) -> None:
    after = decided(**otherwise)
    assert rules(leadership.goes_on(decided(), after, registered=())) == broken
    if broken == [leadership.SLIPPED]:
        assert not rules(leadership.goes_on(decided(), after, registered=[2]))


@pytest.mark.parametrize(
    ("otherwise", "broken"),
    [
        ({"isr": (1, 2, 3)}, []),  # the new one is in sync, and another one is not yet
        ({"replicas": (1, 2, 3), "isr": (1, 2, 3), "adding": (), "removing": ()}, []),
        ({"replicas": (1, 2, 3), "adding": (), "removing": ()}, [leadership.MOVES]),
        ({"replicas": (1, 2, 4), "adding": (), "removing": ()}, []),  # called off
        ({"replicas": (1, 2, 5, 4), "adding": (5,)}, []),
        ({"replicas": (1, 2, 5, 4, 3), "adding": (5,)}, [leadership.MOVES]),
    ],
)
def test_a_move(otherwise: Any, broken: list[str]) -> None:
    before = decided(replicas=(1, 2, 3, 4), adding=(3,), removing=(4,))
    after = attrs.evolve(
        before,
        registration=attrs.evolve(before.registration, partition_epoch=8, **otherwise),
    )
    assert rules(leadership.goes_on(before, after, registered=())) == broken
    later = attrs.evolve(after.registration, partition_epoch=9)
    assert not rules(
        leadership.goes_on(before, attrs.evolve(after, registration=later), registered=())
    )


def test_another_minimum_clears_the_elr_and_moves_no_epoch() -> None:
    before = decided(isr=(1,), elr=(2,))
    assert not rules(leadership.goes_on(before, decided(isr=(1,)), registered=()))
    fewer = decided(isr=(1,), elr=(2, 3))
    assert rules(leadership.goes_on(fewer, before, registered=())) == [leadership.DECIDED]


def test_every_member_has_what_a_leader_commits() -> None:
    assert not rules(leadership.counts_the_isr(LEADER, SOUND))
    wider = attrs.evolve(SOUND, isr=(1, 2, 3))
    assert rules(leadership.counts_the_isr(LEADER, wider)) == [leadership.SUPERSET]
    pending = now(LEADER, maximal_isr=frozenset({1, 2, 3}))
    assert not rules(leadership.counts_the_isr(pending, wider))
    deposed = now(LEADER, leader_epoch=3)
    assert not rules(leadership.counts_the_isr(deposed, wider))


# Clients, brokers that come back, disks.


@pytest.mark.parametrize("rule", [committed.acked, committed.given])
def test_clients_see_only_what_is_committed(rule: committed.ResponseRule) -> None:
    assert not rules(rule(PARTITION, end=5, committed_end=5))
    assert len(rules(rule(PARTITION, end=6, committed_end=5))) == 1


def test_a_broker_that_may_have_lost_its_logs_end_is_excluded() -> None:
    registration = attrs.evolve(SOUND, isr=(1,), elr=(2,))
    assert len(rules(leadership.excluded(1, PARTITION, registration))) == 2
    assert rules(leadership.excluded(2, PARTITION, registration)) == [leadership.EXCLUDED]
    assert not rules(leadership.excluded(3, PARTITION, registration))


@pytest.mark.parametrize(("log_end", "broken"), [(9, []), (12, []), (8, [offsets.SYNCED])])
def test_synced_records_are_there_for_the_next_process(log_end: int, broken: list[str]) -> None:
    assert rules(offsets.synced_survives("t-0 on b1", 9, log_end)) == broken


def test_a_log_that_has_failed_appends_nothing_more() -> None:
    failed = FailedLog("t-0 on b1", 5, 100)
    assert not rules(offsets.appends_nothing_more(failed, failed))
    for after in (attrs.evolve(failed, log_end=6), attrs.evolve(failed, size=101)):
        assert rules(offsets.appends_nothing_more(failed, after)) == [offsets.APPENDS_NOTHING]


# The end.

DONE = now(FOLLOWER, high_watermark=10, epochs=(EpochEntry(0, 3), EpochEntry(2, 5)))
CUT = EpochEntry(3, 9)
LED = now(DONE, node="b1", is_leader=True, epochs=(*DONE.epochs, EpochEntry(4, 10)))


@pytest.mark.parametrize(
    ("privileged", "partitions", "broken"),
    [
        (True, 1, []),
        (False, 5, []),
        (False, 4, [sessions.DISPLACES]),
    ],
)
def test_a_session_displaces_none_that_counts_more(
    privileged: bool, partitions: int, broken: list[str]
) -> None:
    evicted = FetchSessionEvicted(session_id=7, cause="displaced", partitions=5)
    opened = FetchSessionOpened(session_id=8, privileged=privileged, partitions=partitions)
    assert rules(sessions.displaces(opened, evicted)) == broken
    follower = attrs.evolve(evicted, privileged=True, partitions=1)
    assert rules(sessions.displaces(opened, follower)) == (
        [] if privileged else [sessions.DISPLACES]
    )


@pytest.mark.parametrize(
    ("member", "holds"),
    [
        (DONE, True),
        (now(DONE, log_start=6, epochs=(EpochEntry(2, 6),)), True),
        (now(DONE, log_end=9, high_watermark=9), False),
        (now(DONE, high_watermark=9), False),
        (now(DONE, log_start=10, epochs=()), True),  # and so have the others, of what it has
        (now(DONE, epochs=(*DONE.epochs, CUT)), False),
        (now(DONE, epochs=(*DONE.epochs, CUT), emptied=frozenset({CUT})), True),
        (now(DONE, epochs=(EpochEntry(0, 3),)), False),
        (now(DONE, epochs=(EpochEntry(0, 3), EpochEntry(3, 5))), False),
    ],
)
def test_the_replicas_in_sync_are_equal_in_the_end(member: OnlineReplica, *, holds: bool) -> None:
    assert set(rules(ends.converged([LED, member]))) == set([ends.CONVERGED][holds:])
    assert not rules(ends.converged([]))


@pytest.mark.parametrize("name", ["t-1", "t-0.tmp", "t-1.swap", "offsets-checkpoint"])
def test_files_that_do_not_belong_in_a_log_directory(name: str) -> None:
    names = [".lock", "meta.properties", "t-0", f"t-2.{'0' * 32}-delete", f"t-3.{'0' * 32}-stray"]
    writing = ["recovery-point-offset-checkpoint.prepared.tmp", "meta.properties.tmp"]
    assert not rules(ends.tidy_directory("b1", names + writing, ["t-0"]))
    assert rules(ends.tidy_directory("b1", [*names, name], ["t-0"])) == [ends.TIDY]


@pytest.mark.parametrize(
    "name", ["7.log", "7.index", "0.log.cleaned", "0.log.swap", "9.snapshot", "0.timeindex.tmp"]
)
def test_files_that_do_not_belong_beside_a_log(name: str) -> None:
    def named(name: str) -> str:
        number, _, suffix = name.partition(".")
        return f"{int(number):020d}.{suffix}"

    sound = ["0.log", "0.index", "0.timeindex", "5.log", "5.txnindex", "8.snapshot"]
    names = [*map(named, sound), named("3.log.deleted"), "partition.metadata"]

    def found(*names: str) -> list[str]:
        return rules(ends.tidy_log("t-0 on b1", names, segments=[0, 5], log_end=8))

    cleaning = [named("0.log.cleaned"), named("0.log.swap"), "leader-epoch-checkpoint.tmp"]
    assert not rules(ends.tidy_log("t", cleaning, segments=[0, 5], log_end=8, compacted=True))
    assert not found(*names, "corrupt.0.log.4096")
    assert found(*names, named(name)) == [ends.TIDY]


def test_requests_that_still_wait_in_the_end() -> None:
    assert not rules(ends.answered("b1", {"Produce": 0, "DeleteRecords": 0}))
    assert rules(ends.answered("b1", {"Produce": 2, "DeleteRecords": 1})) == [ends.ANSWERED] * 2


AWAY = ReplicaAndLeader(node="b2", leader_epoch=4, decided_epoch=4, log_end=5, leader_log_end=9)


AT_FIRST = ClusterResources(tasks={"replication.a": 3, SERVING: 6})
B1_HOLDS = BrokerResources(node="b1", fetchers=2, connections=7, served=3)
IN_THE_END = ClusterResources(
    tasks={"replication.a": 3, SERVING: 9, FETCHING: 2}, brokers=[B1_HOLDS], waiting_fetches=2
)


@pytest.mark.parametrize(
    ("otherwise", "beginning"),
    [
        ({}, ""),
        ({"tasks": {"replication.a": 4}}, "4 tasks of replication.a, and there were 3"),
        ({"tasks": {}}, "0 tasks of replication.a, and there were 3"),
        ({"tasks": {"replication.a": 3, "replication.b": 1}}, "1 tasks of replication.b"),
        ({"tasks": {"replication.a": 3, FETCHING: 3}}, "3 tasks fetch, and 2 have a leader"),
        ({"waiting_fetches": 3}, "3 fetches wait, of 2 fetchers"),
        ({"brokers": [attrs.evolve(B1_HOLDS, connections=8)]}, "b1 has 8 connections open"),
        ({"brokers": [attrs.evolve(B1_HOLDS, connections=10, voters=3)]}, ""),
        ({"brokers": [attrs.evolve(B1_HOLDS, connections=11, voters=3)]}, "b1 has 11 connections"),
        ({"brokers": [attrs.evolve(B1_HOLDS, deserted=1)]}, "b1 serves 1 of 3 connections"),
        ({"brokers": [attrs.evolve(B1_HOLDS, watches=1)]}, "b1 has 1 watches, without a request"),
    ],
)
def test_nothing_is_left_over_after_a_fault(otherwise: Any, beginning: str) -> None:
    wrongs = list(left_over(AT_FIRST, attrs.evolve(IN_THE_END, **otherwise)))
    assert [wrong.rule for wrong in wrongs] == [LEFT_OVER] * bool(beginning)
    assert all(wrong.what.startswith(beginning) for wrong in wrongs)


@pytest.mark.parametrize(
    ("otherwise", "reason"),
    [
        ({"up": False, "fenced": True}, "is down"),
        ({"paused": True, "fenced": True}, "is paused"),
        ({"fenced": True}, "is fenced"),
        ({"online": False}, "does not host it"),
        ({"leader_epoch": 3}, "acts in epoch 3, and 4 was decided"),
        ({"in_sync": True}, "is in sync"),
        ({"leader_log_end": None}, "has no leader"),
        ({"fetchers": 0}, "does not fetch"),
        ({}, "has 5 of 9"),
        ({"log_end": 9}, "has everything, and waits to be added"),
        ({"leads": True, "fetchers": 0, "log_end": 9}, "has everything, and waits to be added"),
    ],
)
def test_why_a_replica_is_not_in_sync(otherwise: Any, reason: str) -> None:
    assert reason_out_of_sync(attrs.evolve(AWAY, **otherwise)) == reason


# Reading a log.


def test_a_log_is_read_on_where_it_was_read_to_and_again_where_it_was_cut() -> None:
    file_system = new_disk()
    log = open_log(file_system, small_config(segment_bytes=300))
    held = HeldLog(file_system.disk, log)

    def is_all_read() -> bool:
        held.read_on()
        return [(each.base_offset, each.crc) for each in held.batches] == [
            (each.base_offset, each.crc) for each in headers(log)
        ]

    assert is_all_read()
    for epoch in range(3):
        fill(log, 7, epoch=epoch)
        assert is_all_read()
    assert len(log.segments) > 3
    assert held.epochs == log.leader_epoch_cache.entries
    held.agreed = len(held.batches)
    log.truncate_to(9)
    assert is_all_read()
    assert held.agreed == len(held.batches)
    assert held.epochs == log.leader_epoch_cache.entries
    log.truncate_to(5)
    fill(log, 9, epoch=5)  # and no look in between
    assert is_all_read()
    assert held.agreed == 5
    assert held.epochs == log.leader_epoch_cache.entries
    log.truncate_fully_and_start_at(100)
    lead(log, epoch=6)
    held.read_on()
    assert held.batches[-1].base_offset == 100


def test_a_log_is_read_again_where_other_batches_took_the_place_of_those_that_were_read() -> None:
    file_system = new_disk()
    log = open_log(file_system)
    held = HeldLog(file_system.disk, log)
    fill(log, 3, epoch=0)
    held.read_on()
    log.truncate_to(0)
    lead(log, 30, epoch=1)
    held.read_on()
    assert [(each.base_offset, each.last_offset) for each in held.batches] == [(0, 29)]
