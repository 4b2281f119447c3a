"""Several log directories below one replica manager: where a log is made, and when it is not."""

import random

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.events import PartitionFailed
from replication.metadata.rules.image import UNASSIGNED, PartitionRegistration
from storage.testing import Fault, FaultyFileSystem
from tests.replication.leader.leader_side import LOCAL, REMOTE, TOPIC_ID, registration
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node

CONFIG = BrokerConfig(node_id=LOCAL, log_dirs=("/a", "/b"))
DISK_A, DISK_B, NO_DISK = bytes([1]) * 16, bytes([2]) * 16, bytes([9]) * 16
LED = registration(isr=(LOCAL,), partition_epoch=0)
FOLLOWED = registration(leader=REMOTE, partition_epoch=0)


def placed(
    partition: PartitionRegistration, directory: bytes | None, *, is_new: bool = True
) -> PartitionRegistration:
    placed_here = {} if directory is None else {LOCAL: directory}
    directories = tuple(placed_here.get(each, UNASSIGNED) for each in partition.replicas)
    epoch = 0 if is_new else 5
    return attrs.evolve(partition, directories=directories, partition_epoch=epoch)


def two_disks(disk: FaultyFileSystem | None = None) -> Node:
    return Node(config=CONFIG, file_system=disk or FaultyFileSystem(random.Random(1)))


def directory(node: Node) -> str:
    log = node.logs.get(TP)
    assert log is not None
    return log.directory


def failed_disk(path: str) -> FaultyFileSystem:
    """One of which the directory `path` cannot be used."""
    disk = FaultyFileSystem(random.Random(1))

    class Failing(FaultyFileSystem):
        def lock(self, name: str) -> object:  # type: ignore[override]  # a lock, or nothing
            if name.startswith(path):
                raise OSError(5, "Input/output error", name)
            return super().lock(name)

    return Failing(disk.disk.chance, disk=disk.disk)


@pytest.mark.conformance("RM-58")
@pytest.mark.conformance("PT-63")
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("assigned", [DISK_A, DISK_B])
async def test_a_log_is_made_in_the_directory_that_its_replica_is_assigned_to(
    autojump_clock: MockClock, assigned: bytes, is_new: bool
) -> None:
    async with two_disks().running() as node:
        await node.learn(placed(LED, assigned, is_new=is_new))
        home = "/a" if assigned == DISK_A else "/b"
        assert directory(node) == f"{home}/topic-0"
        assert node.state().is_leader
        assert node.assigned == []


@pytest.mark.conformance("PT-63c")
@pytest.mark.parametrize("is_new", [True, False])
async def test_where_no_directory_is_offline_a_log_is_made_though_it_is_not_new(
    autojump_clock: MockClock, is_new: bool
) -> None:
    async with two_disks().running() as node:
        await node.learn(placed(LED, NO_DISK, is_new=is_new))
        assert node.state().is_leader


@pytest.mark.conformance("RM-59")
@pytest.mark.conformance("PT-63e")
@pytest.mark.conformance("PT-63f")
@pytest.mark.parametrize("partition", [LED, FOLLOWED], ids=["leading", "following"])
async def test_a_log_without_a_directory_is_placed_and_its_directory_reported(
    autojump_clock: MockClock, partition: PartitionRegistration
) -> None:
    async with two_disks().running() as node:
        await node.learn(placed(partition, None))
        found = DISK_A if directory(node).startswith("/a/") else DISK_B
        assert node.assigned == [(TOPIC_ID, 0, found)]


@pytest.mark.conformance("RM-60")
async def test_a_log_assigned_to_a_directory_that_is_lost_is_placed_anew(
    autojump_clock: MockClock,
) -> None:
    async with two_disks().running() as node:
        await node.learn(placed(LED, NO_DISK))
        found = DISK_A if directory(node).startswith("/a/") else DISK_B
        assert node.assigned == [(TOPIC_ID, 0, found)]


@pytest.mark.parametrize("is_new", [True, False])
async def test_while_a_directory_is_offline_what_may_lie_there_is_not_made_a_second_time(
    autojump_clock: MockClock, is_new: bool
) -> None:
    async with two_disks(failed_disk("/b")).running() as node:
        await node.learn(placed(LED, DISK_B, is_new=is_new), placed(LED, None, is_new=is_new))
        offline = [TP] if is_new else [TP, SECOND]
        assert sorted(node.manager.hosted.offline) == offline
        assert (await node.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_broker_with_one_directory_reports_only_what_the_controller_has_wrong(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(LED)
        assert node.assigned == []
    async with Node().running() as node:
        await node.learn(placed(LED, NO_DISK))
        assert node.assigned == [(TOPIC_ID, 0, DISK_A)]


async def test_a_disk_that_fails_takes_its_partitions_offline_and_no_others(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with two_disks(disk).running() as node:
        await node.learn(placed(LED, DISK_A), placed(FOLLOWED, DISK_A), placed(LED, DISK_B))
        assert SECOND in node.fetchers.following
        disk.inject(Fault(operation="write", names="*.log"))
        assert (await node.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(node.manager.hosted.offline) == [TP, SECOND]
        assert SECOND not in node.fetchers.following
        third = TP._replace(partition=2)
        assert (await node.produce(to=third)).error is ErrorCode.NONE
        failed = [each.partition for each in node.events if isinstance(each, PartitionFailed)]
        assert failed == [TP, SECOND]


@pytest.mark.conformance("RM-56")
async def test_what_is_offline_stays_so_whatever_the_metadata_says(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with two_disks(disk).running() as node:
        await node.learn(placed(LED, DISK_A))
        disk.inject(Fault(operation="write", names="*.log"))
        await node.produce()
        for epoch in (2, 3):
            await node.learn(
                attrs.evolve(placed(LED, DISK_A), leader_epoch=epoch, partition_epoch=epoch)
            )
            assert sorted(node.manager.hosted.offline) == [TP]


@pytest.mark.conformance("RM-55")
async def test_a_partition_is_made_once_and_an_offline_one_again_for_another_topic(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with two_disks(disk).running() as node:
        await node.learn(LED)
        first = node.manager.hosted.get(TP)
        await node.learn(attrs.evolve(LED, leader_epoch=2, partition_epoch=1))
        assert node.manager.hosted.get(TP) is first
        disk.inject(Fault(operation="write", names="*.log"))
        await node.produce()
        await node.learn(attrs.evolve(LED, leader_epoch=3, partition_epoch=2))
        assert sorted(node.manager.hosted.offline) == [TP]
        await node.learn(LED, topic_id=b"another topic id")
        assert not node.manager.hosted.offline
        assert node.manager.hosted.get(TP).topic_id == b"another topic id"


async def test_a_directory_that_fails_in_a_thread_goes_offline_when_that_is_reported(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with two_disks(disk).running() as node:
        await node.learn(placed(LED, DISK_A))
        disk.inject(Fault(operation="write", names="replication-offset-checkpoint*"))
        await CLOCK.sleep(6)
        node.manager.failures.take_failed_offline()
        assert sorted(node.manager.hosted.offline) == [TP]
