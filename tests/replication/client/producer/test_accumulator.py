"""Batches fill, wait, travel and come back; whatever happens, each is there once and in order.

The file is long because the accumulator has many rules, and each has its cases here.
"""

import random
from collections import deque
from collections.abc import Sequence

import attrs
import pytest

from replication.client.producer.accumulator import BatchAnswer, RecordAccumulator, SentBatch
from replication.client.producer.batch import (
    Acked,
    Failed,
    InParts,
    ProducerBatch,
    ProducerIdAndEpoch,
    record_size,
)
from replication.client.producer.partition_queue import Verdict
from replication.errors import ErrorCode, KafkaError
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record, decode_batch
from storage.types import NO_OFFSET, TopicPartition
from tests.replication.client.producer.naive_broker import NaiveBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STORIES = 300
SIZE = record_size(None, b"value", ())


def accumulator(
    *,
    batch_records: int = 3,
    linger: float = 0.0,
    buffer_records: int = 100,
    request_records: int = 100,
    delivery_timeout: float = 120.0,
    retries: int = 2**31 - 1,
    idempotent: bool = True,
    one_at_a_time: bool = False,
    transactional: bool = False,
) -> RecordAccumulator:
    return RecordAccumulator(
        batch_size=HEADER_SIZE + batch_records * SIZE,
        linger=linger,
        buffer_memory=buffer_records * SIZE,
        max_request_size=request_records * (HEADER_SIZE + SIZE),
        delivery_timeout=delivery_timeout,
        retries=retries,
        backoff=lambda _: 0.1,
        idempotent=idempotent,
        one_at_a_time=one_at_a_time,
        transactional=transactional,
        identity=ProducerIdAndEpoch(7, 0),
    )


def append(
    buffer: RecordAccumulator, number: int, *, partition: TopicPartition = T0, now: float = 0.0
) -> ProducerBatch:
    record = Record(timestamp=0, value=f"{number:05}".encode())
    return buffer.append(partition, record, SIZE, now=lambda: now)[0]


def drain(
    buffer: RecordAccumulator, *, now: float = 0.0, leaders: Sequence[int] = (1, 1)
) -> list[SentBatch]:
    drained = buffer.drain(lambda each: leaders[each.partition], lambda _: True, now=now)
    return [sent for request in drained.requests.values() for sent in request]


def values(batch: ProducerBatch) -> list[int]:
    return [int(Record(*record).value or b"-1") for record in batch.records]


def acked(buffer: RecordAccumulator, number: int) -> None:
    """Let the producer's first record be acked: brokers know the producer from then on."""
    append(buffer, number)
    (sent,) = drain(buffer)
    buffer.answered(sent, BatchAnswer(base_offset=0), now=0.0)


def refused(error: ErrorCode) -> BatchAnswer:
    return BatchAnswer(error=error)


# When a batch goes out.


def test_a_batch_goes_out_when_it_has_lingered() -> None:
    buffer = accumulator(linger=5.0)
    append(buffer, 0, now=1.0)
    assert drain(buffer, now=5.9) == []
    assert buffer.drain(lambda _: 1, lambda _: True, now=5.9).next_at == 6.0
    assert [values(sent.batch) for sent in drain(buffer, now=6.0)] == [[0]]


def test_a_full_batch_goes_out_at_once() -> None:
    buffer = accumulator(linger=5.0)
    for number in range(4):
        append(buffer, number)
    assert [values(sent.batch) for sent in drain(buffer)] == [[0, 1, 2]]
    assert drain(buffer) == []


@pytest.mark.parametrize("hurry", ["flushing", "waiting_for_room"])
def test_nothing_lingers_while_a_task_waits(hurry: str) -> None:
    buffer = accumulator(linger=5.0)
    append(buffer, 0)
    setattr(buffer, hurry, 1)
    assert [values(sent.batch) for sent in drain(buffer)] == [[0]]


def test_a_record_that_does_not_fit_begins_the_next_batch() -> None:
    buffer = accumulator(batch_records=2)
    append(buffer, 0)
    large = b"x" * (3 * SIZE)
    batch, _ = buffer.append(T0, Record(value=large), record_size(None, large, ()), now=lambda: 0.0)
    assert batch.count == 1
    (first,) = drain(buffer)
    buffer.answered(first, BatchAnswer(base_offset=0), now=0.0)
    (second,) = drain(buffer)
    assert (first.batch.count, second.batch.count) == (1, 1)


