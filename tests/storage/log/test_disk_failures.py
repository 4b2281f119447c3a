"""What a log does under each thing that a disk does to it: lies, tears, rots, fails, fills, is swapped.

The numbers are those of the scenarios: S51 a sync that lies, S52 a torn last batch, S53 bits that
rot, S54 a write that fails, S56 a checkpoint cut short, S58 another node's disk, or an old copy.
"""

import errno
import itertools

import pytest

from storage.batch.record_batch import walk
from storage.errors import (
    CorruptRecordError,
    InconsistentMetadataError,
    KafkaStorageError,
    StorageError,
)
from storage.log.log import Log
from storage.log.segment_file import open_segment
from storage.manager.log_manager import LogManager
from storage.testing import Fate, Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import (
    TP,
    WALL_MS,
    bases,
    batch,
    contents,
    fill,
    headers,
    joined,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
    started,
)

ID = b"\1" * 16
OTHER = TopicPartition("other", 0)


def log_in(logs: LogManager, key: TopicPartition = TP) -> Log:
    return logs.get_or_create(key, ID)


# S51: fsync lies.


@pytest.mark.parametrize("fate", [Fate.NOTHING, Fate.ZEROES, Fate.FIRST_PART])
@pytest.mark.parametrize("seed", range(5))
def test_s51_a_clean_shutdown_that_the_disk_did_not_keep_is_unclean(fate: Fate, seed: int) -> None:
    disk = new_disk(seed)
    logs = started(disk)
    log = log_in(logs)
    log.config = small_config(segment_bytes=1 << 20)
    fill(log, 20)
    log.flush()
    disk.disk.lies, disk.disk.lies_about = True, "*.log"
    log.append_as_follower(joined(*(batch(at=at, epoch=0) for at in range(20, 40))))
    logs.shutdown(7)
    disk.crash(fate)
    disk.disk.lies = False
    again = started(disk := disk.reopen())
    log = log_in(again)
    end = log.log_end_offset
    assert 20 <= end <= 40
    assert offsets(contents(log)) == list(range(end))
    # The marker and the checkpoint survived and say otherwise. Who believes them may lead.
    assert again.clean == (end == 40)
    assert again.previous_broker_epoch == (7 if end == 40 else -1)
    assert bool(log.recovery.repairs) == (end < 40)
    assert lead(log) == end


def test_s51_segments_that_a_lying_disk_has_emptied_are_missed() -> None:
    """All of them but the last may be: each has to join what is before it."""
    disk = new_disk()
    logs = started(disk)
    log = log_in(logs)
    fill(log, 20)
    log.flush()
    disk.disk.lies, disk.disk.lies_about = True, "*.log"
    fill(log, 20)
    disk.disk.lies = False
    log.flush()
    last = log.segments.active.base_offset
    disk.disk.lies = True
    logs.shutdown(7)
    for base in bases(log)[1:-1]:
        node = disk.disk.file(f"/d/t-0/{base:020d}.log")
        node.content.clear()
        node.durable.clear()
    again = started(disk)
    assert (again.clean, again.previous_broker_epoch) == (False, -1)
    assert log_in(again).recovery.repairs
    assert set(offsets(contents(log_in(again)))) <= {*range(20), *range(last, 40)}


# S52: a torn last batch.


