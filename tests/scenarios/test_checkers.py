"""Mistakes that the checkers must find, planted one at a time; and what is no mistake.

The file is long because each rule needs a history of its own.
"""

from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from replication.config.broker import BrokerConfig
from replication.controller.rules import decisions as controller_decisions, election
from replication.controller.rules.election import Wish
from replication.events import Event, LeaderElected, LogTruncated
from replication.leader.rules import leadership
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.replica_manager import LocalReplicas
from scenarios.checkers import Checkers, InvariantViolatedError, platter
from scenarios.checkers.decisions import Decisions
from scenarios.checkers.replicas import Replicas
from scenarios.story.commands.judge import BrokenPromiseError, loss_ledger
from scenarios.story.commands.table import run_command
from scenarios.story.runner import run_story
from scenarios.story.script import ScriptError, parse
from scenarios.story.stage import Stage
from scenarios.world.client import AckedBatch, NoAnswer, ReadRecord, SentRecords
from scenarios.world.trace import DiskReplaced, PowerCut
from scenarios.world.world import World
from storage.testing import FaultyFileSystem
from storage.types import LeaderEpoch, Offset, TopicPartition
from tests.mutants.planting import planted

PARTITION = TopicPartition("t", 0)

# A leader dies with a record that only it has, acked or not.
FAILOVER = parse(
    """\
cluster brokers=3 min.insync.replicas=2
topic t replicas=b1,b2,b3
produce t-0 acks=all one
run 6s
cut b1 b2 b3
produce t-0 acks=all two &
run 1s
kill b1
wait leader t-0
produce t-0 acks=all three
heal
start b1
wait isr t-0 b1,b2,b3
wait equal t-0
"""
)


def test_a_failover_without_mistakes_violates_nothing() -> None:
    run_story(FAILOVER)


def test_a_leader_that_commits_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def its_own_log_end(*_: object, leader_log_end: Offset, **__: object) -> Offset:
        return leader_log_end

    monkeypatch.setattr(leadership, "committed_end", its_own_log_end)
    with pytest.raises(InvariantViolatedError, match=r"b2 is in the ISR of t-0 .* was committed"):
        run_story(FAILOVER)


SYNCED = parse(
    """\
cluster brokers=3
topic t replicas=b1,b2,b3 flush.messages=1 segment.bytes=100
produce t-0 one
produce t-0 two
produce t-0 three
produce t-0 four
wait equal t-0
power-cut b3 leaving=nothing
start b3
wait whole t-0
"""
)


def test_flushed_records_survive_a_power_cut() -> None:
    run_story(SYNCED)


@pytest.mark.parametrize(
    "unsynced", ["/b3/log/t-0", "/b3/log"], ids=["the names of its segments", "its own name"]
)
def test_a_flush_that_does_not_sync_names_is_found(
    monkeypatch: pytest.MonkeyPatch, unsynced: str
) -> None:
    honest = FaultyFileSystem.sync_directory

    def forgetful(self: FaultyFileSystem, path: str) -> None:
        if path != unsynced:
            honest(self, path)

    monkeypatch.setattr(FaultyFileSystem, "sync_directory", forgetful)
    with pytest.raises(InvariantViolatedError, match="has no name on the platter"):
        run_story(SYNCED)
    # Then its next start tells.
    monkeypatch.setattr(platter, "is_on_platter", lambda *_, **__: iter(()))
    with pytest.raises(InvariantViolatedError, match=r"was synced up to 4, .* to end at 0"):
        run_story(SYNCED)


ROTTEN_CHECKPOINT = parse(
    """\
cluster brokers=1 log.initial.task.delay.ms=300 log.flush.offset.checkpoint.interval.ms=1000
topic t replicas=b1 flush.messages=1
produce t-0 one
run 2s
power-cut b1
rot b1 log/recovery-point-offset-checkpoint
start b1 &
run 100ms
recover
"""
)


def test_a_recovery_point_whose_checkpoint_has_rotted_is_another_one() -> None:
    """The checkpoint says 1, and says so again once `recover` has flipped the bit back; the log's is 0."""
    run_story(ROTTEN_CHECKPOINT)


