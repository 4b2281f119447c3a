"""A producer against the real brokers of a simulated world, on virtual time."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import trio

from replication.client.admin import Admin
from replication.client.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from replication.client.producer import Producer
from replication.client.producer.config import ProducerConfig
from replication.errors import ConfigError, ErrorCode, KafkaError, PeerUnavailableError
from scenarios.world.world import World
from storage.batch.record_batch import TimestampType
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene, now, play, played, scene

SENT = 120


@played
async def test_a_record_is_acked_with_its_place_and_time(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        first = await producer.send("t", b"one", key=b"k", headers=[("h", b"x")])
        second = await producer.send("t", b"two", timestamp_ms=1234)
        assert (first.topic_partition, first.offset, second.offset) == (T0, 0, 1)
        assert (second.timestamp, second.timestamp_type) == (1234, TimestampType.CREATE_TIME)
        clock = world.clock("producer")
        assert 0 < clock.wall_ms() - first.timestamp < 1000
        assert await stage.values() == ["one", "two"]


@played
async def test_the_log_append_time_is_returned_if_the_topic_uses_it(world: World) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    async with scene(world, topic=configs) as stage, stage.producer() as producer:
        metadata = await producer.send("t", b"one", timestamp_ms=1234)
        assert metadata.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert metadata.timestamp > 1234


class _Turns(trio.abc.Instrument):
    """The number of steps of each task of a client."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("replication.client."):
            self.of[task.name.rpartition(".")[2]] += 1


def test_a_record_that_is_acked_costs_few_turns_of_tasks() -> None:
    turns = _Turns()

    async def story(world: World) -> None:
        async with scene(world) as stage, stage.producer(linger_ms=0) as producer:
            await producer.send("t", b"opens connections")
            trio.lowlevel.add_instrument(turns)
            for _ in range(20):
                await producer.send("t", b"one")
            trio.lowlevel.remove_instrument(turns)

    play(story)
    # One batches, one writes and one reads; the simulated network takes the writer one more.
    assert turns.of["run"] <= 21
    assert turns.of["_until_lost"] <= 3 * 20 + 1


