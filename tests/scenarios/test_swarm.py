"""Random runs find nothing wrong; with a mistake planted, they find it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

from replication.cli.scenario import command
from replication.errors import ErrorCode
from replication.events import BecameLeader, Event, LeaderElected
from replication.wire.produce import ACKS_ALL
from scenarios.story.commands.judge import broken_promises, had_another_leader, of_former_topic
from scenarios.story.repeated import repeated_values
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.story.stage import Stage
from scenarios.swarm.runner import SwarmRun, play, run_seed
from scenarios.world.client import AckedBatch, NoAnswer, ReadRecord, Refused, SentRecords
from scenarios.world.history import Poll
from scenarios.world.trace import SIMULATOR, PowerCut, TraceEntry
from storage.types import Offset, TopicPartition
from tests.deep import one_in
from tests.mutants.planting import planted

PARTITION = TopicPartition("t", 0)
SOME = 17  # a short run
AT_0 = AckedBatch(0)


@pytest.mark.parametrize("seed", one_in(100, range(1, 201)))
def test_nothing_goes_wrong(seed: int) -> None:
    run = run_seed(seed)
    assert not run.wrong, f"{run.replay_command}\n{run.traceback}"


@cache
def run_of_some_seed() -> SwarmRun:
    return run_seed(SOME)


def test_the_lines_of_a_run_are_a_story_and_with_its_seed_the_same_run() -> None:
    run = run_of_some_seed()
    telling = run_story(parse("\n".join(run.lines)), seed=SOME)
    assert telling.trace_hash == run.trace_hash
    assert telling.actual.steps[0].answer == run.answer


@pytest.mark.parametrize("hash_seed", one_in(2, ["1", "2"]))
def test_another_process_replays_the_same_run(hash_seed: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "replication.cli", "scenario", "replay", "--seed", str(SOME)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    run = run_of_some_seed()
    assert result.stdout.startswith("\n".join(run.lines))
    assert f"trace {run.trace_hash}" in result.stdout


def test_what_a_failing_run_prints_of_its_values_is_short() -> None:
    shown: list[tuple[int, str]] = []

    def plot(stage: Stage) -> Iterator[str]:
        yield "cluster brokers=3"
        yield "topic t replicas=b1,b2,b3"
        yield "produce t-0 one"
        (broker, *_) = stage.cluster.brokers.values()
        manager = broker.replica_manager
        partition = manager.hosted.get(PARTITION)
        ours = (stage, stage.world, stage.cluster, stage.checkers, stage.client, stage.programs)
        machines = (*ours, stage.checkers.replicas, stage.cluster.clock, manager, partition)
        shown.extend((len(repr(each)), type(each).__name__) for each in machines)

    run = play(plot, seed=SOME)
    assert not run.wrong
    assert max(shown) < (200_000, ""), "all of them lead to the clock, and that to every task"


# What a producer was promised.


def sent(*values: str, acks: int = ACKS_ALL, outcome: Any = AT_0) -> SentRecords:
    return SentRecords(PARTITION, values, acks, outcome)


@pytest.mark.parametrize(
    ("batch", "there", "complaint"),
    [
        (sent("a", "b"), "ab", ""),
        (sent("a", "b"), "a", "acked with acks=all and lost: b"),
        (sent("a", acks=1), "", "acked with acks=1 and lost: a"),
        (sent("a", "b"), "ba", "acked at 0 and found elsewhere: a b"),
        (sent("a", "b"), "aba", "there more than once: a"),
        (sent("a", outcome=NoAnswer("lost")), "a", ""),
        (sent("a", outcome=NoAnswer("lost")), "", ""),
        (sent("a", outcome=Refused(ErrorCode.REQUEST_TIMED_OUT)), "a", ""),
        (
            sent("a", outcome=Refused(ErrorCode.NOT_ENOUGH_REPLICAS)),
            "a",
            "refused before they were written, and there: a",
        ),
    ],
)
def test_a_promise_is_kept_or_broken(batch: SentRecords, there: str, complaint: str) -> None:
    records = [ReadRecord(offset, value) for offset, value in enumerate(there)]
    broken = broken_promises([batch], records, may_have_lost=False, may_lose_acks_1=False)
    assert "; ".join(broken) == complaint


def test_records_before_the_log_start_are_not_lost() -> None:
    def broken(log_start: Offset) -> list[str]:
        there = [ReadRecord(2, "c")]
        return list(
            broken_promises(
                [sent("a", "b", "c")],
                there,
                log_start=log_start,
                may_have_lost=False,
                may_lose_acks_1=False,
            )
        )

    assert broken(2) == []
    assert broken(1) == ["acked with acks=all and lost: b"]
    assert broken(0) == ["acked with acks=all and lost: a b"]


def test_a_record_that_may_be_lost_breaks_no_promise() -> None:
    def broken(batch: SentRecords, *, may_have_lost: bool, may_lose_acks_1: bool) -> list[str]:
        return list(
            broken_promises(
                [batch], [], may_have_lost=may_have_lost, may_lose_acks_1=may_lose_acks_1
            )
        )

    assert not broken(sent("a", acks=1), may_have_lost=False, may_lose_acks_1=True)
    assert broken(sent("a"), may_have_lost=False, may_lose_acks_1=True)
    assert not broken(sent("a"), may_have_lost=True, may_lose_acks_1=True)


LED_AGAIN = BecameLeader(
    partition=PARTITION, leader_epoch=1, leader_epoch_start_offset=0, high_watermark=0
)


@pytest.mark.parametrize(
    ("node", "event", "another"),
    [("b1", LED_AGAIN, False), ("b2", LED_AGAIN, True), (SIMULATOR, PowerCut(node="b1"), True)],
    ids=["the same leader", "an election that nobody reported", "without power"],
)
def test_another_leader_may_lack_what_was_acked_with_acks_1(
    node: str, event: Event, *, another: bool
) -> None:
    first = LeaderElected(
        partition=PARTITION, leader=1, leader_epoch=0, isr=(1, 2), cause="created"
    )
    entries = [TraceEntry(0.0, "c", first), TraceEntry(1.0, node, event)]
    assert had_another_leader(entries, PARTITION) == another


@pytest.mark.parametrize(
    ("there", "polled", "complaint"),
    [
        (["new"], ["new"], []),
        (["new", "old"], [], ["of a topic that is no more, and there: old"]),
        (["new"], ["old", "older"], ["of a topic that is no more, and there: old older"]),
    ],
)
def test_records_of_a_deleted_topic_are_gone(
    there: list[str], polled: list[str], complaint: list[str]
) -> None:
    polls = [Poll(partition=PARTITION, records=tuple(enumerate(polled)))]
    assert list(of_former_topic(there, polls, {"old", "older"})) == complaint


# At the prompt.


def test_a_swarm_prints_how_it_went() -> None:
    result = CliRunner().invoke(
        command, ["swarm", "--seeds", "2", "--from", "20364", "--jobs", "2"]
    )
    assert result.exit_code == 0, result.output
    assert "2 seeds from 20364, 0 failed: " in result.output


def test_a_failing_seed_is_reported_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted("a follower that has caught up joins the ISR")(monkeypatch)
    result = CliRunner().invoke(
        command, ["swarm", "--seeds", "1", "--from", "5", "--jobs", "1", "--attempts", "0"]
    )
    assert result.exit_code == 1
    found = re.search(r"seed (\d+): NotInTimeError.*\n    understudy scenario (.*)", result.output)
    assert found, result.output
    replayed = CliRunner().invoke(command, found[2].split())
    assert replayed.exit_code == 1
    assert f"seed {found[1]}, " in replayed.output
    assert "NotInTimeError: not within 60 s: all replicas" in replayed.output


def sent_by_a_program(
    value: str, *, sent_at: float, outcome: Any, answered_at: float
) -> SentRecords:
    return SentRecords(
        PARTITION,
        (value,),
        ACKS_ALL,
        outcome,
        sent_at=sent_at,
        answered_at=answered_at,
        attempts=1,
        producer="p1",
    )


@pytest.mark.parametrize(
    ("cause", "twice"), [("RECORD_LIST_TOO_LARGE", {"b"}), ("REQUEST_TIMED_OUT", set())]
)
def test_what_waited_when_a_batch_was_too_large_may_be_there_twice(
    cause: str, twice: set[str]
) -> None:
    batches = [
        sent_by_a_program("a", sent_at=0, outcome=AT_0, answered_at=1),
        sent_by_a_program("b", sent_at=1, outcome=AckedBatch(1), answered_at=4),
        sent_by_a_program("c", sent_at=2, outcome=NoAnswer(cause), answered_at=3),
        sent_by_a_program("d", sent_at=4, outcome=AckedBatch(2), answered_at=5),
    ]
    assert repeated_values(batches, trimmed=False) - {"c"} == twice