AMID_A_CUT = """\
cluster brokers=2
topic t replicas=b1,b2 min.insync.replicas=1 segment.bytes=200 flush.messages=1
produce t-0 one
produce t-0 two
wait equal t-0
cut b1 b2
produce t-0 acks=1 three
produce t-0 acks=1 four
produce t-0 acks=1 five
reassign t-0 b2,b1
elect t-0 preferred
power-cut b1 at={at} names=*/t-0/*.log after={after}
heal
run 1s
start b1
wait whole t-0
stop b1
produce t-0 acks=1 six
delete-records t-0 all
power-cut b1 at=rename names=*/t-0/*.log after={after}
start b1 &
run 1s
start b1
wait whole t-0
wait equal t-0
show t-0
judge t-0
"""
"""A follower cuts segments off, and later starts over. Each time its power fails in the middle of it."""


@pytest.mark.parametrize(
    ("at", "after"),
    [("rename", 0), ("rename", 2), ("rename", 12), ("truncate", 0), ("truncate", 1)],
)
def test_a_follower_whose_power_fails_while_it_truncates(at: str, after: int) -> None:
    run = run_story(parse(AMID_A_CUT.format(at=at, after=after)))
    (step,) = run.actual.steps
    *_, led, leader, follower = step.answer
    assert led == "t-0: b2 leads in epoch 1, isr b2 b1"
    assert leader == "b2  [e0: 0-1][e1: 2-2]  HW 3  LEO 3  leads"
    assert follower.endswith("HW 3  LEO 3  follows")
    assert run.trace.count("sim  power_cut node=b1") == 2
    _, *parts = run.trace.split("sim  power_cut node=b1")
    assert all(" b1 " not in part.partition("node_started node=b1")[0] for part in parts)


@pytest.mark.parametrize(
    ("mutant", "complaint"),
    [
        ("later segments are gone for good before a file is cut", "may come back behind it"),
        ("a log that starts over lowers its recovery point first", "is being removed"),
    ],
)
def test_a_cut_that_is_not_ready_for_a_power_cut_is_found(
    monkeypatch: pytest.MonkeyPatch, mutant: str, complaint: str
) -> None:
    planted(mutant)(monkeypatch)
    with pytest.raises(InvariantViolatedError, match=complaint):
        run_story(parse(AMID_A_CUT.format(at="truncate", after=5)))


FAILS_AS_IT_COMMITS = """\
cluster brokers=2 min.insync.replicas=2 log.index.interval.bytes=10
topic t replicas=b1,b2
reader r1 t-0 isolation.level=read_committed
produce t-0 one
run 1s
fail b1 read names=*.index error=EIO
produce t-0 acks=all two
"""
"""The high watermark wakes the consumer, for which the leader reads an index, and its log fails."""


def test_what_a_log_commits_in_the_moment_in_which_it_fails_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_story(parse(FAILS_AS_IT_COMMITS))
    assert "b1   log_directory_failed" in run.trace
    assert run.actual.steps[0].answer[-1] == "two: acked at 1"
    planted("an ack waits for the high watermark")(monkeypatch)
    with pytest.raises(InvariantViolatedError, match="was acked with acks=all up to"):
        run_story(parse(FAILS_AS_IT_COMMITS.replace("acks=all two", "acks=all two &\nrun 10ms")))


# The kernel takes the pages of a failed sync for written (KAFKA-10778): a later power cut empties
# the first segment. The second one stays.
BEHIND_A_HOLE = parse(
    """\
cluster brokers=2 min.insync.replicas=1 log.segment.bytes=200
topic t replicas=b2,b1
fail b2 sync names=*/t-0/00000000000000000000.log
produce t-0 acks=all one two
produce t-0 acks=all three
produce t-0 acks=1 four
run 10s
start b2
wait isr t-0 b1,b2
produce t-0 acks=all five
wait equal t-0
stop b2
power-cut b2
start b2
wait isr t-0 b1,b2
elect t-0 preferred
wait leader t-0
show t-0
"""
)