@pytest.mark.parametrize("tear", ["short", "other bytes", "zeroes"])
def test_s52_a_torn_last_batch_is_cut_off(tear: str) -> None:
    disk = new_disk()
    log = open_log(disk, small_config(segment_bytes=1 << 20))
    for at in range(0, 30, 5):
        sent = batch(5, producer_id=4, producer_epoch=0, base_sequence=at)
        log.append_as_leader(sent, leader_epoch=at // 15, wall_ms=WALL_MS)
    log.flush()
    synced = contents(log)
    sent = batch(5, producer_id=4, producer_epoch=0, base_sequence=30)
    log.append_as_leader(sent, leader_epoch=2, wall_ms=WALL_MS)
    file = disk.open("/d/t-0/00000000000000000000.log")
    if tear == "short":
        file.truncate(len(synced) + 100)
    else:
        file.write(len(synced) + 70, bytes(20) if tear == "zeroes" else b"\x55" * 20)
    if tear == "zeroes":
        file.write(len(synced), bytes(len(sent)))
    disk.detach()
    log = open_log(disk.reopen(), small_config(segment_bytes=1 << 20), recovery_point=30)
    assert (log.log_end_offset, contents(log)) == (30, synced)
    assert [str(entry) for entry in log.leader_epoch_cache.entries] == ["0@0", "1@15"]
    assert log.producers.producers[4].last_sequence == 29
    assert log.recovery.bytes_truncated > 0
    segment = log.segments.active
    assert segment.size == len(synced)
    assert all(entry.position < len(synced) for entry in segment.offset_index.entries())


# S53: bits that rot in the middle.


def rotten_log(disk: FaultyFileSystem) -> LogManager:
    """Forty batches in two segments, all synced; a bit of the value at offset 17 has flipped."""
    logs = started(disk)
    log = log_in(logs)
    log.config = small_config(segment_bytes=1 << 20)
    for _ in range(2):
        fill(log, 20)
        log.roll()
    log.flush()
    logs.checkpoint_recovery_points()
    size = log.size // 40
    disk.disk.flip_bit("/d/t-0/00000000000000000000.log", 17 * size + 75)
    return logs


def test_s53_no_replica_takes_a_rotten_batch() -> None:
    """Nor what comes with it: the follower's log ends where the damage begins, or before."""
    log = log_in(rotten_log(new_disk()))
    follower = open_log(new_disk(2))
    for header, each in zip(headers(log), each_batch(log), strict=True):
        if header.base_offset == 17:
            with pytest.raises(CorruptRecordError, match="offset 17"):
                follower.append_as_follower(each)
            break
        follower.append_as_follower(each)
    assert follower.log_end_offset == 17


def each_batch(log: Log) -> list[memoryview]:
    data = memoryview(bytearray(contents(log)))
    return [data[at : at + header.size] for at, header in walk(data)]


def test_s53_a_reader_of_the_file_learns_where() -> None:
    disk = new_disk()
    log = log_in(rotten_log(disk))
    size = log.size // 40
    with (
        open_segment("/d/t-0/00000000000000000000.log", disk) as segment,
        pytest.raises(StorageError, match=f"00.log, byte {17 * size}: its CRC-32C does not match"),
    ):
        list(segment.records())


@pytest.mark.parametrize("known", [True, False])
def test_s53_a_crash_makes_nothing_of_it_that_was_synced(known: bool) -> None:
    """Below the recovery point nothing is read again, and so nothing good behind it is thrown away.

    Without a recovery point all is read, the log ends before the damage, and the report says so.
    """
    disk = new_disk()
    rotten_log(disk)
    disk.detach()
    disk = disk.reopen()
    if not known:
        disk.remove("/d/recovery-point-offset-checkpoint")
    log = log_in(started(disk))
    if known:
        assert log.log_end_offset == 40
        assert [h.base_offset for h in headers(log)] == list(range(40))
    else:
        assert log.log_end_offset == 17
        assert log.recovery.bytes_truncated > 0
        assert offsets(contents(log)) == list(range(17))


def test_s53_a_misplaced_write_is_found_by_its_checksum() -> None:
    disk = new_disk()
    logs = started(disk)
    log = log_in(logs)
    fill(log, 10)
    disk.inject(Fault(operation="write", names="*.log", misplaced=40))
    lead(log)
    log.flush()
    disk.crash()
    log = log_in(started(disk.reopen()))
    assert offsets(contents(log)) == list(range(10))


# S54: a write that fails, for good or once.


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("sticky", [True, False])
def test_s54_after_a_failed_append_nothing_is_appended(error: int, sticky: bool) -> None:
    disk = new_disk()
    disk.make_directory("/e")
    failures: list[str] = []
    logs = started(disk, "/d", "/e", on_directory_failed=lambda path, _: failures.append(path))
    log, healthy = log_in(logs), log_in(logs, OTHER)
    fill(log, 50)
    log.update_high_watermark(48)
    disk.inject(
        Fault(
            operation="write", names="*.log", error=error, partial=True, times=None if sticky else 1
        )
    )
    with pytest.raises(KafkaStorageError):
        lead(log, 5)
    disk.disk.faults.clear()
    for attempt in (
        lambda: lead(log),
        lambda: log.append_as_follower(batch(at=55, epoch=1)),
        log.flush,
        log.roll,
        lambda: log.truncate_to(10),
    ):
        with pytest.raises(KafkaStorageError):
            attempt()
    assert failures == ["/d"]
    assert (log.log_end_offset, log.high_watermark) == (50, 48)
    assert lead(healthy) == 0
    logs.shutdown(3)
    again = started(disk, "/d", "/e")
    assert not again.clean
    assert offsets(contents(log_in(again))) == list(range(50))
    assert again.get(OTHER) is not None


def test_s54_a_failed_sync_is_never_tried_again() -> None:
    """The kernel has dropped the pages: a second sync would succeed and mean nothing."""
    disk = new_disk()
    logs = started(disk)
    log = log_in(logs)
    fill(log, 10)
    log.flush()
    fill(log, 10)
    disk.inject(Fault(operation="sync", names="*.log"))
    with pytest.raises(KafkaStorageError):
        log.flush()
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.recovery_point == 10
    logs.shutdown(1)
    disk.crash(Fate.WHOLE)
    again = started(disk.reopen())
    log = log_in(again)
    assert not again.clean
    assert offsets(contents(log)) == list(range(10))


def test_s54_a_full_disk_at_each_write_costs_nothing_that_was_synced() -> None:
    """The room runs out at every byte in turn; afterwards there is room again."""
    disk = new_disk()
    fill(log := log_in(started(disk)), 20)
    log.flush()
    used = disk.disk.used()
    for room in range(0, 1200, 60):
        disk.disk.capacity = used + room
        with pytest.raises(KafkaStorageError):
            fill(log, 20)
        acknowledged = log.log_end_offset
        disk.detach()
        disk.disk.capacity = None
        log = log_in(started(disk := disk.reopen()))
        assert offsets(contents(log)) == list(range(acknowledged))
        log.flush()
        used = disk.disk.used()


# S56: a checkpoint cut short.


def test_s56_a_checkpoint_is_the_old_or_the_new_one_wherever_it_was_cut() -> None:
    """Each change to the disk that writing them takes, with a power cut after it."""
    for changes in itertools.count():
        disk = new_disk(changes)
        logs = started(disk)
        log = log_in(logs)
        fill(log, 20)
        log.flush()
        log.update_high_watermark(10)
        logs.checkpoint_recovery_points()
        logs.checkpoint_high_watermarks({log: 10})
        fill(log, 20, epoch=1)
        log.flush()
        disk.die_after(changes)
        logs.checkpoint_recovery_points()
        logs.checkpoint_high_watermarks({log: 30})
        died = disk.detached
        disk.crash()
        again = started(disk.reopen())
        log = log_in(again)
        assert again.read_high_watermarks()[log] in {10, 30}
        assert again.directories[0].recovery_points[TP] in {20, 40}
        assert not again.warnings
        assert offsets(contents(log)) == list(range(40))
        assert [str(entry) for entry in log.leader_epoch_cache.entries] == ["0@0", "1@20"]
        if not died:
            break
    assert changes > 8, "a checkpoint is opened, cut, written, synced, renamed, and its name synced"


@pytest.mark.parametrize("rubbish", [b"0\n3\n0 0\n3 40\n", b"0\n", b"\xff\xfe", b"1\n0\n"])
def test_s56_epochs_come_from_the_batches_where_the_checkpoint_is_broken(rubbish: bytes) -> None:
    """Epoch 0 among them (KAFKA-10432)."""
    disk = new_disk()
    log = log_in(started(disk))
    for epoch in (0, 3, 5):
        fill(log, 40, epoch=epoch)
    file = disk.open("/d/t-0/leader-epoch-checkpoint", create=True)
    file.truncate(0)
    file.write(0, rubbish)
    disk.detach()
    log = log_in(started(disk.reopen()))
    assert [str(entry) for entry in log.leader_epoch_cache.entries] == ["0@0", "3@40", "5@80"]
    assert log.end_offset_for_epoch(0).offset == 40


# S58: another node's disk, and an old copy of one's own.


def snapshot_of(disk: FaultyFileSystem) -> dict[str, bytes]:
    """An image of everything in `/d`."""

    def files(path: str) -> list[str]:
        names = [f"{path}/{name}" for name in disk.list_directory(path)]
        return [
            file for each in names for file in (files(each) if disk.is_directory(each) else [each])
        ]

    found = {}
    for path in files("/d"):
        file = disk.open_for_reading(path)
        found[path] = file.read(0, file.size())
    return found


def disk_with(image: dict[str, bytes]) -> FaultyFileSystem:
    disk = new_disk()
    for path, data in image.items():
        disk.make_directory(path.rpartition("/")[0])
        disk.open(path, create=True).write(0, data)
    return disk


def test_s58_another_nodes_disk_is_refused_before_a_byte_of_it_changes() -> None:
    disk = new_disk()
    logs = started(disk, node_id=2)
    fill(log_in(logs), 10)
    logs.shutdown(5)
    image = snapshot_of(disk)
    disk = disk_with(image)
    with pytest.raises(InconsistentMetadataError, match="/d belongs to node 2"):
        started(disk, node_id=3)
    assert snapshot_of(disk) == image


def test_s58_an_old_copy_names_the_epoch_that_it_is_of() -> None:
    """A broker that registers with it is known not to have shut down cleanly (KIP-966)."""
    disk = new_disk()
    logs = started(disk)
    fill(log_in(logs), 40)
    logs.shutdown(11)
    image = snapshot_of(disk)
    logs = started(disk)
    fill(log_in(logs), 40)
    logs.shutdown(12)
    assert started(disk).previous_broker_epoch == 12
    old = started(disk_with(image))
    assert (old.previous_broker_epoch, log_in(old).log_end_offset) == (11, 40)


def test_s58_a_copy_of_a_running_node_is_unclean() -> None:
    disk = new_disk()
    fill(log_in(started(disk)), 40)
    copy = started(disk_with(snapshot_of(disk)))
    assert not copy.clean
    assert copy.previous_broker_epoch == -1
    assert offsets(contents(log_in(copy))) == list(range(40))
