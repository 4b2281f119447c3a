"""A batch that takes long to decode is decoded in a thread, and no other is."""

from collections.abc import Callable
from typing import TypeVar

import attrs
import pytest

from replication.client.consumer.errors import CorruptRecordsError
from storage.batch.allowance import BYTES_PER_STEP, STEPS
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record
from tests.replication.client.consumer.fetching import T0, Rig, batch_of, data, values

T = TypeVar("T")
INFLATED = BYTES_PER_STEP * STEPS


@attrs.define
class CountedOffload:
    """Runs what is offloaded, and counts it."""

    calls: int = 0

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.calls += 1
        return fn()


def small_records(count: int) -> bytes:
    return batch_of([Record(offset=each, value=b"v") for each in range(count)])


def bomb(first: int, size: int) -> bytes:
    return batch_of([Record(offset=first, value=bytes(size))], codec=Codec.GZIP)


def fetched(*batches: bytes, check_crcs: bool = True) -> Rig:
    rig = Rig(max_poll_records=100_000, check_crcs=check_crcs)
    rig.assign(T0)
    rig.seek(T0, 0)
    [sent] = rig.send()
    rig.answer(sent, {T0: data(*batches)})
    return rig


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(lambda: small_records(STEPS), id="as many records as are allowed"),
        pytest.param(lambda: bomb(0, INFLATED // 2), id="half a megabyte"),
    ],
)
async def test_a_short_batch_is_decoded_at_once(batch: Callable[[], bytes]) -> None:
    rig, offload = fetched(batch()), CountedOffload()
    assert len(rig.collect()[T0]) in (1, STEPS)
    assert not await rig.collector.read_long_batch(offload)
    assert offload.calls == 0


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        pytest.param(
            lambda: small_records(STEPS + 1), STEPS + 1, id="one record more than is allowed"
        ),
        pytest.param(lambda: bomb(0, 64 * INFLATED), 1, id="64 megabytes in 64 kilobytes"),
    ],
)
async def test_a_long_batch_waits_for_a_thread(batch: Callable[[], bytes], count: int) -> None:
    rig, offload = fetched(batch()), CountedOffload()
    assert rig.collect() == {}, "nothing is decoded on the loop"
    assert rig.position(T0) == 0
    assert await rig.collector.read_long_batch(offload)
    assert len(rig.collect()[T0]) == count
    assert offload.calls == 1
    assert rig.position(T0) == count


async def test_records_before_a_long_batch_are_handed_over_first_and_those_behind_it_after() -> (
    None
):
    rig, offload = fetched(values(0, 2), bomb(3, 2 * INFLATED), values(4, 5)), CountedOffload()
    assert rig.collect() == {T0: [0, 1, 2]}
    assert rig.collect() == {}
    assert await rig.collector.read_long_batch(offload)
    assert rig.collect() == {T0: [3, 4, 5]}
    assert offload.calls == 1


async def test_a_long_batch_that_cannot_be_read_is_raised_by_the_next_pass() -> None:
    batch = small_records(STEPS + 1)
    zeros = batch[:HEADER_SIZE] + bytes(len(batch) - HEADER_SIZE)
    rig = fetched(zeros, check_crcs=False)
    assert rig.collect() == {}
    assert await rig.collector.read_long_batch(CountedOffload())
    for _ in range(2):
        with pytest.raises(CorruptRecordsError):
            rig.collect()


async def test_a_long_batch_is_dropped_if_the_partition_was_given_up_meanwhile() -> None:
    rig = fetched(bomb(0, 2 * INFLATED))
    assert rig.collect() == {}

    async def given_up(fn: Callable[[], T], /) -> T:
        rig.buffer.retain_all(frozenset())
        return fn()

    assert await rig.collector.read_long_batch(given_up)
    assert rig.collect() == {}


# As columns.


def columns_of(rig: Rig) -> list[bytes]:
    """Return the values that one pass takes as columns."""
    taken = rig.collector.collect(take=lambda fetch, _: fetch.take_columns(["offset", "value"]))
    batches = taken.records.get(T0, [])
    return [value for each in batches for value in each.column("value").to_pylist()]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        pytest.param(small_records(STEPS + 1), STEPS + 1, id="one record more than is allowed"),
        pytest.param(bomb(0, 64 * INFLATED), 1, id="64 megabytes in 64 kilobytes"),
    ],
)
async def test_many_columns_wait_for_a_thread(batch: bytes, count: int) -> None:
    rig, offload = fetched(batch), CountedOffload()
    assert columns_of(rig) == [], "nothing is decoded on the loop"
    assert rig.position(T0) == 0
    assert await rig.collector.read_long_batch(offload)
    assert len(columns_of(rig)) == count
    assert (offload.calls, rig.position(T0)) == (1, count)
    assert not await rig.collector.read_long_batch(offload)


async def test_what_was_decoded_as_columns_may_be_taken_otherwise_after_all() -> None:
    batch = small_records(STEPS + 1)
    rig, offload = fetched(batch), CountedOffload()
    assert columns_of(rig) == []
    assert await rig.collector.read_long_batch(offload)
    assert rig.collect() == {}, "as records they are long, too"
    assert await rig.collector.read_long_batch(offload)
    assert len(rig.collect()[T0]) == STEPS + 1
    assert rig.position(T0) == STEPS + 1


async def test_long_columns_of_a_damaged_batch_are_raised_by_the_next_pass() -> None:
    damaged = bytearray(bomb(0, 2 * INFLATED))
    damaged[HEADER_SIZE] ^= 1
    rig, offload = fetched(bytes(damaged)), CountedOffload()
    assert columns_of(rig) == []
    assert await rig.collector.read_long_batch(offload)
    with pytest.raises(CorruptRecordsError):
        columns_of(rig)
    assert rig.position(T0) == 0


async def test_a_few_columns_are_decoded_at_once() -> None:
    rig, offload = fetched(small_records(STEPS)), CountedOffload()
    assert len(columns_of(rig)) == STEPS
    assert not await rig.collector.read_long_batch(offload)
