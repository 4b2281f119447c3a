"""The metadata log is kept short, and a crash at any point of that loses nothing."""

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.controller.controller import Controller
from replication.errors import ErrorCode, MetadataError
from replication.metadata.log import MetadataLog
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
)
from replication.net.clock import TrioClock
from replication.net.seams import Seams
from replication.net.tcp import TcpTransport
from replication.raft.log_service import fetch, fetch_snapshot
from replication.raft.node import RaftNode
from replication.wire.control_records import LeaderChangeMessage
from replication.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchSnapshotId,
    FetchTopic,
    PartitionData,
)
from replication.wire.fetch_snapshot import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    SnapshotId as WantedSnapshot,
    TopicSnapshotRequest,
)
from replication.wire.metadata_records import NoOpRecord, TopicRecord
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.log.file_region import FileRegion
from storage.testing import DetachedError, Fate, Fault, FaultyFileSystem
from storage.types import OffsetAndEpoch
from tests.deep import one_in
from tests.replication.broker.stage import played, played_in
from tests.replication.controller.running_controller import running
from tests.replication.metadata.checkpoints import image_in
from tests.replication.replica_manager.replica_manager_side import inline

PATH = f"/c/{METADATA_PARTITION}/{4:020}-{0:010}.checkpoint"
DIED = (DetachedError, KafkaStorageError, OSError)


def disk(seed: int = 0) -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(seed))


async def opened(file_system: FaultyFileSystem, *, every_bytes: int = 1 << 20) -> MetadataLog:
    seams = Seams(
        clock=TrioClock(),
        chance=random.Random(0),
        transport=TcpTransport(),
        file_system=file_system,
        offload=inline,
    )
    log = await MetadataLog.open(seams, "/c", node_id=9, snapshot_bytes=every_bytes)
    log.commit_everything()
    log.lead(log.image.leader_epoch + 1, [LeaderChangeMessage(version=0, leader_id=9)])
    await sync(log)
    log.commit_everything()
    return log


async def sync(log: MetadataLog) -> None:
    """Commit what is synced, as a quorum of one does."""
    await log.flush()
    log.commit(log.flushed_end_offset)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"))


async def write(log: MetadataLog, numbers: range) -> None:
    """A batch each, all of them synced."""
    for number in numbers:
        log.append([topic(number)])
        await sync(log)


def log_files(file_system: FaultyFileSystem) -> list[str]:
    return sorted(
        name
        for name in file_system.list_directory(f"/c/{METADATA_PARTITION}")
        if name.endswith((".log", ".deleted"))
    )


@pytest.mark.conformance("KR-621")
async def test_a_snapshot_stands_for_the_log_below_it(autojump_clock: MockClock) -> None:
    file_system = disk()
    log = await opened(file_system)
    log.append([NoOpRecord()])
    await write(log, range(5))
    await log.take_snapshot()
    assert (log.log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.snapshot is not None
    assert log.snapshot.id == OffsetAndEpoch(7, 0)
    await write(log, range(5, 8))
    await log.take_snapshot()
    assert log.log.log_start_offset == 10
    assert log_files(file_system) == [f"{10:020}.log"], "and nothing waits to be unlinked"
    image = log.image
    log.close()
    again = await opened(file_system)
    assert again.image == attrs.evolve(image, offset=10, leader_epoch=1), "a new epoch has begun"
    await write(again, range(8, 10))
    assert len(again.image.topics) == 10


async def test_one_is_taken_whenever_enough_has_been_written(autojump_clock: MockClock) -> None:
    log = await opened(disk(), every_bytes=1000)
    starts = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.take_snapshots)
        for number in range(60):
            await write(log, range(number, number + 1))
            await trio.testing.wait_all_tasks_blocked()
            starts.add(log.log.log_start_offset)
            assert log.log.size < 3000, "what is between two snapshots, and the half before"
        nursery.cancel_scope.cancel()
    assert len(starts) > 4