def test_what_a_disk_has_lost_after_a_failed_sync_is_no_violation() -> None:
    (step,) = run_story(BEHIND_A_HOLE).actual.steps
    assert "b2  [e0: 3-3][e1: 4-4][e2: 5-]  HW 5  LEO 5  leads" in step.answer


def test_a_log_behind_a_hole_on_a_disk_that_is_trusted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replicas, "untrusted", lambda *_: None)
    monkeypatch.setattr(platter, "is_on_platter", lambda *_, **__: iter(()))
    with pytest.raises(InvariantViolatedError, match="0-1@e0 was committed"):
        run_story(BEHIND_A_HOLE)


ASKS_A_DEPOSED_LEADER = """\
cluster brokers=3 broker.session.timeout.ms=3000
topic t replicas=b1,b2,b3
produce t-0 zero
wait equal t-0
cut b1 b2 b3 c
run 8s
pause b1
produce t-0 one
poll t-0
pause b2 b3
resume b1
poll t-0
resume b2 b3
heal
wait equal t-0
poll t-0
judge t-0
"""
"""b1 does not know that b2 leads, and its log ends before the consumer's position."""


def test_a_consumer_that_knows_no_leader_epochs_may_begin_anew() -> None:
    (step,) = run_story(parse(ASKS_A_DEPOSED_LEADER)).actual.steps
    assert [line for line in step.answer if line.startswith("polled: ")] == [
        "polled: zero one",
        "polled: zero",
    ]


def test_a_disk_has_all_that_it_claimed_once_it_lies_no_more() -> None:
    story = """\
cluster brokers=1
topic t replicas=b1 flush.messages=1
lie b1 names=*.log
produce t-0 one
recover
power-cut b1 leaving=nothing
start b1
wait leader t-0
read t-0
"""
    (step,) = run_story(parse(story)).actual.steps
    assert step.answer[-1] == "read: one"


MADE_AGAIN = """\
cluster brokers=3 min.insync.replicas=2
topic t replicas=b1,b2,b3
produce t-0 acks={acks} one
produce t-0 acks=1 two &
remake t replicas=b2,b3,b1
produce t-0 acks=all three
wait equal t-0
ledger t-0
judge t-0
"""


def test_a_remade_topic_is_judged_by_what_was_sent_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (step,) = run_story(parse(MADE_AGAIN.format(acks="all"))).actual.steps
    assert "acked and committed  1  three" in step.answer
    planted("an ack waits for the high watermark")(monkeypatch)
    with pytest.raises(InvariantViolatedError, match="was acked with acks=all up to"):
        run_story(parse(MADE_AGAIN.format(acks="1")))


def test_a_topic_is_made_again_though_an_answer_never_comes() -> None:
    story = """\
cluster brokers=1
topic t replicas=b1
hold b1 client DELETE_TOPICS
remake t replicas=b1
"""
    (step,) = run_story(parse(story)).actual.steps
    assert step.answer[-1] == "t is another topic"


# b3 is not in sync when b1 dies, and is before b2 in the order of the replicas.
B3_IS_BEHIND = """\
cluster brokers=3 replica.lag.time.max.ms=5000 unclean.leader.election.enable={unclean}
topic t replicas=b1,b3,b2
produce t-0 acks=all one
run 1s
cut b3 b1 b2
produce t-0 acks=all two
wait isr t-0 b1,b2
run 1s
{kill}
wait leader t-0
show t-0
"""


def test_an_election_of_a_replica_that_is_not_in_sync_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = parse(B3_IS_BEHIND.format(unclean="false", kill="kill b1"))
    assert "t-0: b2 leads in epoch 1, isr b2, osr b1 b3" in run_story(story).actual.steps[0].answer
    honest = election.after

    def anybody(partition: PartitionRegistration, wish: Wish, **how: Any) -> PartitionRegistration:
        if wish.isr is not None and partition.leader not in wish.isr:
            wish = attrs.evolve(wish, isr=tuple(filter(how["is_active"], partition.replicas)))
        return honest(partition, wish, **how)

    monkeypatch.setattr(controller_decisions, "after", anybody)
    with pytest.raises(InvariantViolatedError, match=r"b3 is in the ISR of t-0 .* was committed"):
        run_story(story)


