"""Records that are sent together: the same as if they had been sent one by one."""

import pytest
import trio
from hypothesis import given, settings, strategies as st

from replication.client.errors import RecordTooLargeError
from replication.client.producer.batch import RecordRun, record_size
from replication.errors import ErrorCode, KafkaError
from scenarios.world.world import World
from storage.batch.records import Record, RecordFields
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import Scene, now, played, scene


@played
async def test_records_are_written_in_order_and_each_has_its_delivery(world: World) -> None:
    async with scene(world) as stage, stage.producer(batch_size=300) as producer:
        await producer.send("t", b"first")
        deliveries = await producer.send_many("t", [b"%d" % each for each in range(100)])
        assert len(deliveries) == 100
        assert [each.offset for each in await deliveries.wait()] == list(range(1, 101))
        assert [(await each.wait()).offset for each in deliveries] == list(range(1, 101))
        assert await stage.values() == ["first", *map(str, range(100))]


@played
async def test_records_share_a_batch_with_those_sent_before_and_after(world: World) -> None:
    async with scene(world) as stage, stage.producer(linger_ms=1000) as producer:
        before = await producer.send_soon("t", b"a")
        await producer.send_many("t", [b"b", b"c"])
        after = await producer.send_soon("t", b"d")
        await producer.flush()
        assert ((await before.wait()).offset, (await after.wait()).offset) == (0, 3)
        assert await stage.values() == ["a", "b", "c", "d"]


@played
async def test_keys_have_their_partition(world: World) -> None:
    async with scene(world, replicas=((1,), (1,))) as stage, stage.producer() as producer:
        keys = [b"%d" % each for each in range(20)]
        alone = [await producer.send("t", b"alone", key) for key in keys]
        together = await (await producer.send_many("t", [b"x"] * 20, keys=keys)).wait()
        assert [each.partition for each in together] == [each.partition for each in alone]
        assert {each.partition for each in together} == {0, 1}


@played
async def test_keys_and_values_must_be_equally_many(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        with pytest.raises(ValueError, match="argument 2 is longer"):
            await producer.send_many("t", [b"x"] * 3, keys=[b"k"])
        assert len(await producer.send_many("t", [])) == 0


@played
async def test_a_record_that_is_too_large_is_refused_before_any_is_sent(world: World) -> None:
    async with scene(world) as stage, stage.producer(max_request_size=500) as producer:
        with pytest.raises(RecordTooLargeError, match=r"513 bytes where max\.request\.size"):
            await producer.send_many("t", [b"small", b"x" * 500])
        await producer.send("t", b"sound")
        assert await stage.values() == ["sound"]


@played_in(scene)
async def test_records_wait_for_room_and_take_no_more_than_there_is(
    stage: Scene, world: World
) -> None:
    config = {"buffer_memory": 2000, "batch_size": 1000, "max_request_size": 1000}
    async with stage.producer(linger_ms=5000, **config) as producer:
        began, most = now(world), 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, producer._accumulator.used)
                await world.clock("producer").sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await producer.send_many("t", [b"%0100d" % each for each in range(40)])
            nursery.cancel_scope.cancel()
        assert now(world) - began < 2, "nothing lingers where room is short"
        assert 1000 < most <= 2000
    assert await stage.values() == [f"{each:0100d}" for each in range(40)]


@played
async def test_a_refusal_of_a_broker_is_raised_by_wait(world: World) -> None:
    topic = {"message.timestamp.after.max.ms": "1000"}
    async with scene(world, topic=topic) as stage, stage.producer() as producer:
        sound = await producer.send_many("t", [b"sound"] * 2)
        await producer.flush()
        broken = await producer.send_many("t", [b"late"] * 2, timestamp_ms=2**60)
        assert len(await sound.wait()) == 2
        with pytest.raises(KafkaError) as caught:
            await broken.wait()
        assert caught.value.code is ErrorCode.INVALID_RECORD


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(0, 60), max_size=30), rooms=st.lists(st.integers(0, 300)))
def test_a_run_is_taken_in_order_and_within_the_room_there_is(
    sizes: list[int], rooms: list[int]
) -> None:
    records = [Record(value=bytes(size)) for size in sizes]
    run, taken = RecordRun(records), list[RecordFields]()
    for room in (*rooms, 10**6):
        if run.is_done:
            break
        some, size = run.take(room)
        assert size == sum(record_size(None, Record(*each).value, ()) for each in some)
        assert size <= room or len(some) == 1
        taken += some
        if len(taken) < len(records):
            assert size + run.next_size > room, "what fits is taken"
    assert taken == records