async def test_what_a_start_reads_is_on_the_disk_though_a_sync_had_failed(
    autojump_clock: MockClock,
) -> None:
    """A kernel takes the pages of a failed sync for written: the next sync leaves them out."""
    file_system = disk()
    log = await opened(file_system)
    log.append([topic(1)])
    file_system.disk.faults.append(Fault(operation="sync", names="*.log"))
    with pytest.raises(KafkaStorageError):
        await log.flush()
    log.close()
    again = await opened(file_system)
    assert list(again.image.topics) == ["topic-1"]
    again.close()
    file_system.crash(Fate.NOTHING)
    assert list((await opened(file_system.reopen())).image.topics) == ["topic-1"]


async def test_what_was_written_before_a_restart_counts_too(autojump_clock: MockClock) -> None:
    file_system = disk()
    log = await opened(file_system)
    await write(log, range(30))
    log.close()
    log = await opened(file_system, every_bytes=1000)
    with TrioClock().move_on_after(1):
        await log.take_snapshots()
    assert log.log.log_start_offset == 32


async def test_what_is_not_synced_is_in_no_snapshot(autojump_clock: MockClock) -> None:
    log = await opened(disk())
    await write(log, range(3))
    log.append([topic(3)])
    await log.take_snapshot()
    assert log.snapshot is not None
    assert list(log.snapshot.image.topics) == ["topic-0", "topic-1", "topic-2"]
    assert (log.log.log_start_offset, log.log_end_offset) == (4, 5)
    before = log.snapshot
    await log.take_snapshot()
    assert log.snapshot is before, "there is nothing new to be kept"


async def grows_and_is_cut(log: MetadataLog, answered: list[MetadataImage]) -> None:
    """Append and cut the log; each image that was answered goes to `answered`."""
    for number in range(4):
        log.append([topic(number)])
        await sync(log)
        answered.append(log.image)
        if number % 2 == 1:
            await log.take_snapshot()


@pytest.mark.parametrize("power", one_in(2, [False, True]), ids=["killed", "power cut"])
async def test_a_crash_at_any_point_loses_nothing_that_was_answered(
    autojump_clock: MockClock, power: bool
) -> None:
    changes = 0
    finished = False
    while not finished:
        file_system = disk()
        log = await opened(file_system)
        answered: list[MetadataImage] = [log.image]
        file_system.die_after(changes)
        try:
            await grows_and_is_cut(log, answered)
            finished = True
        except DIED:
            pass
        if power:
            file_system.crash()
        else:
            file_system.detach()
        again = await opened(file_system.reopen())
        kept, known = again.image.topics, answered[-1].topics
        assert known.items() <= kept.items()
        assert len(kept) <= len(known) + 1, "the one that was being written, and no more"
        assert again.image.offset >= answered[-1].offset
        await write(again, range(100, 103))
        await again.take_snapshot()
        whole = again.image
        again.close()
        last = await opened(again.log.local.file_system.reopen())  # type: ignore[attr-defined] # ours
        assert last.image.topics == whole.topics
        changes += 1
    assert changes > 20


async def test_a_damaged_snapshot_ends_the_controller_with_its_name(
    autojump_clock: MockClock,
) -> None:
    file_system = disk()
    log = await opened(file_system)
    await write(log, range(3))
    await log.take_snapshot()
    log.close()
    file_system.disk.flip_bit(PATH, 20)
    with pytest.raises(MetadataError, match=f"{PATH} cannot be read: the CRC-32C of"):
        await opened(file_system)
    file_system.remove(PATH)
    with pytest.raises(MetadataError, match="begins at 4, and its snapshot ends at 0"):
        await opened(file_system)


# Serving it.


async def ask(node: RaftNode, offset: int, *, epoch: int) -> PartitionData:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=node.quorum.leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
    )
    request = FetchRequest(topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])])
    request.session_epoch = 0
    response = await fetch(node, request)
    return response.responses[0].partitions[0]


async def piece(
    node: RaftNode, wanted: tuple[int, int], position: int, size: int
) -> PartitionSnapshot:
    asked = PartitionSnapshotRequest(
        current_leader_epoch=node.quorum.leader_epoch,
        snapshot_id=WantedSnapshot(end_offset=wanted[0], epoch=wanted[1]),
        position=position,
    )
    request = FetchSnapshotRequest(
        max_bytes=size, topics=[TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[asked])]
    )
    return (await fetch_snapshot(node, request)).topics[0].partitions[0]