def test_a_loss_by_an_unclean_election_is_no_violation() -> None:
    story = parse(B3_IS_BEHIND.format(unclean="true", kill="kill b1 b2"))
    answer = run_story(story).actual.steps[0].answer
    # b1 and b2 are fenced in either order, and the one that comes second leads in between or not.
    leads = tuple(f"t-0: b3 leads in epoch {epoch}, isr b3" for epoch in (1, 2))
    assert any(line.startswith(leads) for line in answer)


def test_a_loss_with_the_power_of_the_last_replica_in_sync_is_no_violation() -> None:
    """KIP-966 is about that; without it, it is elected and what it has not is lost."""
    story = parse(
        """\
cluster brokers=2
topic t replicas=b1,b2
kill b2
wait isr t-0 b1
produce t-0 acks=all one
produce t-0 acks=all two
power-cut b1
start b1
start b2
wait isr t-0 b1,b2
produce t-0 acks=all three
wait equal t-0
verify t-0
"""
    )
    lost = 0
    for seed in range(5):
        answer = run_story(story, seed=seed).actual.steps[0].answer
        assert "same in 2 copies" in answer[-1]
        lost += "offsets 0 to 3" not in answer[-1]
    assert lost, "in no seed was anything lost"


UNCLEAN = """\
cluster brokers=2 min.insync.replicas=1 unclean.leader.election.enable=true
topic t replicas=b1,b2
produce t-0 acks=1 one
kill b2
wait isr t-0 b1
produce t-0 acks=1 two
kill b1
start b2
wait leader t-0
start b1
wait isr t-0 b1,b2
cut b1 b2
produce t-0 acks=all timeout.ms=2000 three
kill b2
wait leader t-0
recover
wait isr t-0 b1,b2
wait equal t-0
judge t-0
"""


def test_records_sent_after_an_unclean_election_are_promised_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`two` may be lost; `three` was refused, or is there."""
    (step,) = run_story(parse(UNCLEAN)).actual.steps
    assert step.answer[-1] == "t-0: may have lost what was committed"
    planted("an ack waits for the high watermark")(monkeypatch)
    with pytest.raises(BrokenPromiseError, match=r"lost write: three of producer was acknowledged"):
        run_story(parse(UNCLEAN))


# b2 is elected without `two`, and then both are in sync again.
AFTER_A_LOSS = (
    UNCLEAN.partition("cut b1 b2")[0]
    + """\
cut b1 b2
produce t-0 acks=1 three
run 1s
"""
)


def test_records_committed_after_an_unclean_election_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_story(parse(AFTER_A_LOSS))
    honest = Leadership.maybe_advance_high_watermark

    def alone_in_the_end(self: Leadership) -> bool:
        if self.leader_epoch > 0 and len(self.isr) > 1:
            self.log.update_high_watermark(self.log.log_end_offset)
        return honest(self)

    monkeypatch.setattr(Leadership, "maybe_advance_high_watermark", alone_in_the_end)
    with pytest.raises(InvariantViolatedError, match=r"b. is in the ISR of t-0 with a log that"):
        run_story(parse(AFTER_A_LOSS))


@pytest.mark.parametrize(
    ("cause", "may_have_lost"), [("last known", True), ("eligible", False), ("clean", False)]
)
@pytest.mark.parametrize("loss", [PowerCut(node="b1"), DiskReplaced(node="b1")])
def test_only_the_last_known_leader_may_lose_with_its_disk(
    loss: Event, cause: str, *, may_have_lost: bool
) -> None:
    checkers = Checkers()

    async def story(world: World) -> None:
        async with AsyncExitStack() as stack:
            stage = Stage(world=world, stack=stack, checkers=checkers)
            for line in ("cluster brokers=1", "topic t replicas=b1", "produce t-0 one"):
                await run_command(stage, line)
            elected = LeaderElected(
                partition=PARTITION, leader=1, leader_epoch=1, isr=(1,), cause=cause
            )
            checkers(elected)
            assert not checkers.may_have_lost(PARTITION)
            checkers(loss)
            checkers(elected)
            assert checkers.may_have_lost(PARTITION) == may_have_lost

    World(1).run(story)


def test_a_wiped_disk_loses_nothing_that_others_have() -> None:
    story_run = run_story(
        parse(
            """\
