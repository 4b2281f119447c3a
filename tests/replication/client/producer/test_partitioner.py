"""Records of one key stay together, and where every other client puts them."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from replication.client.producer.destinations import (
    StickyPartitioner,
    draw_partition,
    murmur2,
    partition_of_key,
)


@pytest.mark.parametrize(
    ("data", "signed"),
    # Of Kafka's own UtilsTest.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@given(st.binary(max_size=40))
def test_the_hash_is_that_of_another_client(data: bytes) -> None:
    assert murmur2(data) == murmur2_of_kafka_python(data) % 2**32


def test_a_key_has_one_partition() -> None:
    assert {partition_of_key(b"foobar", 7) for _ in range(3)} == {(-790332482 & 0x7FFFFFFF) % 7}


def test_without_a_key_a_partition_is_stayed_with_until_its_batch_is_full() -> None:
    drawn = iter((0, 2, 1))
    sticky = StickyPartitioner(batch_bytes=100, draw=lambda _: next(drawn))
    waiting = [(0, 0), (1, 0), (2, 0)]
    chosen = []
    for _ in range(6):
        chosen.append(sticky.choose(lambda: waiting))
        sticky.appended(50, batch_is_full=True)
    assert chosen == [0, 0, 2, 2, 1, 1]


def test_a_batch_that_is_not_full_is_stayed_with_twice_as_long() -> None:
    drawn = iter((0, 1))
    sticky = StickyPartitioner(batch_bytes=100, draw=lambda _: next(drawn))
    chosen = []
    for _ in range(5):
        chosen.append(sticky.choose(lambda: [(0, 0), (1, 0)]))
        sticky.appended(50, batch_is_full=False)
    assert chosen == [0, 0, 0, 0, 1]


def test_the_less_waits_for_a_partition_the_likelier_it_is() -> None:
    # Queues of 0, 3 and 1 batches weigh 4, 1 and 3.
    numbers = iter(range(8))

    def draw(below: int) -> int:
        assert below == 8
        return next(numbers)

    chosen = Counter(draw_partition([(0, 0), (1, 3), (2, 1)], draw) for _ in range(8))
    assert chosen == {0: 4, 1: 1, 2: 3}
