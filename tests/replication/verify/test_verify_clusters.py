"""Live clusters compared: with their own replicas, and with log directories."""

import random
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
import trio

from replication.client.admin import Admin, NewTopic
from replication.replica_manager.bytes_in import metric
from replication.replica_manager.topic_meters import BYTES_OUT
from replication.verify import (
    CannotCompareError,
    Cause,
    Compared,
    Comparison,
    Difference,
    Different,
    NotCompared,
    Same,
)
from replication.verify.clusters import FetchOptions
from replication.verify.compacted import taken
from replication.verify.sources import (
    PartitionSelection,
    ResultListener,
    VerificationPlan,
    nothing_compared,
)
from scenarios.world.cluster import partition_directory
from scenarios.world.world import World
from storage.batch.batch_stream import BatchStream
from storage.batch.record_batch import read_header
from storage.filesystem import FileSystem
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene, played, scene

THREE: dict[str, Any] = {"brokers": 3, "replicas": ((1, 2, 3),)}
SMALL = FetchOptions(fetch_size=200, max_wait_ms=100)


async def verify(
    on: Scene, *directories: str, disk: FileSystem | None = None, **options: Any
) -> Comparison:
    """`on`'s cluster and these directories of `disk`."""
    seams = on.world.node("verifier")
    if disk is not None:
        seams = attrs.evolve(seams, file_system=disk)
    options.setdefault("bootstrap_servers", [",".join(on.bootstrap_servers)])
    options.setdefault("fetching", SMALL)
    options.setdefault("selection", PartitionSelection(topics="t"))
    return await VerificationPlan(directories=directories, **options).run(seams)


def batches_of(on: Scene, broker: str) -> list[bytes]:
    disk = on.cluster.disk(broker)
    stream = BatchStream(disk, partition_directory(disk, broker, T0))
    batches = []
    while (header := stream.head()) is not None:
        batches.append(taken(stream, header.size))
        stream.passed(header)
    stream.close()
    return batches


def copy_of(batches: Iterable[bytes]) -> FaultyFileSystem:
    disk = FaultyFileSystem(random.Random(1))
    disk.make_directory("/copy")
    disk.make_directory("/copy/t-0")
    file = disk.open(f"/copy/t-0/{0:020d}.log", create=True)
    file.write(0, b"".join(batches))
    file.close()
    return disk


def one(comparison: Comparison) -> Any:
    (result,) = comparison.partitions
    return result


@played
async def test_the_replicas_of_one_cluster_are_the_same(world: World) -> None:
    async with scene(world, **THREE) as on:
        await on.produce(*map(str, range(20)), acks="all")
        result = one(await verify(on))
        assert isinstance(result, Same)
        assert result.directories == ("b1:9092", "b2:9092", "b3:9092")
        assert (result.compared.end_offset, result.compared.records) == (20, 20)
        # A replica that is away is a copy too few.
        await on.cluster.kill("b3")
        await world.clock("b1").sleep(30)
        result = one(await verify(on))
        assert isinstance(result, Different)
        assert result.difference is Difference.MISSING_COPY


@played_in(scene)
async def test_a_cluster_and_a_directory_part_where_the_directory_was_harmed(on: Scene) -> None:
    await on.produce(*map(str, range(20)), acks="all")
    batches = batches_of(on, "b1")
    for harmed, offset, cause in (
        (batches, None, None),
        (batches[:7], 7, Cause.LAG),
        ([*batches[:7], *batches[8:]], 7, Cause.GAP),
        ([*batches[:7], batches[7][:-1] + b"?", *batches[8:]], 7, Cause.CORRUPTION),
    ):
        disk = copy_of(harmed)
        result = one(await verify(on, "/copy", disk=disk))
        if offset is None:
            assert isinstance(result, Same)
            assert result.compared.end_offset == 20
        else:
            assert isinstance(result, Different)
            assert (result.offset, result.cause) == (offset, cause)


@played
async def test_a_leader_that_dies_meanwhile_is_waited_for(world: World) -> None:
    async with scene(world, **THREE, min_insync_replicas="2") as on:
        await on.produce(*map(str, range(150)), acks="all")
        disk = copy_of(batches_of(on, on.leader()))
        killed: list[str] = []

        def kill(*_: Any) -> None:
            if not killed:
                killed.append(on.leader())
                nursery.start_soon(on.cluster.kill, killed[0])

        listener = ResultListener(on_progress=kill, interval_ms=0.001)
        async with trio.open_nursery() as nursery:
            result = one(await verify(on, "/copy", disk=disk, listener=listener))
        assert killed
        assert isinstance(result, Same)
        assert result.compared.end_offset == 150