cluster brokers=3 min.insync.replicas=2
topic t replicas=b1,b2,b3
produce t-0 acks=all one
kill b1
wipe b1
start b1
wait isr t-0 b1,b2,b3
wait equal t-0
judge t-0
"""
        )
    )
    assert "may have lost" not in story_run.actual.steps[0].answer[-1]


@pytest.mark.parametrize("seed", [8, 17])
def test_a_joined_replica_is_excused_from_the_decision_on_whose_event_comes_later(
    seed: int,
) -> None:
    """Fetches of version 11 name no process: b2 is taken for what it was (KIP-903). In these
    worlds somebody is looked at after the controller has decided so, and before it has said so.
    """
    run_story(
        parse(
            """\
cluster brokers=2 min.insync.replicas=1 understudy.inter.broker.fetch.version=11
topic t replicas=b1,b2
produce t-0 acks=all one
stop b2
produce t-0 acks=1 two
hold b1 c ALTER_PARTITION
start b2
run 300ms
stop b2
wipe b2
cut b1 b2
start b2
produce t-0 acks=1 three &
produce t-0 acks=1 four &
heal b1 c
produce t-0 acks=1 five &
produce t-0 acks=1 six &
run 100ms
"""
        ),
        seed=seed,
    )


# b2 had fetched `one` before its disk was replaced, and nothing was committed then.
COUNTED_FOR_WHAT_IT_WAS = """\
cluster brokers=3 min.insync.replicas=2 understudy.inter.broker.fetch.version=11
topic t replicas=b1,b2,b3
stop b2
stop b3
produce t-0 acks=1 one
hold b1 c ALTER_PARTITION
start b2
run 300ms
cut b1 b2
stop b2
wipe b2
start b2
heal b1 c
run 300ms
show t-0
"""

# b1 joins the ISR with an empty disk, and leads; nobody truncates before b3 leads.
NOBODY_HAS_TRUNCATED = """\
cluster brokers=3 min.insync.replicas=2 understudy.inter.broker.fetch.version=11
topic t replicas=b2,b1,b3
produce t-0 acks=all one
stop b1
produce t-0 acks=all two
hold b2 c ALTER_PARTITION
start b1
run 300ms
cut b1 b2 b3
stop b1
wipe b1
start b1
heal b2 c
run 300ms
reassign t-0 b1,b2,b3
elect t-0 preferred
run 300ms
reassign t-0 b3,b1,b2
elect t-0 preferred
run 300ms
show t-0
"""

# b1 joins the ISR with an empty disk, and leads; b2 truncates to it, and leads; b3, which has heard
# of neither, leads then, and has everything.
WHO_LEADS_HAS_MORE = """\
cluster brokers=3 min.insync.replicas=2 understudy.inter.broker.fetch.version=11
topic t replicas=b2,b1,b3
produce t-0 acks=all one
stop b1
produce t-0 acks=all two
hold b2 c ALTER_PARTITION
start b1
run 300ms
cut b1 b2 b3
stop b1
wipe b1
start b1
heal b2 c
run 300ms
hold c b3 FETCH
reassign t-0 b1,b2,b3
elect t-0 preferred
heal b1 b2
run 300ms
reassign t-0 b2,b1,b3
elect t-0 preferred
run 300ms
cut b3 b1 b2
reassign t-0 b3,b1,b2
elect t-0 preferred
heal c b3
run 300ms
show t-0
"""


@pytest.mark.parametrize(
    ("story", "state"),
    [
        pytest.param(
            COUNTED_FOR_WHAT_IT_WAS,
            [
                "t-0: b1 leads in epoch 0, isr b1 b2, osr b3",
                "b1  [e0: 0-0]  HW 1  LEO 1  leads",
                "b2  []         HW 0  LEO 0  follows",
            ],
            id="counted",
        ),
        pytest.param(
            NOBODY_HAS_TRUNCATED,
            [
                "t-0: b3 leads in epoch 2, isr b2 b1 b3",
                "b3  [e0: 0-1][e2: 2-]  HW 2  LEO 2  leads",
                "b1  [e1: 0-]           HW 0  LEO 0  follows",
            ],
            id="led",
        ),
        pytest.param(
            WHO_LEADS_HAS_MORE,
            [
                "t-0: b3 leads in epoch 3, isr b2 b1 b3",
                "b3  [e0: 0-1][e3: 2-]  HW 2  LEO 2  leads",
                "b2  [e2: 0-]           HW 0  LEO 0  follows",
            ],
            id="has more",
        ),
    ],
)
def test_who_joined_for_what_it_was_is_excused_until_it_has_that(
    story: str, state: list[str]
) -> None:
    """Fetches of version 11 name no process (KIP-903)."""
    (step,) = run_story(parse(story)).actual.steps
    assert set(state) <= set(step.answer)


def test_a_deposed_leader_that_does_not_know_it_is_not_judged() -> None:
    """b1 sleeps while b2 commits and is led by itself again: it led, and has not, `two`."""
    run_story(
        parse(
            """\