def test_a_request_has_one_batch_of_a_partition_and_partitions_take_turns() -> None:
    buffer = accumulator(batch_records=1, request_records=4)
    for number in range(3):
        append(buffer, number, partition=T0)
        append(buffer, 10 + number, partition=T1)
    assert [values(sent.batch) for sent in drain(buffer)] == [[0], [10]]
    small = accumulator(batch_records=1, request_records=1, idempotent=False)
    for number in range(2):
        append(small, number, partition=T0)
        append(small, 10 + number, partition=T1)
    assert [values(sent.batch) for _ in range(4) for sent in drain(small)] == [[0], [10], [1], [11]]


def test_leaders_and_available_nodes_are_arguments() -> None:
    buffer = accumulator()
    append(buffer, 0, partition=T0)
    append(buffer, 1, partition=T1)
    leaders = {T0: None, T1: 3}
    busy = buffer.drain(leaders.get, lambda _: False, now=0.0)
    assert (busy.requests, busy.leaderless) == ({}, {"t"})
    free = buffer.drain(leaders.get, lambda node: node == 3, now=0.0)
    assert [values(sent.batch) for sent in free.requests[3]] == [[1]]


def test_room_is_taken_until_the_outcome() -> None:
    buffer = accumulator(buffer_records=2)
    assert buffer.has_room(5 * SIZE)  # else it could never be sent
    append(buffer, 0)
    assert buffer.has_room(SIZE)
    append(buffer, 1)
    assert not buffer.has_room(SIZE)
    (sent,) = drain(buffer)
    assert not buffer.has_room(SIZE)
    buffer.answered(sent, BatchAnswer(base_offset=0), now=0.0)
    assert buffer.used == 0
    assert not buffer.unfinished()


# What becomes of it.


def test_an_ack_says_where_the_records_are() -> None:
    buffer = accumulator()
    batch = append(buffer, 0)
    outcomes: list[object] = []
    batch.on_outcome.append(lambda: outcomes.append(batch.outcome))
    (sent,) = drain(buffer)
    assert buffer.answered(sent, BatchAnswer(base_offset=42), now=0.0) is Verdict.ACKED
    assert outcomes == [Acked(42)]


def test_a_retriable_batch_is_sent_again_after_its_back_off() -> None:
    buffer = accumulator()
    append(buffer, 0)
    (sent,) = drain(buffer)
    error = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert buffer.answered(sent, error, now=1.0) is Verdict.RETRY
    assert drain(buffer, now=1.05) == []
    (again,) = drain(buffer, now=1.1)
    assert again == sent


def test_a_refused_batch_fails_and_the_epoch_goes_up() -> None:
    buffer = accumulator(batch_records=1)
    acked(buffer, -1)
    batch = append(buffer, 0)
    append(buffer, 1)
    first, second = drain(buffer) + drain(buffer)
    answer = BatchAnswer(error=ErrorCode.INVALID_RECORD, record_errors={0: "no key"})
    assert buffer.answered(first, answer, now=0.0) is Verdict.FAILED
    assert isinstance(batch.outcome, Failed)
    assert str(batch.outcome.of_records[0]) == "INVALID_RECORD: no key"
    out_of_order = refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert buffer.answered(second, out_of_order, now=0.0) is Verdict.RETRY
    (again,) = drain(buffer, now=1.0)
    assert again.stamp == ((7, 1), 0)


def test_nothing_follows_the_first_batch_before_it_is_acked() -> None:
    """Else a leader that does not know the producer would take what follows for the first."""
    buffer = accumulator(batch_records=1)
    for number in range(3):
        append(buffer, number)
    (first,) = drain(buffer)
    assert drain(buffer) == []
    moved = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert buffer.answered(first, moved, now=0.0) is Verdict.RETRY
    (first,) = drain(buffer, now=1.0)
    assert drain(buffer, now=1.0) == []
    buffer.answered(first, BatchAnswer(base_offset=0), now=1.0)
    both = drain(buffer, now=1.0) + drain(buffer, now=1.0)
    assert [values(sent.batch) for sent in both] == [[1], [2]]


