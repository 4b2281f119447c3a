"""Several log directories: one that fails takes its replicas along, and nothing else."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from replication.broker.lifecycle import UnreportedDirectoryError
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import BrokerStopped, LogDirectoryFailed
from replication.metadata.rules.image import PartitionRegistration
from replication.metadata.rules.records import METADATA_PARTITION
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.testing import Fault
from storage.types import TopicPartition
from tests.replication.broker.stage import Stage, name_of, played, staged

BOTH = {"log_dirs": "/a,/b"}


@contextlib.asynccontextmanager
async def two_disks(world: World) -> AsyncIterator[tuple[Stage, bytes]]:
    """Three brokers with two directories each; of topic t, partition 0 lies beside no metadata."""
    async with staged(world, **BOTH) as stage:  # type: ignore[arg-type]  # all are strings
        topic_id = await stage.client.create_topic(stage.address(1), "t", partitions=2)
        await stage.cluster.until(
            lambda: all(len(partition(stage, index).directories) == 3 for index in (0, 1)),
            what="the controller knows where all replicas lie",
        )
        for index in (0, 1):
            await stage.cluster.until(
                lambda: leader(stage, index) > 0,  # noqa: B023 called before the next round
                what="each partition has a leader",
            )
            await stage.client.produce(
                stage.address(leader(stage, index)), "t", b"first", partition=index
            )
        # The next write to any disk is then one of a record, and not of metadata.
        await stage.cluster.clock.sleep(2)
        yield stage, topic_id


def partition(stage: Stage, index: int) -> PartitionRegistration:
    registration = stage.cluster.partition("t", index)
    assert registration is not None
    return registration


def leader(stage: Stage, index: int) -> int:
    return partition(stage, index).leader


def directory(stage: Stage, broker: int, index: int) -> str:
    log = stage.cluster.brokers[broker].logs.get(TopicPartition("t", index))
    assert log is not None
    return log.directory.rpartition("/")[0]


async def fail_disk_of_leader(world: World, stage: Stage) -> int:
    """The disk under the leader's replica of t-0 fails, in the middle of a produce; who it was."""
    victim = leader(stage, 0)
    assert directory(stage, victim, 0) == "/b"
    world.disk(name_of(victim)).faults.append(Fault(operation="write", names="*.log"))
    refused = await stage.client.produce(stage.address(victim), "t", b"refused")
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    return victim


@played
async def test_the_controller_is_told_where_each_replica_lies(world: World) -> None:
    async with two_disks(world) as (stage, _):
        for broker_id, broker in stage.cluster.brokers.items():
            ids = {each.path: each.directory_id for each in broker.logs.directories}
            registered = stage.cluster.image.brokers[broker_id].directories
            assert registered == (ids["/a"], ids["/b"])
            for index in (0, 1):
                found = ids[directory(stage, broker_id, index)]
                assert partition(stage, index).directory(broker_id) == found


@played
async def test_one_disk_of_two_fails_and_others_lead_what_lay_on_it(world: World) -> None:
    async with two_disks(world) as (stage, topic_id):
        victim = await fail_disk_of_leader(world, stage)
        await stage.cluster.until(
            lambda: leader(stage, 0) not in (victim, -1) and len(partition(stage, 0).isr) == 2,
            what="another leader, and an ISR without the lost replica",
        )
        assert victim not in partition(stage, 0).isr
        # What lies on its other disk is as it was, and so is the broker.
        assert victim in partition(stage, 1).isr
        assert stage.cluster.failures == {}
        manager = stage.cluster.brokers[victim].replica_manager
        assert sorted(manager.hosted.offline) == [TopicPartition("t", 0)]
        assert manager.hosted.snapshot(TopicPartition("t", 1)) is not None
        for_two = await stage.client.fetch(stage.address(victim), topic_id)
        assert for_two.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        address = stage.address(leader(stage, 0))
        produced = await stage.client.produce(address, "t", b"second")
        assert produced.error_code == ErrorCode.NONE
        assert await stage.client.read_all(address, topic_id) == [b"first", b"second"]
        failed = [
            each for each in world.trace.entries if isinstance(each.event, LogDirectoryFailed)
        ]
        assert [each.node for each in failed] == [name_of(victim)]


@played
async def test_a_follower_whose_disk_fails_leaves_the_isr_at_once(world: World) -> None:
    async with two_disks(world) as (stage, _):
        followers = set(partition(stage, 0).isr) - {leader(stage, 0)}
        victim = next(each for each in followers if directory(stage, each, 0) == "/b")
        world.disk(name_of(victim)).faults.append(Fault(operation="write", names="*.log"))
        before = stage.cluster.clock.now()
        await stage.client.produce(stage.address(leader(stage, 0)), "t", b"second")
        await stage.cluster.until(
            lambda: victim not in partition(stage, 0).isr, what="the ISR is without it"
        )
        # Neither the ISR nor the produce has waited for replica.lag.time.max.ms.
        assert stage.cluster.clock.now() - before < 5
        assert sorted(stage.cluster.brokers[victim].replica_manager.hosted.offline) == [
            TopicPartition("t", 0)
        ]


