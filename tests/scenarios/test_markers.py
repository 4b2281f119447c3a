"""Situations are recognised by events, and the swarm names those that it never met."""

import re

import attrs
import pytest
from click.testing import CliRunner

from replication.cli.scenario import command
from replication.events import (
    BecameFollower,
    BecameLeader,
    BrokerStarted,
    Event,
    FetchRefused,
    FetchSessionEvicted,
    FetchSessionOpened,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrChangeProposed,
    IsrChangeRefused,
    LeaderElected,
    LogCleaned,
    LogRecovered,
    LogRepaired,
    LogTruncated,
    PartitionStopped,
)
from scenarios.swarm.markers import MARKERS, SELDOM, markers_of
from scenarios.world.client import RottenBatchGiven
from scenarios.world.trace import (
    BitFlipped,
    CutUndone,
    DiskLies,
    NodeKilled,
    NodeStarted,
    NodeStopped,
    PowerCut,
    ReadFromFollower,
    TopicMadeAgain,
    TraceEntry,
)
from storage.types import TopicPartition

PARTITION = TopicPartition("t", 0)
EXPANSION = IsrChangeProposed(
    partition=PARTITION,
    leader_epoch=3,
    partition_epoch=5,
    isr=(1, 2),
    leaving=(),
    joining=(2,),
    high_watermark=7,
    log_end_offset=7,
    lag=0,
)
REFUSED = IsrChangeRefused(
    partition=PARTITION, leader_epoch=3, partition_epoch=5, error="INVALID_UPDATE_VERSION"
)
EXPANDED = IsrChanged(
    partition=PARTITION, leader_epoch=3, partition_epoch=6, isr=(1, 2), previous_isr=(1,)
)
ALONE = IsrChanged(
    partition=PARTITION, leader_epoch=3, partition_epoch=6, isr=(1,), previous_isr=(1, 2)
)
ELECTED = LeaderElected(partition=PARTITION, leader=2, leader_epoch=4, isr=(2,), cause="clean")
LEADS = BecameLeader(
    partition=PARTITION, leader_epoch=3, leader_epoch_start_offset=0, high_watermark=0
)
FOLLOWS = BecameFollower(partition=PARTITION, leader=2, leader_epoch=4, log_end_offset=7)
B1_STARTED = BrokerStarted(broker=1, host="b1", port=9092)
B1_STARTS, B1_KILLED = NodeStarted(node="b1", incarnation=1), NodeKilled(node="b1")

OPENED = FetchSessionOpened(session_id=5, partitions=1, privileged=True)
EVICTED = FetchSessionEvicted(session_id=5, cause="idle")
MOVED_ON = HighWatermarkAdvanced(
    partition=PARTITION, high_watermark=8, log_end_offset=9, leader_epoch=3
)
CLEANED = LogCleaned(
    partition=PARTITION,
    first_dirty_offset=0,
    end_offset=9,
    bytes_read=900,
    bytes_written=100,
    invalid_records=0,
)
ONE_LEFT = ["the ISR shrank to one"]
TOO_EARLY = FetchRefused(
    partition=PARTITION, leader=2, leader_epoch=4, error="UNKNOWN_LEADER_EPOCH"
)

LACKING = LogRepaired(
    partition=PARTITION,
    path="/b1/log/t-0",
    position=0,
    offset=4,
    cause="the log had been synced up to offset 9",
    bytes=0,
    kept="",
)
ROTTEN = BitFlipped(node="b1", partition=PARTITION, offset=3)
SHORTER = LogRecovered(
    partition=PARTITION, recovery_point=0, log_end_offset=3, truncated_bytes=80, clean=False
)
CUT_AGAIN = "a log was recovered with a cut"
GIVEN_ROTTEN = RottenBatchGiven(partition=PARTITION, offset=3)
MADE_AGAIN = TopicMadeAgain(topic="t")


CUT_WHERE_IT_DIVERGED = "a log was cut where it diverged"


def cut(start: int, *, end: int = 9, epoch: int = 4) -> LogTruncated:
    return LogTruncated(
        partition=PARTITION,
        from_offset=end,
        to_offset=start,
        high_watermark=0,
        cause="diverging epoch",
        leader_epoch=epoch,
    )