@pytest.mark.parametrize("last_is_written", [True, False])
def test_what_was_sent_behind_tells_whether_a_broker_has_forgotten_a_batch(
    *, last_is_written: bool
) -> None:
    """Three batches got no answer. A broker that was started again knows the last one that it has."""
    buffer, lost = accumulator(batch_records=1), refused(ErrorCode.NETWORK_EXCEPTION)
    acked(buffer, 0)
    batches = [append(buffer, number) for number in (1, 2, 3)]
    for sent in [sent for _ in batches for sent in drain(buffer)]:
        buffer.answered(sent, lost, now=0.0)
    out_of_order = refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for _ in batches[:2]:
        (sent,) = drain(buffer, now=1.0)
        assert buffer.answered(sent, out_of_order, now=1.0) is Verdict.ASK_BEHIND
    (last,) = drain(buffer, now=1.0)
    assert (last.batch, last.stamp) == (batches[2], ((7, 0), 3))
    if last_is_written:
        buffer.answered(last, BatchAnswer(base_offset=3), now=1.0)
        assert [each.outcome for each in batches] == [Acked(-1), Acked(-1), Acked(3)]
        append(buffer, 4)
        (following,) = drain(buffer, now=1.0)
        assert following.stamp == ((7, 0), 4)
    else:
        assert buffer.answered(last, out_of_order, now=1.0) is Verdict.BUMP_AND_RETRY
        (again,) = drain(buffer, now=2.0)
        assert (again.batch, again.stamp) == (batches[0], ((7, 1), 0))


def test_in_a_transaction_those_behind_a_refused_batch_move_up() -> None:
    buffer = accumulator(batch_records=1, transactional=True)
    append(buffer, 0)
    append(buffer, 1)
    first, second = drain(buffer) + drain(buffer)
    assert second.stamp == ((7, 0), 1)
    assert buffer.answered(first, refused(ErrorCode.INVALID_RECORD), now=0.0) is Verdict.FAILED
    out_of_order = refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert buffer.answered(second, out_of_order, now=0.0) is Verdict.RETRY
    (again,) = drain(buffer, now=1.0)
    assert again.stamp == ((7, 0), 0)
    assert decode_batch(again.batch.encoded(buffer.codec))[0].sequence == 0


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    buffer = accumulator(batch_records=3)
    for number in range(3):
        append(buffer, number)
    (sent,) = drain(buffer)
    assert buffer.answered(sent, refused(ErrorCode.MESSAGE_TOO_LARGE), now=0.0) is Verdict.SPLIT
    (first,) = drain(buffer)
    assert (values(first.batch), first.stamp.base_sequence) == ([0], 0)
    assert buffer.used == 3 * SIZE
    buffer.answered(first, BatchAnswer(base_offset=0), now=0.0)
    (second,) = drain(buffer)
    assert (values(second.batch), second.stamp.base_sequence) == ([1, 2], 1)
    assert sent.batch.outcome == InParts(((0, first.batch), (1, second.batch)))


def test_one_record_that_is_too_large_fails() -> None:
    buffer = accumulator()
    append(buffer, 0)
    (sent,) = drain(buffer)
    assert buffer.answered(sent, refused(ErrorCode.MESSAGE_TOO_LARGE), now=0.0) is Verdict.FAILED


def test_a_delivery_has_so_much_time() -> None:
    buffer = accumulator(delivery_timeout=10.0)
    waits = append(buffer, 0, partition=T0, now=0.0)
    travels = append(buffer, 1, partition=T1, now=1.0)
    (sent,) = buffer.drain({T1: 1}.get, lambda _: True, now=1.0).requests[1]
    assert buffer.expire(now=9.0) == []
    assert buffer.expire(now=10.0) == [waits]
    assert buffer.expire(now=11.0) == [travels]
    assert isinstance(travels.outcome, Failed)
    assert isinstance(travels.outcome.error, KafkaError)
    # Its answer still says which sequence comes next: there is no gap.
    assert buffer.answered(sent, BatchAnswer(base_offset=0), now=12.0) is Verdict.ACKED
    append(buffer, 2, partition=T1, now=12.0)
    (following,) = drain(buffer, now=12.0)
    assert following.stamp == ((7, 0), 1)


def test_after_a_batch_without_an_answer_the_epoch_goes_up() -> None:
    buffer = accumulator(delivery_timeout=10.0)
    append(buffer, 0)
    (sent,) = drain(buffer)
    buffer.expire(now=10.0)
    append(buffer, 1, now=10.0)
    lost = refused(ErrorCode.NETWORK_EXCEPTION)
    assert buffer.answered(sent, lost, now=11.0) is Verdict.FAILED
    (following,) = drain(buffer, now=11.0)
    assert following.stamp == ((7, 1), 0)