@played
async def test_records_written_between_two_reads_of_the_ends_are_no_lag(world: World) -> None:
    async with scene(world) as on, trio.open_nursery() as nursery, on.producer() as producer:

        async def write() -> None:
            while True:
                await producer.send("t", b"v", partition=0)

        nursery.start_soon(write)
        servers = ",".join(on.bootstrap_servers)
        result = one(await verify(on, bootstrap_servers=[servers, servers]))
        assert isinstance(result, Same)
        assert result.compared.records > 0
        nursery.cancel_scope.cancel()


@played_in(scene)
async def test_records_deleted_by_retention_are_not_compared(on: Scene, world: World) -> None:
    await on.produce(*map(str, range(20)), acks="all")
    disk = copy_of(batches_of(on, "b1"))
    async with Admin(on.bootstrap_servers, seams=world.node("admin")) as admin:
        await admin.delete_records({T0: 5})
    result = one(await verify(on, "/copy", disk=disk))
    assert isinstance(result, Same)
    assert (result.compared.start_offset, result.compared.end_offset) == (5, 20)


@played_in(scene)
async def test_a_time_says_where_to_begin(on: Scene) -> None:
    await on.produce(*map(str, range(20)), acks="all")
    batches = batches_of(on, "b1")
    times = [read_header(each).max_timestamp for each in batches]
    disk = copy_of(batches)
    for timestamp, start in ((-2, 0), (times[4], times.index(times[4])), (-1, 20)):
        selection = PartitionSelection(topics="t", timestamp=timestamp)
        result = one(await verify(on, "/copy", disk=disk, selection=selection))
        assert isinstance(result, Same)
        assert result.compared.start_offset == start


@played_in(scene)
async def test_a_broker_sends_each_byte_once(on: Scene) -> None:
    await on.produce(*map(str, range(50)), acks="all")
    batches = batches_of(on, "b1")
    disk = copy_of(batches)
    result = one(await verify(on, "/copy", disk=disk, fetching=FetchOptions()))
    assert isinstance(result, Same)
    sent = on.cluster.brokers["b1"].metrics.read(metric(BYTES_OUT, "t"))
    assert sent == sum(map(len, batches))


@played_in(scene, topic={"cleanup.policy": "compact"})
async def test_a_compacted_topic_is_compared_by_its_keys(on: Scene) -> None:
    async with on.producer() as producer:
        for number in range(9):
            await producer.send("t", b"v", key=b"k%d" % (number % 3), partition=0)
    batches = batches_of(on, "b1")
    disk = copy_of(batches)
    result = one(await verify(on, "/copy", disk=disk))
    assert isinstance(result, Same)
    assert result.keys == 3
    last = copy_of(batches[:7])
    result = one(await verify(on, "/copy", disk=last))
    assert isinstance(result, Different)
    assert (result.cause, result.offset) == (Cause.LAG, 7)


@played_in(scene)
async def test_a_missing_source_cannot_be_compared(on: Scene) -> None:
    with pytest.raises(CannotCompareError, match="that is selected"):
        await verify(on, selection=PartitionSelection(topics="nothing"))
    with pytest.raises(CannotCompareError, match="not a directory"):
        await verify(on, "/nowhere")
    config = {"default_api_timeout_ms": 2000}
    with pytest.raises(CannotCompareError, match="not done within"):
        await verify(on, bootstrap_servers=["b1:1"], client_config=config)
    alone = await verify(on, selection=PartitionSelection(topics="t", partitions=frozenset({0})))
    assert nothing_compared(alone)


