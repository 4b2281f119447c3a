"""Producers that send again or in the background, compacted topics, and what is judged of them."""

import pytest

from scenarios.story.commands.judge import MANY, broken_promises, differences, loss_ledger
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.swarm.runner import SwarmRun, play
from scenarios.world.client import AckedBatch, ReadRecord, SentRecords
from storage.types import TopicPartition

T0 = TopicPartition("t", 0)


def swarm_run(*lines: str) -> SwarmRun:
    run = play(lambda _: lines, seed=1)
    assert not run.wrong, run.traceback
    return run


def with_lost_answers(*producing: str) -> SwarmRun:
    """The leader writes, and nobody hears of it for two seconds."""
    return swarm_run(
        "cluster brokers=3 min.insync.replicas=2",
        "topic t replicas=b1,b2,b3",
        "hold b1 client PRODUCE",
        *producing,
        "run 2s",
        "heal",
        "answers",
        "read t-0",
        "judge t-0",
    )


def test_a_producer_without_sequences_may_write_twice() -> None:
    run = with_lost_answers("produce t-0 delivery.timeout.ms=9000 timeout.ms=200 a &")
    assert run.answer[-1].split()[1:].count("a") > 1
    assert "a duplicate was recognised by its sequence" not in run.reached


def test_an_idempotent_producer_sends_again_in_order_and_nothing_is_there_twice() -> None:
    line = "produce t-0 as=p1 delivery.timeout.ms=9000 timeout.ms=200 {} &"
    batches = [each for value in "abcdefg" for each in (line.format(value), "run 1ms")]
    run = with_lost_answers(*batches)
    assert run.answer[-1] == "read: a b c d e f g"
    assert run.reached["a duplicate was recognised by its sequence"]
    assert run.answer[2:-1] == tuple(f"{v}: acked at {at}" for at, v in enumerate("abcdefg"))


def test_a_batch_that_is_given_up_ends_its_sequence() -> None:
    run = with_lost_answers(
        "produce t-0 as=p1 delivery.timeout.ms=500 timeout.ms=200 a &",
        "run 1s",
        "produce t-0 as=p1 delivery.timeout.ms=9000 timeout.ms=200 b &",
    )
    assert run.answer[-3:] == ("a: no answer: given up", "b: acked at 1", "read: a b")


def test_across_leaders_nothing_is_there_twice() -> None:
    run = swarm_run(
        "cluster brokers=3 min.insync.replicas=2",
        "topic t replicas=b1,b2,b3",
        "hold b1 client PRODUCE",
        "produce t-0 as=p1 delivery.timeout.ms=40000 timeout.ms=200 a b &",
        "run 100ms",
        "kill b1",
        "answers",
        "read t-0",
        "judge t-0",
    )
    assert run.answer[-2:] == ("a b: acked at 0-1", "read: a b")
    assert run.reached["a duplicate was recognised by its sequence"]


def test_a_compacted_topic_keeps_the_last_of_each_key_on_every_replica() -> None:
    run = swarm_run(
        "cluster brokers=2 log.cleaner.backoff.ms=100 log.initial.task.delay.ms=0",
        "topic t replicas=b1,b2 cleanup.policy=compact segment.bytes=200"
        " min.cleanable.dirty.ratio=0.01",
        *(f"produce t-0 k{number % 2}:v{number}" for number in range(9)),
        "run 20s",
        "read t-0",
        "judge t-0",
    )
    values = run.answer[-1].split()[1:]
    assert values[-2:] == ["k1:v7", "k0:v8"]
    assert len(values) < 9


def test_a_reader_in_a_rack_is_sent_to_a_replica_there() -> None:
    run = swarm_run(
        "cluster brokers=2 b1.broker.rack=r1 b2.broker.rack=r2"
        " replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "topic t replicas=b1,b2",
        "produce t-0 acks=all a b",
        "run 1s",
        "poll t-0 rack=r2",
        "produce t-0 acks=all c",
        "hold b2 client FETCH",
        "poll t-0 rack=r2 &",
        "run 1s",
        "poll t-0 rack=r1",
        "heal",
        "run 70s",
        "poll t-0 rack=r1",
    )
    told_of = [line for line in run.answer if line.startswith("polled")]
    assert told_of == ["polled: a b", "polled:", "polled: c"], "b2 was asked, and not heard"


@pytest.mark.parametrize(
    ("there", "complaints"),
    [
        ({0: "k:a", 1: "k:b"}, []),
        ({1: "k:b"}, []),
        ({1: "k:c"}, ["offset 1", "the last of k"]),
        ({0: "k:a"}, ["the last of k"]),
    ],
)
def test_compacted_copies_agree_about_offsets_and_last_values(
    there: dict[int, str], complaints: list[str]
) -> None:
    assert [each[0] for each in differences({0: "k:a", 1: "k:b"}, there)] == complaints


def test_a_key_is_absent_where_it_was_cleaned_for_a_record_that_was_lost() -> None:
    here, there = {0: "k:a", 1: "other:b"}, {1: "other:b"}
    assert [*differences(here, there)] == [("the last of k", "k:a", "absent")]
    assert not [*differences(here, there, may_have_lost=True)]
    assert [*differences(here, {1: "other:c"}, may_have_lost=True)]


@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        ([ReadRecord(0, "k:a"), ReadRecord(1, "k:b")], ""),
        ([ReadRecord(1, "k:b")], ""),
        ([ReadRecord(0, "k:a")], "acked with acks=all and lost: k:b"),
        ([ReadRecord(2, "j:c")], "acked with acks=all and lost: k:a k:b"),
    ],
)
def test_compaction_may_take_what_another_of_its_key_came_after(
    there: list[ReadRecord], complaint: str
) -> None:
    batches = [
        SentRecords(T0, ("k:a", "k:b"), -1, AckedBatch(0)),
        SentRecords(T0, ("j:c",), 1, None),
    ]
    broken = broken_promises(
        batches, there, may_have_lost=False, may_lose_acks_1=True, compacted=True
    )
    assert "; ".join(broken) == complaint


BEGINS = "cluster brokers=1\ntopic t replicas=b1"


@pytest.mark.parametrize(
    ("story", "last_line"),
    [
        (f"{BEGINS}\nload t-0 p1 records=3\nloaded p1 within=1s", "p1: 3 acked, each within 1s"),
        (
            f"{BEGINS}\nload t-0 p1 records=2 every=2s\nrun 1s\npause b1\nrun 5s\nresume b1\nloaded p1 within=1s",
            "p1: 2 acked, not each within 1s",
        ),
        (
            f"{BEGINS} max.message.bytes=20\nload t-0 p1\nloaded p1",
            "p1: 0 acked; p1-1 was not acked: Refused(error=<ErrorCode.MESSAGE_TOO_LARGE: 10>)",
        ),
    ],
)
def test_a_producer_in_the_background_reports_its_progress(story: str, last_line: str) -> None:
    assert run_story(parse(story)).actual.steps[-1].answer[-1] == last_line


def test_the_ledger_names_a_few_of_many_values() -> None:
    values = tuple(f"v{number}" for number in range(MANY + 1))
    batch = SentRecords(TopicPartition("t", 0), values, 1, AckedBatch(0))
    there = [ReadRecord(offset, value) for offset, value in enumerate(values)]
    assert loss_ledger([batch], there).lines()[0] == f"acked and committed  21  v0 v1 ... v{MANY}"