def test_when_epochs_run_out_another_producer_id_is_waited_for() -> None:
    buffer = accumulator(batch_records=1)
    buffer.identity = ProducerIdAndEpoch(7, 2**15 - 1)
    append(buffer, 0)
    append(buffer, 1)
    (sent,) = drain(buffer)
    buffer.answered(sent, refused(ErrorCode.INVALID_RECORD), now=0.0)
    assert drain(buffer, now=1.0) == []
    buffer.became(ProducerIdAndEpoch(8, 0))
    (again,) = drain(buffer, now=1.0)
    assert again.stamp == ((8, 0), 0)


def test_retries_are_counted() -> None:
    buffer = accumulator(retries=1)
    batch = append(buffer, 0)
    for now in (0.0, 1.0):
        (sent,) = drain(buffer, now=now)
        buffer.answered(sent, refused(ErrorCode.NOT_ENOUGH_REPLICAS), now=now)
    assert isinstance(batch.outcome, Failed)


def test_giving_up_fails_all_unacked_batches() -> None:
    buffer = accumulator(batch_records=1)
    sent_batch, waiting = append(buffer, 0), append(buffer, 1)
    drain(buffer)
    buffer.give_up(RuntimeError("closed"))
    assert isinstance(sent_batch.outcome, Failed)
    assert isinstance(waiting.outcome, Failed)
    assert (buffer.used, drain(buffer)) == (0, [])


def test_without_sequences_one_at_a_time_keeps_the_order() -> None:
    buffer = accumulator(batch_records=1, idempotent=False, one_at_a_time=True)
    append(buffer, 0)
    append(buffer, 1)
    (sent,) = drain(buffer)
    assert drain(buffer) == []
    assert sent.stamp.base_sequence == -1
    buffer.answered(sent, BatchAnswer(base_offset=0), now=0.0)
    assert [values(each.batch) for each in drain(buffer)] == [[1]]


# Whatever happens.