@played_in(scene)
async def test_records_sent_soon_go_out_in_one_batch(stage: Scene, world: World) -> None:
    async with stage.producer(linger_ms=1000) as producer:
        began = now(world)
        deliveries = [await producer.send_soon("t", b"%d" % each) for each in range(100)]
        assert now(world) - began < 1, "nobody waits for the broker"
        assert not any(each.done for each in deliveries)
        await producer.flush()
        assert all(each.done for each in deliveries)
        assert [(await each.wait()).offset for each in deliveries] == list(range(100))
    batches = stage.cluster.brokers["b1"].replica_manager
    assert batches is not None
    assert await stage.values() == [str(each) for each in range(100)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@played_in(scene)
async def test_batches_are_compressed(stage: Scene, codec: str) -> None:
    async with stage.producer(compression_type=codec) as producer:
        for _ in range(50):
            await producer.send_soon("t", b"again and again")
    assert await stage.values() == ["again and again"] * 50


@played_in(scene)
async def test_acks_0_says_no_place(stage: Scene) -> None:
    async with stage.producer(acks="0") as producer:
        assert (await producer.send("t", b"one")).offset == -1
    await stage.cluster.clock.sleep(1)
    assert await stage.values() == ["one"]


@played_in(scene, replicas=((1,),) * 4)
async def test_keys_have_their_partition_and_the_rest_take_turns(stage: Scene) -> None:
    async with stage.producer(batch_size=200) as producer:
        keyed = {(await producer.send("t", b"x", key=b"foobar")).partition for _ in "abc"}
        assert keyed == {(-790332482 & 0x7FFFFFFF) % 4}
        deliveries = [await producer.send_soon("t", b"x" * 50) for _ in range(60)]
        await producer.flush()
        chosen = [(await each.wait()).partition for each in deliveries]
    changes = sum(one != other for one, other in pairwise(chosen))
    assert set(chosen) == {0, 1, 2, 3}
    assert changes <= 30, "a partition is stayed with for a batch"
    assert (await _sent_to(stage, partition=2)) == 2


async def _sent_to(stage: Scene, *, partition: int) -> int:
    async with stage.producer() as producer:
        return (await producer.send("t", b"x", key=b"foobar", partition=partition)).partition


@played
async def test_a_partitioner_of_the_users_own(world: World) -> None:
    async with scene(world, replicas=((1,),) * 3):
        producer: Producer[str, str] = Producer(
            "b1:9092",
            seams=world.node("producer"),
            key_serializer=str.encode,
            value_serializer=str.encode,
            partitioner=lambda key, _, led: led[len(key or b"")],
        )
        async with producer:
            assert (await producer.send("t", "value", key="xx")).partition == 2


@played
async def test_a_topic_that_is_not_there_is_made_where_brokers_make_topics(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        assert (await producer.send("fresh", b"one")).offset == 0


@played
async def test_a_topic_that_is_never_created_is_waited_for_up_to_max_block(world: World) -> None:
    async with (
        scene(world, auto_create_topics_enable="false") as stage,
        stage.producer(max_block_ms=3000) as producer,
    ):
        began = now(world)
        with pytest.raises(KafkaTimeoutError, match="topic nowhere was not known"):
            await producer.send("nowhere", b"one")
        assert 3.0 <= now(world) - began < 3.1
        with pytest.raises(InvalidTopicError):
            await producer.send("no/topic", b"one")


@played_in(scene)
async def test_a_sender_without_room_waits(stage: Scene, world: World) -> None:
    config = {"buffer_memory": 2000, "batch_size": 1000, "max_request_size": 1000}
    async with stage.producer(linger_ms=5000, **config) as producer:
        began = now(world)
        for each in range(40):
            await producer.send_soon("t", b"%0100d" % each)
        assert now(world) - began < 2, "nothing lingers where room is short"
    assert await stage.values() == [f"{each:0100d}" for each in range(40)]


@played_in(scene)
async def test_no_room_is_waited_for_so_long(stage: Scene) -> None:
    config = {"buffer_memory": 300, "max_block_ms": 2000, "max_request_size": 300}
    async with stage.producer(delivery_timeout_ms=60_000, **config) as producer:
        await producer.send("t", b"x")
        await stage.cluster.kill("b1")
        await producer.send_soon("t", b"x" * 200)
        with pytest.raises(KafkaTimeoutError, match="no room for 213 bytes within 2000 ms"):
            await producer.send_soon("t", b"x" * 200)
        await stage.cluster.start("b1")


@played
async def test_order_and_uniqueness_survive_killed_leaders(world: World) -> None:
    replicas = ((1, 2, 3),)
    async with scene(world, brokers=3, replicas=replicas, min_insync_replicas="2") as stage:
        async with (
            stage.producer(batch_size=100, linger_ms=0) as producer,
            trio.open_nursery() as nursery,
        ):
            sent: list[Any] = []

            async def send() -> None:
                for each in range(SENT):
                    sent.append(await producer.send_soon("t", b"%d" % each))
                    await stage.cluster.clock.sleep(0.08)

            nursery.start_soon(send)
            for _ in range(2):
                await stage.cluster.clock.sleep(3)
                leader = stage.leader()
                await stage.cluster.kill(leader)
                await stage.cluster.clock.sleep(1)
                await stage.cluster.start(leader)
        assert [(await each.wait()).offset for each in sent] == list(range(SENT))
        assert await stage.values() == [str(each) for each in range(SENT)]


@played_in(scene)
async def test_a_producer_that_is_there_before_the_brokers_waits_for_them(stage: Scene) -> None:
    await stage.cluster.kill("b1")
    async with stage.producer() as producer, trio.open_nursery() as nursery:
        nursery.start_soon(producer.send, "t", b"one")
        await stage.cluster.clock.sleep(20)
        await stage.cluster.start("b1")
    assert await stage.values() == ["one"]


@played_in(scene)
async def test_a_delivery_that_takes_too_long_fails(stage: Scene, world: World) -> None:
    async with stage.producer(
        delivery_timeout_ms=5000, request_timeout_ms=2000, linger_ms=0
    ) as producer:
        await producer.send("t", b"one")
        await stage.cluster.kill("b1")
        began = now(world)
        with pytest.raises(KafkaError, match="not delivered within 5 s") as caught:
            await producer.send("t", b"two")
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 5.0 <= now(world) - began < 5.2
        await stage.cluster.start("b1")
        await producer.send("t", b"three")
    assert await stage.values() == ["one", "three"]


@played
async def test_a_refusal_of_a_broker_has_its_reason(world: World) -> None:
    compacted = {"cleanup.policy": "compact"}
    async with scene(world, topic=compacted) as stage, stage.producer() as producer:
        with pytest.raises(KafkaError) as caught:
            await producer.send("t", b"no key")
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert (await producer.send("t", b"value", key=b"k")).offset == 0


@played
async def test_a_record_that_is_too_large_is_refused_before_it_is_sent(world: World) -> None:
    async with scene(world) as stage, stage.producer(max_request_size=1000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 1000"):
            await producer.send("t", b"x" * 1000)


@played_in(scene, topic={"max.message.bytes": "200"})
async def test_a_batch_that_the_topic_finds_too_large_goes_in_parts(stage: Scene) -> None:
    async with stage.producer(linger_ms=100) as producer:
        sent = [await producer.send_soon("t", b"%050d" % each) for each in range(20)]
        await producer.flush()
        assert [(await each.wait()).offset for each in sent] == list(range(20))
    assert await stage.values() == [f"{each:050d}" for each in range(20)]


@played_in(scene)
async def test_leaving_the_block_waits_for_records_on_their_way(stage: Scene) -> None:
    async with stage.producer(linger_ms=10_000) as producer:
        delivery = await producer.send_soon("t", b"one")
    assert (await delivery.wait()).offset == 0
    with pytest.raises(IllegalStateError, match="closed"):
        await producer.send("t", b"two")


@played_in(scene)
async def test_left_by_an_error_it_does_not_wait(stage: Scene) -> None:
    deliveries = []

    async def fail() -> None:
        async with stage.producer(linger_ms=10_000) as producer:
            deliveries.append(await producer.send_soon("t", b"one"))
            raise RuntimeError("of the block")

    with pytest.raises(RuntimeError, match="of the block"):
        await fail()
    with pytest.raises(PeerUnavailableError, match="the producer was closed"):
        await deliveries[0].wait()
    assert await stage.values() == []


@played_in(scene)
async def test_cancelled_it_does_not_wait_either(stage: Scene, world: World) -> None:
    with world.clock("b1").move_on_after(3) as scope:
        async with stage.producer(linger_ms=10_000) as producer:
            await producer.send("t", b"one", partition=0)
    assert scope.cancelled_caught
    assert now(world) >= 3


@played
async def test_a_value_is_bytes_or_is_serialized(world: World) -> None:
    async with scene(world):
        producer: Producer[Any, Any] = Producer("b1:9092", seams=world.node("producer"))
        async with producer:
            with pytest.raises(TypeError, match="str is not bytes: name a serializer"):
                await producer.send("t", "text")
            with pytest.raises(IllegalStateError, match="no partition -1"):
                await producer.send("t", b"x", partition=-1)


@played
async def test_a_partition_that_is_new_is_waited_for(world: World) -> None:
    async with scene(world) as stage, stage.producer(max_block_ms=5_000) as producer:
        await producer.send("t", b"one", partition=0)
        with pytest.raises(KafkaTimeoutError, match="partition 1 of topic t was not known"):
            await producer.send("t", b"two", partition=1)
        async with Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin:
            await admin.create_partitions({"t": 2})
        assert (await producer.send("t", b"two", partition=1)).offset == 0


def test_the_same_seed_is_the_same_run() -> None:
    async def story(world: World) -> None:
        replicas = ((1, 2, 3), (2, 3, 1))
        async with (
            scene(world, brokers=3, replicas=replicas) as stage,
            stage.producer(batch_size=100) as producer,
        ):
            for each in range(50):
                await producer.send_soon("t", b"%d" % each)

    assert play(story).trace_hash() == play(story).trace_hash()


@pytest.mark.parametrize("acks", [1, "1"])
def test_acks_may_be_a_number(acks: object) -> None:
    assert ProducerConfig.of(bootstrap_servers="b:1", acks=acks).required_acks == 1


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"acks": "2"}, "acks=2: expected one of"),
        ({"acks": "1", "enable_idempotence": True}, "enable.idempotence=true needs acks=all"),
        (
            {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
            "needs max.in.flight.requests.per.connection <= 5",
        ),
        ({"retries": 0, "enable_idempotence": True}, "needs retries of at least 1"),
        ({"delivery_timeout_ms": 1000}, "expected at least linger.ms"),
        ({"linger": 5}, "unknown key linger"),
        ({"compression_type": "zip"}, "compression.type=zip: expected one of"),
    ],
)
def test_a_contradictory_configuration_is_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Producer("b1:9092", **config)


def test_idempotence_gives_way_unless_it_was_set() -> None:
    assert Producer("b1:9092").config.enable_idempotence
    assert not Producer("b1:9092", acks="1").config.enable_idempotence