async def decide(controller: Controller, numbers: range) -> None:
    """A batch each, all of them committed."""
    log = controller.log
    for number in numbers:
        log.append([topic(number)])
    assert log.leading_epoch is not None
    await log.wait_until_committed(log.log_end_offset, log.leading_epoch)


@pytest.mark.conformance("KR-207")
@played
async def test_a_broker_behind_the_log_start_gets_the_id_of_the_snapshot(world: World) -> None:
    async with running(world) as first:
        await decide(first, range(3))
    async with running(world) as controller:
        node, log = controller.node, controller.log
        await decide(controller, range(3, 5))
        await log.take_snapshot()
        start = log.log_end_offset
        await decide(controller, range(5, 7))
        needed = FetchSnapshotId(end_offset=start, epoch=2)
        assert (await ask(node, 0, epoch=0)).snapshot_id == needed
        assert (await ask(node, start - 1, epoch=2)).snapshot_id == needed
        assert (await ask(node, start, epoch=1)).snapshot_id == needed, "another branch"
        forgotten = await ask(node, start + 1, epoch=1)
        assert forgotten.snapshot_id == needed, "a leader epoch that is forgotten"
        for offset in (start, start + 1, start + 2):
            data = await ask(node, offset, epoch=2)
            assert (data.snapshot_id, data.error_code) == (FetchSnapshotId(), ErrorCode.NONE)
        diverging = (await ask(node, start + 3, epoch=2)).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (2, start + 2)


@pytest.mark.conformance("KR-602", "KR-604", "KR-605", "KR-607")
@pytest.mark.conformance("KR-208")
@played_in(running)
async def test_a_snapshot_is_served_in_pieces(controller: Controller) -> None:
    node, log = controller.node, controller.log
    await decide(controller, range(20))
    end = (log.log_end_offset, 1)
    assert (await piece(node, end, 0, 100)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    await log.take_snapshot()
    data = bytearray()
    while True:
        part = await piece(node, end, len(data), 100)
        assert part.error_code == ErrorCode.NONE
        assert isinstance(part.unaligned_records, FileRegion)
        assert part.unaligned_records.size <= 100
        data += part.unaligned_records.read()
        if len(data) == part.size:
            break
    assert image_in(bytes(data), OffsetAndEpoch(*end)) == log.image
    for position in (len(data), -1):
        beyond = await piece(node, end, position, 100)
        assert beyond.error_code == ErrorCode.POSITION_OUT_OF_RANGE
    unknown = await piece(node, (end[0] - 1, 1), 0, 100)
    assert unknown.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    asked = PartitionSnapshotRequest(
        current_leader_epoch=-1, snapshot_id=WantedSnapshot(end_offset=end[0], epoch=1)
    )
    foreign = FetchSnapshotRequest(
        cluster_id="another", topics=[TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[asked])]
    )
    assert (await fetch_snapshot(node, foreign)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.conformance("KR-603", "KR-606", "KR-608", "KR-609")
@played_in(running)
async def test_a_piece_is_for_who_knows_the_leader_epoch(controller: Controller) -> None:
    """And only the metadata log has snapshots; the first one, of the formatting, is not sent."""
    node, epoch = controller.node, controller.node.quorum.leader_epoch
    assert (await piece(node, (0, 0), 0, 100)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    for topic, asked_epoch, error in (
        (METADATA_TOPIC, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (METADATA_TOPIC, epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("another", epoch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        asked = PartitionSnapshotRequest(
            current_leader_epoch=asked_epoch, snapshot_id=WantedSnapshot(end_offset=1, epoch=epoch)
        )
        request = FetchSnapshotRequest(
            topics=[TopicSnapshotRequest(name=topic, partitions=[asked])]
        )
        (found,) = (await fetch_snapshot(node, request)).topics[0].partitions
        assert found.error_code == error