@attrs.define(eq=False)
class Cluster:
    """A producer, the brokers of two partitions, and a network between them that may be cut.

    What has been sent to a leader arrives in order; when the connection is cut, some of it has
    not arrived, and what has is answered in vain. A leader moves before the producer knows of it.
    """

    buffer: RecordAccumulator
    leaders: dict[TopicPartition, int] = attrs.field(factory=lambda: {T0: 1, T1: 2})
    known: dict[TopicPartition, int] = attrs.field(factory=lambda: {T0: 1, T1: 2})
    brokers: dict[TopicPartition, NaiveBroker] = attrs.field(
        factory=lambda: {T0: NaiveBroker(), T1: NaiveBroker()}
    )
    now: float = 0.0
    appended: int = 0
    batches: list[ProducerBatch] = attrs.field(factory=list)
    _sent: dict[int, deque[SentBatch]] = attrs.field(factory=lambda: {1: deque(), 2: deque()})
    _answers: dict[int, deque[tuple[SentBatch, BatchAnswer]]] = attrs.field(
        factory=lambda: {1: deque(), 2: deque()}
    )

    def append(self, partition: TopicPartition) -> None:
        batch = append(self.buffer, self.appended, partition=partition, now=self.now)
        self.appended += 1
        if batch not in self.batches:
            self.batches.append(batch)

    def send(self) -> None:
        def may_send_to(node: int) -> bool:
            return len(self._sent[node]) + len(self._answers[node]) < 5

        drained = self.buffer.drain(self.known.get, may_send_to, now=self.now)
        for node, request in drained.requests.items():
            self._sent[node].extend(request)

    def arrive(self, node: int, error: ErrorCode) -> None:
        """The broker takes the next one, or does not, or does and says that it has not."""
        if self._sent[node]:
            sent = self._sent[node].popleft()
            broker = self.brokers[sent.batch.partition]
            if self.leaders[sent.batch.partition] != node:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            # What was sent is what it was stamped with then; it may have another one by now.
            answer = BatchAnswer(error=error)
            if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                answered = broker.append(sent.stamp, values(sent.batch))
                answer = answered if error is ErrorCode.NONE else answer
            self._answers[node].append((sent, answer))

    def answer(self, node: int) -> None:
        if self._answers[node]:
            sent, answer = self._answers[node].popleft()
            self.buffer.answered(sent, answer, now=self.now)

    def cut(self, node: int) -> None:
        lost = [sent for sent, _ in self._answers[node]] + list(self._sent[node])
        self._answers[node].clear()
        self._sent[node].clear()
        for sent in lost:
            self.buffer.answered(sent, refused(ErrorCode.NETWORK_EXCEPTION), now=self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.buffer.expire(now=self.now)

    def settle(self) -> None:
        """Everything works again, until all has an outcome."""
        self.known.update(self.leaders)
        for _ in range(1000):
            if not any(each.waiting or each.sent for each in self.buffer._queues.values()):
                return
            self.wait(0.1)
            self.send()
            for node in self._sent:
                while self._sent[node] or self._answers[node]:
                    self.arrive(node, ErrorCode.NONE)
                    self.answer(node)
        raise AssertionError("not settled")

    def outcomes(self) -> dict[int, Acked | Failed]:
        """Return the outcome of each record, by its value."""
        found: dict[int, Acked | Failed] = {}
        todo = deque(self.batches)
        while todo:
            batch = todo.popleft()
            match batch.outcome:
                case InParts(parts):
                    todo.extend(part for _, part in parts)
                case Acked(base_offset):
                    for index, value in enumerate(values(batch)):
                        found[value] = Acked(base_offset + index if base_offset >= 0 else NO_OFFSET)
                case Failed() as failed:
                    found.update(dict.fromkeys(values(batch), failed))
                case None:
                    raise AssertionError("no outcome")
        return found


ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def happen(cluster: Cluster, chance: random.Random) -> None:
    """A story of some length, in which some things happen more often than others."""
    what = {
        "append": chance.randint(1, 6),
        "send": chance.randint(1, 6),
        "arrive": chance.randint(1, 6),
        "answer": chance.randint(1, 6),
        "fail": chance.randint(0, 2),
        "cut": chance.randint(0, 1),
        "wait": chance.randint(0, 3),
        "move": chance.randint(0, 1),
        "learn": chance.randint(0, 2),
        "restart": chance.randint(0, 1),
    }
    for broker in cluster.brokers.values():
        broker.most_records = chance.choice((1, 2, 3))
        broker.refuses_every = chance.choice((5, 1))
    for _ in range(chance.randint(1, 200)):
        node = chance.choice((1, 2))
        match chance.choices([*what], [*what.values()])[0]:
            case "append":
                cluster.append(chance.choice((T0, T0, T1)))
            case "send":
                cluster.send()
            case "arrive":
                cluster.arrive(node, ErrorCode.NONE)
            case "fail":
                cluster.arrive(node, chance.choice(ERRORS))
            case "answer":
                cluster.answer(node)
            case "cut":
                cluster.cut(node)
            case "move":
                cluster.leaders[chance.choice((T0, T1))] = node
            case "restart":
                cluster.brokers[chance.choice((T0, T1))].restart()
            case "learn":
                cluster.known.update(cluster.leaders)
            case _:
                cluster.wait(chance.choice((0.05, 0.2, 0.2, 3.0)))


@pytest.mark.parametrize("batch_records", [1, 3])
def test_each_record_is_there_once_and_in_order(batch_records: int) -> None:
    for seed in range(STORIES):
        cluster = Cluster(accumulator(batch_records=batch_records, delivery_timeout=4.0))
        happen(cluster, random.Random(seed))
        cluster.settle()
        check(cluster)
        last = cluster.appended
        for partition, broker in cluster.brokers.items():
            broker.refuses_every = 1
            cluster.append(partition)
        cluster.settle()
        outcomes = cluster.outcomes()
        assert all(isinstance(outcomes[last + each], Acked) for each in (0, 1)), "and it goes on"


def check(cluster: Cluster) -> None:
    outcomes = cluster.outcomes()
    assert sorted(outcomes) == list(range(cluster.appended))
    assert cluster.buffer.used == 0
    there: set[int] = set()
    for broker in cluster.brokers.values():
        assert len(set(broker.log)) == len(broker.log), "nothing is there twice"
        acked = [value for value in broker.log if isinstance(outcomes[value], Acked)]
        assert acked == sorted(acked), "in the order in which they were sent"
        for offset, value in enumerate(broker.log):
            is_right = outcomes[value] in (Acked(offset), Acked(NO_OFFSET))
            assert is_right or isinstance(outcomes[value], Failed)
        there.update(broker.log)
    assert {value for value, each in outcomes.items() if isinstance(each, Acked)} <= there