@pytest.mark.parametrize(
    ("events", "reached"),
    [
        ([EXPANSION, ELECTED], ["elected while an ISR expansion was pending"]),
        ([EXPANSION, EXPANDED, ELECTED], []),
        ([EXPANSION, REFUSED, ELECTED], ["an ISR change was refused"]),
        (
            [EXPANSION, NodeKilled(node="c"), ELECTED],
            ["the controller died while an ISR change was pending"],
        ),
        ([EXPANSION, EXPANDED, PowerCut(node="c")], []),
        ([ALONE], ["the ISR shrank to one"]),
        ([LEADS, FOLLOWS], ["a leader that lived was deposed"]),
        ([LEADS, B1_KILLED, FOLLOWS], []),
        ([B1_STARTS, B1_KILLED], ["a broker died before it was up"]),
        ([B1_STARTS, B1_STARTED, NodeStopped(node="b1")], []),
        ([cut(5)], ["a log was cut where it diverged"]),
        ([cut(5), cut(3, end=5)], ["a log was cut in two rounds", CUT_WHERE_IT_DIVERGED]),
        ([cut(5), cut(3, end=6)], [CUT_WHERE_IT_DIVERGED]),
        ([cut(5), cut(3, end=5, epoch=5)], [CUT_WHERE_IT_DIVERGED]),
        ([cut(5), B1_KILLED, cut(3, end=5)], [CUT_WHERE_IT_DIVERGED]),
        ([cut(20)], ["a log began anew, out of range"]),
        ([OPENED, EVICTED], ["a follower's session was evicted", "a session was evicted"]),
        (
            [OPENED, attrs.evolve(EVICTED, behind=1)],
            [
                "a follower's session was evicted",
                "a follower's session was evicted while it caught up",
                "a session was evicted",
            ],
        ),
        ([attrs.evolve(OPENED, privileged=False), EVICTED], ["a session was evicted"]),
        ([TOO_EARLY], ["a fetch came before its leader knew the epoch"]),
        ([attrs.evolve(TOO_EARLY, error="KAFKA_STORAGE_ERROR")], []),
        ([EXPANSION, MOVED_ON], ["the high watermark moved on while an ISR expansion was pending"]),
        ([EXPANSION, EXPANDED, MOVED_ON], []),
        ([ALONE, CLEANED], ["a log was compacted while a replica was behind", *ONE_LEFT]),
        ([ALONE, EXPANDED, CLEANED], ONE_LEFT),
        ([PartitionStopped(partition=PARTITION, deleted=True)], ["a replica was taken away"]),
        ([CutUndone(node="b1")], ["a cut was undone, as it had not been synced"]),
        ([DiskLies(node="b1"), PowerCut(node="b1")], ["a disk that lied lost its power"]),
        ([DiskLies(node="b2"), PowerCut(node="b1")], []),
        ([LACKING], ["a log was found to lack what had been synced"]),
        ([attrs.evolve(LACKING, cause="it follows what was cut")], []),
        ([ROTTEN, SHORTER], ["a log was cut at damaged bytes", CUT_AGAIN]),
        ([attrs.evolve(ROTTEN, node="b2"), SHORTER], [CUT_AGAIN]),
        ([GIVEN_ROTTEN], ["a consumer was sent a damaged batch"]),
        (
            [attrs.evolve(TOO_EARLY, error="CORRUPT_MESSAGE")],
            ["a follower was sent a damaged batch"],
        ),
        (
            [ReadFromFollower(partition=PARTITION, replica=2)],
            ["a consumer of ours read from a follower"],
        ),
        ([B1_KILLED, B1_STARTS, MADE_AGAIN], ["a topic was made again"]),
        (
            [B1_KILLED, MADE_AGAIN],
            ["a topic was made again", "a topic was made again while a broker was down"],
        ),
    ],
)
def test_a_situation_is_recognised_by_its_events(events: list[Event], reached: list[str]) -> None:
    entries = [TraceEntry(float(at), "b1", event) for at, event in enumerate(events)]
    assert sorted(markers_of(entries)) == sorted(reached)


@pytest.mark.deep
def test_the_swarm_counts_runs_and_fails_where_all_is_to_be_reached_and_is_not() -> None:
    asked = ["swarm", "--seeds", "1", "--from", "3", "--jobs", "1"]
    result = CliRunner().invoke(command, asked)
    assert result.exit_code == 0, result.output
    counts = re.findall(r"^ +(\d+)  (.*)$", result.output, re.MULTILINE)
    assert [marker for _, marker in counts] == [*MARKERS, *SELDOM]
    assert {"0", "1"} == {runs for runs, _ in counts}
    assert CliRunner().invoke(command, [*asked, "--reach-all"]).exit_code == 1


def test_the_controller_that_decides_is_the_one_that_has_reported_last() -> None:
    def seen(*happened: tuple[str, Event]) -> set[str]:
        return set(markers_of(TraceEntry(0.0, node, event) for node, event in happened))

    another, deposed = "another controller decides", "a controller that lived decides no more"
    died = "the controller died while an ISR change was pending"
    first, second = ("c3001", ELECTED), ("c3002", ELECTED)
    pending, killed = ("b1", EXPANSION), ("sim", NodeKilled(node="c3001"))
    assert seen(first, second) == {another, deposed}
    assert seen(first, killed, second) == {another}
    assert seen(first, pending, killed) == {died}
    assert seen(first, pending, ("sim", NodeKilled(node="c3002"))) == set()
    assert seen(pending, ("sim", NodeKilled(node="c"))) == {died}