@played
async def test_a_replica_on_a_lost_disk_is_not_elected_though_its_broker_is_alive(
    world: World,
) -> None:
    async with two_disks(world) as (stage, _):
        victim = await fail_disk_of_leader(world, stage)
        await stage.cluster.until(
            lambda: victim not in partition(stage, 0).isr, what="the ISR is without it"
        )
        for broker in {1, 2, 3} - {victim}:
            await stage.cluster.kill_broker(broker)
        await stage.cluster.until(lambda: leader(stage, 0) == -1, what="nobody leads t-0")
        await stage.cluster.clock.sleep(5)
        assert leader(stage, 0) == -1


@played
async def test_a_broker_whose_disk_is_well_again_takes_its_replicas_up_again(world: World) -> None:
    async with two_disks(world) as (stage, _):
        victim = await fail_disk_of_leader(world, stage)
        await stage.cluster.until(
            lambda: leader(stage, 0) not in (victim, -1), what="another leader"
        )
        await stage.client.produce(stage.address(leader(stage, 0)), "t", b"second")
        await stage.cluster.stop_broker(victim)
        await stage.cluster.start_broker(victim)
        await stage.until_in_sync("t", 3)
        assert directory(stage, victim, 0) == "/b"


@played
async def test_a_broker_that_cannot_tell_of_its_lost_disk_ends_in_good_order_with_one_line(
    world: World,
) -> None:
    async with two_disks(world) as (stage, _):
        await stage.cluster.kill_controller()
        victim = await fail_disk_of_leader(world, stage)
        lost_at = stage.cluster.clock.now()
        await stage.cluster.until(
            lambda: list(stage.cluster.failures) == [victim],
            what="the broker has ended",
            timeout_seconds=40,
        )
        assert 30 <= stage.cluster.clock.now() - lost_at < 35
        failure = stage.cluster.failures[victim]
        assert isinstance(failure, UnreportedDirectoryError)
        assert "\n" not in str(failure)
        (stopped,) = [each for each in world.trace.entries if isinstance(each.event, BrokerStopped)]
        assert stopped.event == BrokerStopped(broker=victim, clean=True)


@pytest.mark.parametrize("names", ["*.log", "recovery-point-offset-checkpoint*"])
@played
async def test_a_broker_whose_last_disk_fails_ends_with_one_line(world: World, names: str) -> None:
    eager = {"log_initial_task_delay_ms": "0", "log_flush_offset_checkpoint_interval_ms": "500"}
    async with staged(world, **BOTH, **eager) as stage:  # type: ignore[arg-type]  # strings
        await stage.client.create_topic(stage.address(1), "t", partitions=2)
        victim = await stage.leader("t")
        world.disk(name_of(victim)).faults.append(Fault(operation="write", names=names, times=None))
        with contextlib.suppress(PeerUnavailableError):
            for index in (0, 1):
                await stage.client.produce(stage.address(victim), "t", b"b", partition=index)
        await stage.cluster.until(
            lambda: list(stage.cluster.failures) == [victim], what="the broker has ended"
        )
        failure = stage.cluster.failures[victim]
        assert isinstance(failure, KafkaStorageError)
        assert "Input/output error" in str(failure)
        assert "\n" not in str(failure)


@played
async def test_a_broker_without_the_directory_of_its_metadata_does_not_start(world: World) -> None:
    async with two_disks(world) as (stage, _):
        await stage.cluster.stop_broker(1)
        disk = world.disk(name_of(1))
        disk.faults.append(Fault(operation="read", names="/a/*", times=None))
        with pytest.raises(KafkaStorageError, match="__cluster_metadata-0: a log directory is off"):
            await stage.cluster.start_broker(1)
        assert disk.node(f"/b/{METADATA_PARTITION}") is None
        disk.faults.clear()
        await stage.cluster.start_broker(1)
        await stage.until_in_sync("t", 3)


@played
async def test_a_disk_that_fails_while_its_broker_stops_is_found_at_the_next_start(
    world: World,
) -> None:
    async with two_disks(world) as (stage, _):
        faults = world.disk(name_of(1)).faults
        faults.append(Fault(operation="write", names="/b/.kafka_cleanshutdown*"))
        await stage.cluster.stop_broker(1)
        assert [
            each.node for each in world.trace.entries if isinstance(each.event, LogDirectoryFailed)
        ] == [name_of(1)]
        faults.clear()
        await stage.cluster.start_broker(1)
        await stage.until_in_sync("t", 3)