cluster brokers=2 min.insync.replicas=1 broker.session.timeout.ms=3000
topic t replicas=b1,b2
produce t-0 acks=all one
pause b1
wait isr t-0 b2
produce t-0 acks=all two
kill b2
start b2 &
run 20s
resume b1
wait isr t-0 b1,b2
"""
        )
    )


def test_a_follower_that_does_not_truncate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_everything(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(LocalReplicas, "truncate_to", keep_everything)
    with pytest.raises((ScriptError, InvariantViolatedError)):
        run_story(FAILOVER)


def test_a_truncation_below_the_high_watermark_is_found() -> None:
    cut = LogTruncated(
        partition=PARTITION, from_offset=9, to_offset=4, high_watermark=5, cause="diverging epoch"
    )
    checkers = Checkers()
    checkers(attrs.evolve(cut, to_offset=5))
    with pytest.raises(
        InvariantViolatedError, match="t-0 was cut to 4, below its high watermark 5"
    ):
        checkers(cut)
    checkers(cut)  # the first violation is the one that is reported
    with pytest.raises(InvariantViolatedError, match="cut to 4"):
        checkers.look()


def test_the_ledger_accounts_for_every_value() -> None:
    def sent(*values: str, acked: bool) -> SentRecords:
        return SentRecords(PARTITION, values, -1, AckedBatch(0) if acked else NoAnswer("lost"))

    batches = [sent("a", "b", acked=True), sent("c", "d", acked=False), sent("e", acked=True)]
    there = [ReadRecord(offset, value) for offset, value in enumerate("abdb")]
    assert loss_ledger(batches, there).lines() == [
        "acked and committed  2  a b",
        "acked and lost       1  e",
        "never acked          2  c d",
        "of these there       1  d",
        "duplicated           1  b",
    ]


# b2 forgets on a lying disk, and is up before b1 is: unclean elections are permitted.
UNCLEAN_BESIDE_AN_ELIGIBLE_REPLICA = """\
cluster brokers=2 broker.session.timeout.ms=3000 min.insync.replicas=2 unclean.leader.election.enable=true
topic t replicas=b1,b2
hold b1 c BROKER_HEARTBEAT
lie b2
run 4s
stop b2
power-cut b2
start b2 &
run 20ms
events leader_elected
"""


# The same, and b1, which was shut down cleanly, registers at the same time.
UNCLEAN_AS_AN_ELIGIBLE_REPLICA_REGISTERS = """\
cluster brokers=2 unclean.leader.election.enable=true min.insync.replicas=2
topic t replicas=b2,b1
lie b2 names=*.log
stop b1
start b1 &
run 8s
stop b1
stop b2
power-cut b2
start b2 &
run 10ms
start b1 &
run 20ms
events leader_elected
"""


@pytest.mark.parametrize(
    ("story", "seed"),
    [(UNCLEAN_BESIDE_AN_ELIGIBLE_REPLICA, 1), (UNCLEAN_AS_AN_ELIGIBLE_REPLICA_REGISTERS, 688)],
)
def test_an_unclean_election_beside_an_eligible_replica_may_lose_records(
    story: str, seed: int
) -> None:
    (step,) = run_story(parse(story), seed=seed).actual.steps
    assert "leader=2" in step.answer[-1]
    assert "cause=unclean" in step.answer[-1]


# b2 is cut off, and b1 alone in sync, when it loses its power. Then the minimum is raised.
A_MINIMUM_RAISED_AFTER_THE_LOSS = """\
cluster brokers=2 broker.session.timeout.ms=3000
topic t replicas=b2,b1
cut b2 c
run 500ms
power-cut b1
alter t min.insync.replicas=3
recover
wait equal t-0
"""


def test_a_minimum_raised_later_brings_no_budget_back() -> None:
    run_story(parse(A_MINIMUM_RAISED_AFTER_THE_LOSS))


# S50: everybody has what was acked, and nobody may have synced it.
BLACKOUT = """\
cluster brokers=3 min.insync.replicas=2 log.flush.interval.messages={flush}
topic t replicas=b1,b2,b3
produce t-0 acks=all one
produce t-0 acks=all two
produce t-0 acks=all three
wait equal t-0
power-cut b1 b2 b3
start b1
start b2
run 20s
start b3
wait isr t-0 b1,b2,b3
events leader_elected partition_offline
produce t-0 acks=all four
wait equal t-0
ledger t-0
verify t-0
"""


@pytest.mark.parametrize("seed", range(4))
def test_after_a_blackout_the_last_leader_leads_and_all_replicas_are_equal(seed: int) -> None:
    answer = run_story(parse(BLACKOUT.format(flush=2**63 - 1)), seed=seed).actual.steps[0].answer
    # No replica is eligible: the controller waits for the last leader, whose election counts as one
    # that may have lost what was acked.
    *_, led, offline, elected = [line for line in answer if line.startswith("c: ")]
    assert "partition_offline" in offline
    last = led.partition("leader=")[2].partition(" ")[0]
    assert f"leader={last} " in elected
    assert "cause=last known" in elected
    assert "same in 3 copies" in answer[-1]


def test_a_partition_is_watched_that_its_controller_never_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A controller may lose its power after it has decided and before it says so."""
    watch = Checkers.__call__

    def watch_all_but_new_partitions(self: Checkers, event: Event) -> None:
        if not (isinstance(event, LeaderElected) and event.cause == "created"):
            watch(self, event)

    monkeypatch.setattr(Checkers, "__call__", watch_all_but_new_partitions)
    run_story(parse(BLACKOUT.format(flush=2**63 - 1)))


@attrs.define
class Deciding:
    """A controller, as far as `Decisions` looks at it; `known` is the newest epoch that it knows."""

    leading_epoch: LeaderEpoch
    known: LeaderEpoch
    image: MetadataImage = attrs.field(factory=MetadataImage)
    config: BrokerConfig | None = None

    @property
    def log(self) -> "Deciding":
        return self

    @property
    def node(self) -> Any:
        return SimpleNamespace(quorum=SimpleNamespace(leader_epoch=self.known))


def test_a_deposed_controller_that_hears_of_its_successor_has_no_say() -> None:
    decisions = Decisions()
    deposed, successor = Deciding(14, 14), Deciding(15, 15)
    for each in (deposed, successor):
        list(decisions.look(each))  # type: ignore[arg-type]
        assert decisions.image is each.image
    deposed.known = 15
    list(decisions.look(deposed))  # type: ignore[arg-type]
    assert decisions.image is successor.image


@pytest.mark.parametrize("seed", range(4))
def test_records_synced_before_their_ack_survive_a_blackout(seed: int) -> None:
    answer = run_story(parse(BLACKOUT.format(flush=1)), seed=seed).actual.steps[0].answer
    assert "acked and committed  4  one two three four" in answer
