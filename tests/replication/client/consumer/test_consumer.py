"""A consumer that is in no group, against the real brokers of a simulated world."""

import pytest
import trio

from replication.client.consumer import (
    ConsumerInterceptor,
    ConsumerRecord,
    ConsumerRecords,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from replication.client.errors import IllegalStateError, KafkaTimeoutError, WakeupError
from replication.errors import ConfigError
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene, now, play, played, scene

T1 = TopicPartition("t", 1)
TWO = ((1,), (1,))


def values(records: ConsumerRecords) -> list[bytes]:
    return [record.value for record in records]


@played_in(scene)
async def test_records_are_read_one_by_one_or_in_polls(stage: Scene, world: World) -> None:
    await stage.produce(*"abcde")
    async with stage.consumer(max_poll_records=2) as consumer:
        consumer.assign([T0])
        read = []
        async for record in consumer:
            assert await consumer.position(T0) == record.offset + 1
            read.append(record.value)
            if len(read) == 2:
                break
        assert read == [b"a", b"b"]
        assert values(await consumer.poll(timeout_ms=1000)) == [b"c", b"d"]
        assert values(await consumer.poll(timeout_ms=1000)) == [b"e"]
        began = now(world)
        assert not await consumer.poll(timeout_ms=1000)
        assert now(world) - began == pytest.approx(1, abs=0.1)
        assert not await consumer.poll()
        assert consumer.highwater(T0) == 5
        assert consumer.current_lag(T0) == 0


@played
async def test_records_written_while_a_consumer_waits_are_read_at_once(world: World) -> None:
    async with scene(world) as stage, stage.consumer() as consumer:
        consumer.assign([T0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.produce, "late")
            record = await consumer.getone()
        assert (record.value, record.offset) == (b"late", 0)
        assert now(world) < 30


@played_in(scene)
async def test_the_next_fetch_is_under_way_while_records_are_dealt_with(
    stage: Scene, world: World
) -> None:
    await stage.produce(*"abcd")
    async with stage.consumer(max_partition_fetch_bytes=80) as consumer:
        consumer.assign([T0])
        assert len(await consumer.poll(timeout_ms=5000)) == 1
        await world.clock("consumer").sleep(1)
        began = now(world)
        assert len(await consumer.poll(timeout_ms=5000)) == 1
        assert now(world) == began, "it was here already"


@played_in(scene, replicas=TWO)
async def test_where_to_begin(stage: Scene) -> None:
    await stage.produce(*"abc")
    async with stage.consumer(auto_offset_reset="latest") as consumer:
        consumer.assign([T0, T1])
        assert await consumer.position(T0) == 3
        assert await consumer.position(("t", 1)) == 0
        consumer.seek(T0, 1)
        assert values(await consumer.poll(timeout_ms=1000)) == [b"b", b"c"]
        consumer.seek_to_beginning(T0)
        assert (await consumer.getone()).offset == 0
        consumer.seek_to_end()
        assert await consumer.position(T0) == 3
        consumer.seek(T0, OffsetAndMetadata(2, leader_epoch=0))
        assert (await consumer.getone()).offset == 2
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.poll(timeout_ms=1000)
        consumer.seek(T0, 99)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await consumer.poll(timeout_ms=1000)
        assert raised.value.offsets == {T0: 99}
    async with stage.consumer(auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([T0])
        assert await consumer.position(T0) == 0


@played_in(scene, replicas=TWO)
async def test_offsets_of_beginnings_ends_and_times(stage: Scene) -> None:
    async with stage.producer() as producer:
        for at in (1000, 2000, 3000):
            await producer.send("t", b"x", partition=0, timestamp_ms=at)
    async with stage.consumer(allow_auto_create_topics=False) as consumer:
        assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
        assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 0}
        found = await consumer.offsets_for_times({T0: 1500, T1: 0})
        assert found == {T0: OffsetAndTimestamp(1, 2000, leader_epoch=0), T1: None}
        assert await consumer.offsets_for_times({T0: 9999}) == {T0: None}
        assert await consumer.partitions_for("t") == [T0, T1]
        assert await consumer.partitions_for("nowhere", timeout_ms=500) == []
        with pytest.raises(KafkaTimeoutError, match="no offsets of nowhere-0"):
            await consumer.end_offsets([("nowhere", 0)], timeout_ms=500)
        assert await consumer.end_offsets([("nowhere", 0)], timeout_ms=0) == {}
        with pytest.raises(IllegalStateError, match="before time began"):
            await consumer.offsets_for_times({T0: -1})


@played_in(scene, replicas=TWO)
async def test_paused_partitions_and_chosen_ones(stage: Scene) -> None:
    await stage.produce("a", "b", partition=0)
    await stage.produce("c", partition=1)
    async with stage.consumer() as consumer:
        consumer.assign([T0, T1])
        consumer.pause(T0)
        assert consumer.paused() == {T0}
        assert (await consumer.getone()).value == b"c"
        assert not await consumer.poll(timeout_ms=500)
        consumer.resume(T0)
        assert (await consumer.getone(T0)).value == b"a"
        found = await consumer.getmany(T0, timeout_ms=1000)
        assert [record.value for record in found[T0]] == [b"b"]
        assert await consumer.getmany(T1, timeout_ms=100) == {}


@played
async def test_a_wakeup_ends_one_wait_and_loses_nothing(world: World) -> None:
    async with scene(world) as stage, stage.consumer() as consumer:
        consumer.assign([T0])
        async with trio.open_nursery() as nursery:

            async def soon() -> None:
                await world.clock("consumer").sleep(1)
                consumer.wakeup()

            nursery.start_soon(soon)
            began = now(world)
            with pytest.raises(WakeupError):
                await consumer.poll(timeout_ms=60_000)
            assert now(world) - began == pytest.approx(1, abs=0.1)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await consumer.poll()
        await stage.produce("a")
        assert (await consumer.getone()).value == b"a"


@played
async def test_one_task_waits_for_records_while_another_queries(world: World) -> None:
    async with scene(world, replicas=TWO) as stage, stage.consumer() as consumer:
        consumer.assign([T0, T1])
        found: list[bytes] = []

        async def read() -> None:
            found.append((await consumer.getone()).value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for _ in range(5):
                assert await consumer.position(T1) == 0
                assert await consumer.end_offsets([T0]) == {T0: 0}
                await world.clock("consumer").sleep(0.3)
            began = now(world)
            await stage.produce("a")
        assert found == [b"a"]
        assert now(world) - began < 1, "what the other asked has not put it to sleep"


@played
async def test_cancelled_at_any_checkpoint_no_record_is_lost(world: World) -> None:
    """Polls are cut off at every moment of their way; what is handed over has no gap."""
    chance = world.chance("cancel")
    async with scene(world, replicas=TWO) as stage, stage.consumer() as consumer:
        consumer.assign([T0, T1])
        read: dict[int, list[int]] = {0: [], 1: []}
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                async with stage.producer() as producer:
                    for each in range(80):
                        await producer.send("t", b"%d" % each, partition=each % 2)

            nursery.start_soon(write)
            while sum(map(len, read.values())) < 80:
                with world.clock("consumer").move_on_after(chance.random() * 0.01):
                    if chance.random() < 0.5:
                        record = await consumer.getone()
                        read[record.partition].append(record.offset)
                    else:
                        for record in await consumer.poll(timeout_ms=5, max_records=3):
                            read[record.partition].append(record.offset)
        assert read == {0: list(range(40)), 1: list(range(40))}


@played_in(scene, brokers=3, replicas=((1, 2, 3),), min_insync_replicas="2")
async def test_a_leader_that_is_killed_while_it_is_read(stage: Scene) -> None:
    await stage.produce(*(str(each) for each in range(5)), acks="all")
    async with stage.consumer(max_poll_records=2) as consumer:
        consumer.assign([T0])
        read = [(await consumer.getone()).value for _ in range(3)]
        await stage.cluster.kill(stage.leader())
        await stage.produce(*(str(each) for each in range(5, 10)), acks="all")
        while len(read) < 10:
            read += values(await consumer.poll(timeout_ms=1000))
        assert read == [b"%d" % each for each in range(10)]
        position = await consumer.position(T0)
        assert position == 10


@pytest.mark.parametrize("policy", ["earliest", "none"])
@played_in(scene, brokers=2, replicas=((1, 2),), topic={"unclean.leader.election.enable": "true"})
async def test_a_log_that_lost_read_records_is_detected(stage: Scene, policy: str) -> None:
    """KIP-320: b2 missed three records and leads all the same; the reader had gone past them."""
    await stage.produce("a", "b", acks="all")
    async with stage.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        leader = stage.leader()
        other = "b2" if leader == "b1" else "b1"
        await stage.cluster.kill(other)
        await stage.produce("c", "d", "e", acks="1")
        read = [(await consumer.getone()).value for _ in range(5)]
        assert read == [b"a", b"b", b"c", b"d", b"e"]
        await stage.cluster.kill(leader)
        await stage.cluster.start(other)
        await stage.produce("f", acks="1")
        if policy == "earliest":
            record = await consumer.getone()
            assert (record.value, record.offset) == (b"f", 2), "read on where they part"
            return
        with pytest.raises(LogTruncationError) as raised:
            await consumer.getone()
        assert raised.value.offsets == {T0: 5}
        assert raised.value.divergent_offsets[T0].offset == 2
        consumer.seek(T0, 2)
        assert (await consumer.getone()).value == b"f"


@played_in(scene)
async def test_a_cluster_that_is_away_for_a_while_is_waited_for(stage: Scene) -> None:
    await stage.produce("a")
    await stage.cluster.kill("b1")
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        assert not await consumer.poll(timeout_ms=5_000)
        with pytest.raises(KafkaTimeoutError):
            await consumer.position(T0, timeout_ms=2_000)
        with pytest.raises(KafkaTimeoutError):
            await consumer.end_offsets([T0], timeout_ms=2_000)
        await stage.cluster.start("b1")
        assert (await consumer.getone()).value == b"a"


@played_in(
    scene,
    brokers=2,
    replicas=((1, 2),),
    replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
    b1_broker_rack="r1",
    b2_broker_rack="r2",
)
async def test_a_consumer_in_a_rack_reads_from_the_replica_in_it(stage: Scene) -> None:
    await stage.produce("a", acks="all")
    leader = stage.cluster.leader(T0)
    other = "r2" if leader == "b1" else "r1"
    async with stage.consumer(client_rack=other) as consumer:
        consumer.assign([T0])
        assert (await consumer.getone()).value == b"a"
        await stage.produce("b", acks="all")
        assert (await consumer.getone()).value == b"b"
        numbers = {name.name: value for name, value in consumer.metrics().items()}
        assert f"b{numbers['preferred-read-replica']:.0f}" not in (leader, "b-1")


def test_deserialisers_interceptors_and_their_mistakes() -> None:
    class Second(ConsumerInterceptor):
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            raise ValueError("mine alone")

    seen: list[ConsumerRecord] = []

    class First(ConsumerInterceptor):
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            seen.extend(records)
            return records

    async def story(world: World) -> None:
        async with scene(world) as stage:
            await stage.produce("1", "two", "3")
            async with stage.consumer(
                value_deserializer=int, interceptors=[First(), Second()]
            ) as consumer:
                consumer.assign([T0])
                assert [record.value for record in await consumer.poll(1000)] == [1]
                for _ in range(2):
                    with pytest.raises(RecordDeserializationError) as raised:
                        await consumer.poll(timeout_ms=1000)
                    assert raised.value.offset == 1
                consumer.seek(T0, 2)
                assert (await consumer.getone()).value == 3
        assert [record.value for record in seen] == [1, 3]

    play(story)


@played_in(scene)
async def test_a_call_that_is_not_allowed_raises_an_error(stage: Scene) -> None:
    consumer = stage.consumer()
    with pytest.raises(IllegalStateError, match="inside `async with`"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(IllegalStateError, match="subscribe to topics or assign"):
            await consumer.poll()
        with pytest.raises(IllegalStateError, match=r"needs a group\.id"):
            consumer.subscribe(["t"])
        consumer.assign([T0])
        with pytest.raises(IllegalStateError, match="no current assignment"):
            consumer.seek(T1, 0)
        with pytest.raises(IllegalStateError, match="at least 0"):
            consumer.seek(T0, -1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll, 1000)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(IllegalStateError, match="another task"):
                await consumer.poll()
    with pytest.raises(IllegalStateError, match="opened once"):
        async with consumer:
            pass
    with pytest.raises(TypeError, match="give a list"):
        stage.consumer(group_id="g").subscribe("t")
    for wrong in (
        {"auto_offset_reset": "sometime"},
        {"enable_auto_commit": True},
        {"group_id": ""},
        {"group_id": "g", "heartbeat_interval_ms": 50_000},
        {"isolation_level": "dirty"},
        {"max_poll_records": 0},
    ):
        with pytest.raises(ConfigError):
            stage.consumer(**wrong)


@played_in(scene)
async def test_an_error_of_the_block_is_raised_alone(stage: Scene) -> None:

    async def fails() -> None:
        async with stage.consumer() as consumer:
            consumer.assign([T0])
            await consumer.poll(timeout_ms=100)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fails()