@played_in(scene, brokers=3, replicas=((1,), (2,)))
async def test_a_partition_without_a_leader_is_named_with_its_missing_brokers(
    on: Scene, world: World
) -> None:
    await on.produce("a", partition=0)
    async with Admin("b1:9092", seams=world.node("admin")) as admin:
        await admin.create_topics([NewTopic(name="u", replicas=((3,),))])
    await on.cluster.until(on.cluster.nodes.is_complete, what="u is there")
    for each in ("b2", "b3"):
        await on.cluster.kill(each)
    await world.clock("b1").sleep(30)
    for servers in (["b1:9092"], ["b1:9092", "b1:9092"]):
        began = world.clock("b1").now()
        found = await verify(
            on, bootstrap_servers=servers, selection=PartitionSelection(topics="t|u")
        )
        led, *others = map(str, found.partitions)
        assert led.startswith("t-0: only in" if len(servers) == 1 else "t-0: same in 2")
        assert others == [
            "t-1: could not be compared: b1:9092: it has no leader (of its brokers away: 2)",
            "u-0: could not be compared: b1:9092: it has no leader (of its brokers away: 3)",
        ]
        # It was waited for, but once and not for each partition and cluster anew.
        assert 60 <= world.clock("b1").now() - began < 60 * (len(servers) + 0.5)
        assert not found.same
        assert not found.differences
    # What is not selected is not waited for.
    chosen = PartitionSelection(topics="t", partitions=frozenset({0}))
    pair = ["b1:9092", "b1:9092"]
    assert isinstance(one(await verify(on, bootstrap_servers=pair, selection=chosen)), Same)
    # What is nowhere else need not be led.
    alone = await verify(on, "/copy", disk=copy_of([]), selection=PartitionSelection(topics="u"))
    assert nothing_compared(alone)
    # Nor is anything lost of what comes back in time.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back, on, "b2")
        found = await verify(on, bootstrap_servers=pair)
    assert [type(each) for each in found.partitions] == [Same, Same]


async def come_back(on: Scene, name: str) -> None:
    await on.world.clock("b1").sleep(10)
    await on.cluster.start(name)


@played_in(scene, brokers=2, replicas=((2,), (1,), (2,)))
async def test_partitions_that_lose_their_leader_meanwhile_hold_up_no_other(
    on: Scene, world: World
) -> None:
    for partition in range(3):
        await on.produce(*map(str, range(150)), partition=partition)
    copies = ["b1:9092", "b1:9092"]
    killed: list[str] = []

    def kill(*_: Any) -> None:
        if not killed:
            killed.append("b2")
            nursery.start_soon(on.cluster.kill, "b2")

    began = world.clock("b1").now()
    async with trio.open_nursery() as nursery:
        listener = ResultListener(on_progress=kill, interval_ms=0.001)
        found = await verify(on, bootstrap_servers=copies, listener=listener)
    assert killed
    lost, led, lost_too = found.partitions
    assert isinstance(led, Same)
    assert led.compared.end_offset == 150
    for each in (lost, lost_too):
        assert isinstance(each, NotCompared)
        assert each.reason == "b1:9092: it has no leader (of its brokers away: 2)"
    # Who lost theirs with another is not waited for again.
    assert world.clock("b1").now() - began < 100


@played
async def test_a_leader_that_dies_during_the_comparison_is_looked_up_again(
    world: World,
) -> None:
    async with scene(world, **THREE, min_insync_replicas="2") as on:
        async with Admin(on.bootstrap_servers, seams=world.node("admin")) as admin:
            await admin.create_topics([NewTopic(name="u", replicas=((1, 2, 3),))])
        await on.cluster.until(on.cluster.nodes.is_complete, what="u is there")
        await on.produce(*map(str, range(150)), acks="all")
        async with on.producer(acks="all") as producer:
            await producer.send("u", b"v", partition=0)
        servers = ",".join(on.bootstrap_servers)
        killed: list[str] = []

        def kill(*_: Any) -> None:
            if not killed:
                killed.append(on.leader())
                nursery.start_soon(on.cluster.kill, killed[0])

        async with trio.open_nursery() as nursery:
            found = await verify(
                on,
                bootstrap_servers=[servers, servers],
                listener=ResultListener(on_progress=kill, interval_ms=0.001),
                selection=PartitionSelection(topics="t|u"),
            )
        assert killed
        assert [type(each) for each in found.partitions] == [Same, Same]


@played_in(scene)
async def test_a_partition_deleted_faster_than_it_is_read_is_reported(
    on: Scene, world: World
) -> None:
    await on.produce(*map(str, range(700)))
    disk = copy_of(batches_of(on, "b1"))
    async with (
        Admin(on.bootstrap_servers, seams=world.node("admin")) as admin,
        trio.open_nursery() as nursery,
    ):

        def delete(_: TopicPartition, compared: Compared) -> None:
            ahead = {T0: min(compared.end_offset + 100, 700)}
            nursery.start_soon(admin.delete_records, ahead)

        listener = ResultListener(on_progress=delete, interval_ms=0.001)
        result = one(await verify(on, "/copy", disk=disk, listener=listener))
    assert str(result) == ("t-0: could not be compared: it is deleted faster than it can be read")
