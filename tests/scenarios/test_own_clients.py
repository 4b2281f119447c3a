"""Our own clients in stories, and the verdicts about what they receive."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from replication.client.consumer.completed_fetch import CompletedFetch
from replication.client.consumer.group.coordinator import ConsumerCoordinator
from replication.client.consumer.position import FetchPosition
from replication.client.consumer.subscription import SubscriptionState
from replication.client.producer import Producer
from replication.errors import ErrorCode
from replication.transactions.markers import MarkerWriter
from replication.wire.write_txn_markers import WritableTxnMarker
from scenarios.swarm.runner import SwarmRun, play
from storage.types import TopicPartition

SETTINGS = (
    "offsets.topic.num.partitions=1 transaction.state.log.num.partitions=1"
    " group.initial.rebalance.delay.ms=0 min.insync.replicas=2"
)
BEGINNING = (f"cluster brokers=3 {SETTINGS}", "topic t replicas=b1,b2,b3/b2,b3,b1")


def swarm_run(*lines: str) -> SwarmRun:
    return play(lambda _: (*BEGINNING, *lines), seed=1)


def answers(*lines: str) -> Sequence[str]:
    run = swarm_run(*lines)
    assert not run.wrong, run.traceback
    return run.answer[3:]


ALL_OF_THEM = (
    "topic u replicas=b3,b1,b2",
    "producer p1 linger.ms=0",
    "producer x1 transactional.id=x linger.ms=0",
    "reader r1 t-0 isolation.level=read_committed",
    "member m1 g t enable.auto.commit=false session.timeout.ms=6000",
    "copier w1 h t u-0 session.timeout.ms=6000",
    "send p1 t-0 one two",
    "transact x1 t-1 three t-0 four end=abort",
    "transact x1 t-0 five",
    "drain",
    "judge t-0",
    "judge-clients",
)


def test_our_clients_take_part_in_a_story() -> None:
    assert answers(*ALL_OF_THEM, "given r1", "given m1", "read u-0", "errors x1") == (
        "u-0: b3 leads in epoch 0, isr b3 b1 b2",
        "one: acked at 0",
        "two: acked at 1",
        "x1: aborted",
        "x1: committed",
        "r1: t-0: one two five",
        "m1: t-0: one two four five",
        "m1: t-1: three",
        "read: c(one) c(two) c(five)",
        "x1: none",
    )


def test_the_copy_of_a_partition_that_is_not_led_yet_is_waited_for() -> None:
    answers(
        "topic u replicas=b3,b1,b2",
        "copier w1 h t u-0 session.timeout.ms=6000 metadata.max.age.ms=5000",
        "run 5s",
        "slow b3 disk=100ms",
        "grow t 3 b3,b1,b2",
        "drain",
    )


def test_nothing_is_to_be_read_or_copied_by_a_client_that_is_leaving() -> None:
    answers(
        "topic u replicas=b3,b1,b2",
        "member m1 g t session.timeout.ms=6000",
        "copier w1 h t u-0 session.timeout.ms=6000",
        "run 5s",
        "cut m1 b1 b2 b3",
        "cut w1 b1 b2 b3",
        "leave m1 &",
        "leave w1 &",
        "produce t-0 acks=all one",
        "drain",
    )


def test_nothing_is_to_be_read_by_a_client_of_a_former_life() -> None:
    answers(
        "producer x1 transactional.id=x linger.ms=0",
        "reader r1 t-0 isolation.level=read_uncommitted",
        "member m1 g t",
        "run 1s",
        "kill r1",
        "kill m1",
        "reader r1 t-0 isolation.level=read_committed",
        "member m1 h t isolation.level=read_committed",
        "transact x1 t-0 one end=abort",
        "drain",
        "judge-clients",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("send p9 t-0 one", "no such client runs as 'p9'"),
        ("producer b1", "b1 is a machine of another's"),
        ("reader r1", "reader NAME PARTITION..."),
        ("member m1 g", "member NAME GROUP TOPIC..."),
        ("seek r1 t-0 0", "no such client runs as 'r1'"),
        ("cut p9 b1", "there is no node p9"),
    ],
)
def test_what_cannot_be_asked_for_is_said(line: str, why: str) -> None:
    assert why in swarm_run(line).wrong


def test_a_killed_client_is_gone_and_may_have_another_life() -> None:
    found = answers(
        "producer p1 linger.ms=0",
        "kill p1",
        "producer p1 linger.ms=0",
        "send p1 t-0 one",
        "pause p1",
        "send p1 t-0 two &",
        "run 1s",
        "kill p1",
        "answers",
        "judge t-0",
    )
    assert found == ("one: acked at 0", "two: no answer: its producer was gone")


def test_a_marker_that_comes_too_late_holds_up_no_other_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, refused = MarkerWriter.write, list[int]()

    async def refuse_the_first(self: MarkerWriter, marker: WritableTxnMarker) -> Any:
        refused.append(marker.producer_id)
        if marker.producer_id != refused[0]:
            return await write(self, marker)
        return {
            TopicPartition(topic.name, number): ErrorCode.INVALID_PRODUCER_EPOCH
            for topic in marker.topics
            for number in topic.partition_indexes
        }

    monkeypatch.setattr(MarkerWriter, "write", refuse_the_first)
    assert answers(
        "producer x1 transactional.id=x1 linger.ms=0",
        "transact x1 t-0 one",
        "run 1s",
        "producer x2 transactional.id=x2 linger.ms=0",
        "transact x2 t-1 two",
        "run 1s",
        "read t-1",
    ) == ("x1: committed", "x2: committed", "read: two")
    assert refused[0] != refused[-1]


def test_a_run_ends_while_a_member_of_a_group_is_frozen() -> None:
    """Its consumer would leave the group first, and a frozen one never does."""
    assert answers("member m1 g t session.timeout.ms=6000", "run 5s", "pause m1") == ()


# Mistakes that are planted into the client, and the rule that finds each.


def test_aborted_records_that_are_handed_over_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompletedFetch, "_aborts", lambda *_: False)
    assert "aborted read" in swarm_run(*ALL_OF_THEM).wrong


def test_offsets_that_are_not_committed_with_a_copy_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def send_nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(Producer, "send_offsets_to_transaction", send_nothing)
    lines = (
        "topic u replicas=b3,b1,b2",
        "producer p1 linger.ms=0",
        "send p1 t-0 one",
        "copier w1 h t u-0",
        "run 5s",
        "leave w1",
        "copier w1 h t u-0",
        "run 5s",
        "drain",
        "judge-clients",
    )
    assert "duplicate write" in swarm_run(*lines).wrong


def test_a_commit_of_what_was_not_handed_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    consumed = ConsumerCoordinator.consumed

    def and_one_more(self: ConsumerCoordinator) -> Any:
        found = consumed(self)
        return {tp: type(at)(at.offset + 1) for tp, at in found.items()}

    monkeypatch.setattr(ConsumerCoordinator, "consumed", and_one_more)
    lines = (
        "producer p1 linger.ms=0",
        "send p1 t-0 one",
        "member m1 g t auto.commit.interval.ms=500",
        "run 8s",
        "send p1 t-0 two",
        "drain",
        "judge-clients",
    )
    assert "too far: g has committed 2, nobody was handed 1" in swarm_run(*lines).wrong


def test_a_producer_that_is_not_idempotent_is_found_by_what_is_there_twice() -> None:
    lines = (
        "producer p1 enable.idempotence=false linger.ms=0 request.timeout.ms=300",
        "hold b1 p1 PRODUCE",
        *(line for name in "abc" for line in (f"send p1 t-0 {name} &", "run 1ms")),
        "run 1s",
        "heal",
        "answers",
        "judge t-0",
    )
    assert "there more than once: a" in swarm_run(*lines).wrong
    idempotent = swarm_run(*(line.replace("enable.idempotence=false ", "") for line in lines))
    assert not idempotent.wrong
    assert idempotent.reached["a duplicate was recognised by its sequence"]


DELETED_AND_THERE_AGAIN = (
    (
        "cluster brokers=1 offsets.topic.num.partitions=1 offsets.topic.replication.factor=1"
        " group.initial.rebalance.delay.ms=0"
    ),
    "topic t replicas=b1",
    "produce t-0 acks=all one two three",
    "delete-records t-0 1",
    "reader r1 t-0",
    "member m1 g t",
    "run 4s",
    "given r1",
    "kill b1",
    "start b1",
    "wait whole t-0",
    "offsets t-0",
    "produce t-0 acks=all four",
    "drain",
    "judge t-0",
    "judge-clients",
    "given r1",
    "given m1",
)


def test_deleted_records_that_come_back_are_not_required_of_a_consumer() -> None:
    run = play(lambda _: DELETED_AND_THERE_AGAIN, seed=1)
    assert not run.wrong, run.traceback
    assert run.answer[3:] == (
        "t-0: low watermark 1",
        "r1: t-0: two three",
        "t-0: begins at 0, ends at 3",
        "four: acked at 3",
        "r1: t-0: two three four",
        "m1: t-0: two three four",
    )


def test_records_that_were_not_deleted_are_required_of_a_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complete = SubscriptionState.complete_reset

    def one_too_far(self: SubscriptionState, where: Any, at: FetchPosition, how: Any) -> None:
        complete(self, where, attrs.evolve(at, offset=at.offset + 1), how)

    monkeypatch.setattr(SubscriptionState, "complete_reset", one_too_far)
    by_itself = [line for line in DELETED_AND_THERE_AGAIN if "m1" not in line]
    wrong = play(lambda _: by_itself, seed=1).wrong
    assert wrong == "BrokenPromiseError: t-0: poll skip: r1 has passed 1 of t-0 without two"
