"""What goes the short way is where the long way would have put it."""

import random

import pytest

from replication.client.cluster_view import ClusterView
from replication.client.producer.accumulator import RecordAccumulator
from replication.client.producer.appending import Filling
from replication.client.producer.batch import Failed, ProducerBatch, record_size
from replication.client.producer.destinations import Destination, StickyPartitioner
from storage.batch.record_batch import NO_SEQUENCE
from storage.batch.records import Record, RecordFields
from storage.types import NO_OFFSET, TopicPartition
from tests.replication.client.producer.test_accumulator import SIZE, T0, accumulator

VALUE = b"value"


def destination(buffer: RecordAccumulator) -> Destination:
    sticky = StickyPartitioner(buffer.batch_size, lambda _: 0)
    sticky.choose(lambda: [(0, 0)])
    return Destination("t", sticky, (T0,), view_version=0)


def the_long_way(
    buffer: RecordAccumulator, to: Destination, value: bytes | None
) -> tuple[ProducerBatch, int]:
    size = record_size(None, value, ())
    record = Record(NO_OFFSET, 1, None, value, (), NO_SEQUENCE)
    chosen = TopicPartition("t", to.sticky.choose(lambda: [(0, 0)]))
    batch, index = buffer.append(chosen, record, size, now=lambda: 0.0)
    to.sticky.appended(size, batch_is_full=batch.is_closed)
    return batch, index


def filling(buffer: RecordAccumulator, to: Destination, *, largest: int = 2**20) -> Filling:
    made = Filling(buffer, ClusterView(), largest)
    made.fill(to, the_long_way(buffer, to, VALUE)[0])
    made.view.version = to.view_version
    return made


def outcome_of(buffer: RecordAccumulator) -> list[tuple[int, bool, list[RecordFields]]]:
    return [(each.size, each.is_closed, each.records) for each in buffer.unfinished()]


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_the_same_as_by_the_long_way(seed: int) -> None:
    draw = random.Random(seed)
    values = [None, *(bytes(draw.randrange(40)) for _ in range(60))]
    ours, naive = (accumulator(batch_records=draw.randrange(2, 9)) for _ in range(2))
    naive.batch_size = ours.batch_size
    to, naively_to = destination(ours), destination(naive)
    short = filling(ours, to)
    the_long_way(naive, naively_to, VALUE)
    went_short = 0
    for value in values:
        delivery = short.append("t", 1, value)
        if delivery is None:
            short.fill(to, the_long_way(ours, to, value)[0])
        went_short += delivery is not None
        the_long_way(naive, naively_to, value)
    assert outcome_of(ours) == outcome_of(naive)
    assert (ours.used, to.sticky.partition) == (naive.used, naively_to.sticky.partition)
    assert went_short


def test_nothing_goes_into_a_batch_that_is_closed_or_given_up() -> None:
    buffer = accumulator()
    to = destination(buffer)
    short = filling(buffer, to)
    (batch,) = buffer.unfinished()
    buffer.give_up(OSError("the producer was closed"))
    assert isinstance(batch.outcome, Failed)
    assert short.append("t", 1, VALUE) is None


def test_a_change_of_destination_ends_the_short_way() -> None:
    for change in ("topic", "news", "partition", "room", "waiting"):
        buffer = accumulator(batch_records=10, buffer_records=2 if change == "room" else 100)
        to = destination(buffer)
        short = filling(buffer, to)
        assert short.append("t", 1, VALUE) is not None, change
        short.view.version += change == "news"
        buffer.waiting_for_room += change == "waiting"
        if change == "partition":
            to.sticky.partition = None
        topic = "another" if change == "topic" else "t"
        assert short.append(topic, 1, VALUE) is None, change


def test_a_record_that_is_too_large_goes_the_way_that_says_so() -> None:
    buffer = accumulator(batch_records=10)
    short = filling(buffer, destination(buffer), largest=SIZE)
    assert short.append("t", 1, VALUE) is not None
    assert short.append("t", 1, VALUE + b"s") is None
