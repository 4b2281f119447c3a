"""A broker's copy of the metadata log: applied in order, cut where it must be, never guessed at."""

import random
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from replication.errors import KafkaError, MetadataError, PeerUnavailableError
from replication.events import Event, MetadataApplied
from replication.metadata.cache import CATCH_UP_MS, MetadataCache
from replication.metadata.follower import MetadataFollower
from replication.metadata.log import MetadataLog
from replication.metadata.rules.checkpoint import checkpoint_name
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    batch_of,
)
from replication.metadata.rules.snapshot import snapshot_id
from replication.net.clock import TrioClock
from replication.net.seams import Offload, Seams
from replication.net.tcp import TcpTransport
from replication.steps import STEP
from replication.wire.fetch import PartitionData
from replication.wire.metadata_records import MetadataRecord, NoOpRecord, TopicRecord
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch
from storage.errors import KafkaStorageError
from storage.log.log import Log
from storage.testing import Fault, FaultyFileSystem
from storage.types import NO_LEADER_EPOCH, OffsetAndEpoch, TopicPartition
from tests.deep import one_in
from tests.replication.metadata.checkpoints import snapshot_bytes
from tests.replication.replica_manager.replica_manager_side import inline

T = TypeVar("T")


class Copy:
    """A follower over a disk of its own, and what it reported."""

    def __init__(self, file_system: FaultyFileSystem) -> None:
        self.events: list[Event] = []
        self.failures: list[Exception] = []
        self.file_system = file_system
        self.follower = MetadataFollower(
            log=MetadataLog(
                Log.open(
                    file_system, "/m", METADATA_PARTITION, topic_id=METADATA_TOPIC_ID, clean=True
                ),
                self.seams(inline),
            ),
            cache=MetadataCache(TrioClock()),
            sink=self.events.append,
            on_failure=self.failures.append,
        )

    def seams(self, offload: Offload) -> Seams:
        clock, chance = TrioClock(), random.Random(0)
        return Seams(clock, chance, TcpTransport(), self.file_system, offload)

    def recover(self) -> None:
        """Start again, and hear from the leader that all of the copy is committed."""
        self.follower.recover()
        self.receive(bytearray())

    def receive(self, batch: bytearray, *, high_watermark: int = 1 << 30) -> None:
        """Process a batch as the fetcher does."""
        end = self.follower.log_end_offset(METADATA_PARTITION)
        data = PartitionData(high_watermark=high_watermark, records=memoryview(batch))
        self.follower.process_partition_data(METADATA_PARTITION, end, NO_LEADER_EPOCH, data)


def copy() -> Copy:
    return Copy(FaultyFileSystem(random.Random(0)))


def batch_at(offset: int, *records: MetadataRecord, epoch: int = 0) -> bytearray:
    batch = batch_of(records, wall_ms=0)
    stamp(memoryview(batch), base_offset=offset, leader_epoch=epoch)
    return batch


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"."))


def test_batches_are_applied_in_order_and_each_at_once() -> None:
    subject = copy()
    subject.receive(batch_at(0, NoOpRecord(), topic("a"), epoch=3))
    subject.receive(batch_at(2, topic("b"), epoch=4))
    image = subject.follower.cache.image
    assert (image.offset, image.leader_epoch) == (2, 4)
    assert list(image.topics) == ["a", "b"]
    assert subject.events == [
        MetadataApplied(offset=2, leader_epoch=3, records=2),
        MetadataApplied(offset=3, leader_epoch=4, records=1),
    ]
    assert subject.follower.latest_epoch(METADATA_PARTITION) == 4
    assert subject.follower.high_watermark(METADATA_PARTITION) == 3


def test_a_restart_resumes_from_the_local_copy() -> None:
    before = copy()
    before.receive(batch_at(0, NoOpRecord(), topic("a")))
    before.receive(batch_at(2, topic("b"), epoch=1))
    after = Copy(before.file_system)
    after.recover()
    image = after.follower.cache.image
    assert (image.offset, list(image.topics)) == (2, ["a", "b"])
    after.receive(batch_at(3, topic("c"), epoch=1))
    assert list(after.follower.cache.image.topics) == ["a", "b", "c"]


@pytest.mark.conformance("KR-538")
def test_a_restart_shows_no_record_that_the_leader_has_not_called_committed() -> None:
    """Apache Kafka's leader sends observers what a majority may not have, and may never have."""
    before = copy()
    before.receive(batch_at(0, NoOpRecord(), topic("a")))
    before.receive(batch_at(2, topic("lost"), epoch=1), high_watermark=2)
    assert list(before.follower.cache.image.topics) == ["a"]
    after = Copy(before.file_system)
    after.follower.recover()
    assert after.follower.cache.image == MetadataImage(), "the leader has said nothing yet"
    after.receive(bytearray(), high_watermark=-1)
    assert after.follower.cache.image == MetadataImage(), "the leader does not know it yet"
    after.receive(bytearray(), high_watermark=2)
    assert list(after.follower.cache.image.topics) == ["a"]
    after.follower.truncate_to(METADATA_PARTITION, 2, completed=True)
    after.receive(batch_at(2, topic("kept"), epoch=2))
    assert list(after.follower.cache.image.topics) == ["a", "kept"]
    assert [each for each in after.events if isinstance(each, MetadataApplied)] == [
        MetadataApplied(offset=2, leader_epoch=0, records=2),
        MetadataApplied(offset=3, leader_epoch=2, records=1),
    ]


def test_what_is_cut_from_the_copy_is_cut_from_the_image() -> None:
    subject = copy()
    subject.receive(batch_at(0, NoOpRecord(), topic("a")))
    subject.receive(batch_at(2, topic("lost"), epoch=1))
    subject.follower.truncate_to(METADATA_PARTITION, 2, completed=True)
    assert list(subject.follower.cache.image.topics) == ["a"]
    subject.receive(batch_at(2, topic("kept"), epoch=2))
    assert list(subject.follower.cache.image.topics) == ["a", "kept"]


def test_a_record_of_a_newer_release_ends_the_broker_and_not_the_truth() -> None:
    subject = copy()
    unknown = bytearray(encode_batch([Record(timestamp=0, value=b"\x01\x7f\x00")], leader_epoch=0))
    with pytest.raises(MetadataError, match="unknown metadata record 127"):
        subject.receive(unknown)
    assert [type(failure) for failure in subject.failures] == [MetadataError]
    assert subject.follower.cache.image.offset == -1


async def test_a_large_batch_is_applied_before_the_next_fetch(autojump_clock: MockClock) -> None:
    subject = copy()
    subject.receive(batch_at(0, NoOpRecord(), *(topic(str(each)) for each in range(STEP))))
    assert subject.follower.cache.image == MetadataImage()
    await subject.follower.apply_appended()
    assert len(subject.follower.cache.image.topics) == STEP
    assert subject.events == [MetadataApplied(offset=STEP + 1, leader_epoch=0, records=STEP + 1)]


async def test_a_large_batch_that_is_cut_while_it_is_applied_is_not_shown(
    autojump_clock: MockClock,
) -> None:
    subject = copy()

    async def cutting(fn: Callable[[], T], /) -> T:
        result = fn()
        subject.follower.truncate_to(METADATA_PARTITION, 0, completed=True)
        return result

    subject.follower.log.seams = subject.seams(cutting)
    subject.receive(batch_at(0, *(topic(str(each)) for each in range(STEP + 1))))
    await subject.follower.apply_appended()
    assert subject.follower.cache.image == MetadataImage()


async def test_a_large_batch_that_cannot_be_applied_ends_the_broker(
    autojump_clock: MockClock,
) -> None:
    subject = copy()
    subject.receive(batch_at(0, *[topic("twice")] * (STEP + 1)))
    with pytest.raises(PeerUnavailableError, match="created twice"):
        await subject.follower.apply_appended()
    assert [type(failure) for failure in subject.failures] == [MetadataError]
    assert subject.follower.cache.image == MetadataImage()


@pytest.mark.parametrize("operation", ["write", "read"])
def test_a_disk_that_fails_ends_the_broker(operation: str) -> None:
    """What was appended is read again to be applied."""
    subject = copy()
    subject.file_system.disk.faults.append(Fault(operation=operation, names="*.log"))
    with pytest.raises(KafkaStorageError):
        subject.receive(batch_at(0, NoOpRecord()))
    assert [type(failure) for failure in subject.failures] == [KafkaStorageError]


def test_a_disk_that_fails_amid_a_truncation_ends_the_broker() -> None:
    subject = copy()
    subject.receive(batch_at(0, NoOpRecord()))
    subject.receive(batch_at(1, NoOpRecord()))
    subject.file_system.disk.faults.append(Fault(operation="read", names="*.index"))
    with pytest.raises(KafkaStorageError):
        subject.follower.truncate_to(METADATA_PARTITION, 1, completed=True)
    assert [type(failure) for failure in subject.failures] == [KafkaStorageError]


def test_only_the_metadata_log_is_kept_here() -> None:
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        copy().follower.log_end_offset(TopicPartition("t", 0))


async def test_a_waiting_task_gets_the_first_matching_image(
    autojump_clock: MockClock,
) -> None:
    cache = copy().follower.cache
    assert not await cache.wait_at_most(lambda image: image.offset >= 0, timeout_ms=500)
    subject = copy()
    subject.receive(batch_at(0, NoOpRecord()))
    image = await subject.follower.cache.wait_for(lambda image: image.offset >= 0)
    assert image.offset == 0
    assert await subject.follower.cache.wait_at_most(lambda image: True, timeout_ms=0)


# Its snapshots.


async def test_what_was_fetched_is_shown_before_a_question_about_it_is_answered(
    autojump_clock: MockClock,
) -> None:
    clock = TrioClock()
    fetched, shown = MetadataCache(clock), MetadataCache(clock)
    await shown.catch_up()  # before anything is fetched there is nothing to wait for
    shown.fetched = fetched
    fetched.publish(MetadataImage(offset=7))

    async def show() -> None:
        await clock.sleep(0.2)
        shown.publish(fetched.image)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(show)
        await shown.catch_up()
        assert shown.image.offset == 7
    fetched.publish(MetadataImage(offset=8))
    began = clock.now()
    await shown.catch_up()
    assert clock.now() - began == pytest.approx(CATCH_UP_MS / 1000)


def filled(subject: Copy, numbers: range) -> None:
    for number in numbers:
        end = subject.follower.log_end_offset(METADATA_PARTITION)
        subject.receive(batch_at(end, topic(f"topic-{number}"), epoch=1))


async def test_the_copy_is_cut_below_its_own_snapshot(autojump_clock: MockClock) -> None:
    subject = copy()
    filled(subject, range(5))
    await subject.follower.log.take_snapshot()
    assert subject.follower.log_start_offset(METADATA_PARTITION) == 5
    assert subject.follower.latest_epoch(METADATA_PARTITION) == 1
    filled(subject, range(5, 8))
    again = Copy(subject.file_system)
    again.recover()
    assert again.follower.cache.image == subject.follower.cache.image
    assert again.follower.log_start_offset(METADATA_PARTITION) == 5
    filled(again, range(8, 9))
    assert len(again.follower.cache.image.topics) == 9
    assert again.failures == []


async def test_a_copy_that_lost_its_log_goes_on_from_its_snapshot(
    autojump_clock: MockClock,
) -> None:
    subject = copy()
    filled(subject, range(5))
    await subject.follower.log.take_snapshot()
    for name in subject.file_system.list_directory("/m"):
        if not name.endswith(".checkpoint"):
            subject.file_system.remove(f"/m/{name}")
    again = Copy(subject.file_system)
    again.follower.recover()
    assert again.follower.log_end_offset(METADATA_PARTITION) == 5
    assert again.follower.latest_epoch(METADATA_PARTITION) == 1, "the snapshot's"
    assert again.follower.cache.image == subject.follower.cache.image


@pytest.mark.parametrize("damage", ["flipped", "gone"])
async def test_without_its_snapshot_a_cut_copy_is_begun_anew(
    autojump_clock: MockClock, damage: str
) -> None:
    subject = copy()
    filled(subject, range(5))
    await subject.follower.log.take_snapshot()
    filled(subject, range(5, 7))
    path = f"/m/{checkpoint_name(OffsetAndEpoch(5, 1))}"
    if damage == "gone":
        subject.file_system.remove(path)
    else:
        subject.file_system.disk.flip_bit(path, 30)
    again = Copy(subject.file_system)
    again.follower.recover()
    assert again.follower.log_end_offset(METADATA_PARTITION) == 0
    assert again.follower.cache.image == MetadataImage()
    filled(again, range(2))
    assert len(again.follower.cache.image.topics) == 2


async def test_what_was_shown_stays_until_there_is_as_much_again(
    autojump_clock: MockClock,
) -> None:
    """Or a broker would delete the partitions of every topic that it has not heard of again."""
    subject = copy()
    filled(subject, range(5))
    await subject.follower.log.take_snapshot()
    shown = subject.follower.cache.image
    subject.follower.truncate_to(METADATA_PARTITION, 3, completed=True)
    assert subject.follower.log_end_offset(METADATA_PARTITION) == 0
    subject.receive(batch_at(0, topic("a")), high_watermark=2)
    assert subject.follower.cache.image is shown
    subject.receive(batch_at(1, topic("b")), high_watermark=2)
    assert list(subject.follower.cache.image.topics) == ["a", "b"]


async def install(subject: Copy, image: MetadataImage) -> None:
    received = subject.follower.receive_snapshot(snapshot_id(image))
    received.append(snapshot_bytes(image))
    await subject.follower.install(received)


async def test_a_snapshot_of_the_controllers_takes_the_place_of_the_copy(
    autojump_clock: MockClock,
) -> None:
    subject = copy()
    filled(subject, range(2))
    image = MetadataImage().apply_all([topic("x"), topic("y")], offset=40, leader_epoch=3)
    await install(subject, image)
    assert subject.follower.cache.image == image
    assert subject.follower.log_end_offset(METADATA_PARTITION) == 41
    assert subject.follower.latest_epoch(METADATA_PARTITION) == 3
    subject.receive(batch_at(41, topic("z"), epoch=3))
    again = Copy(subject.file_system)
    again.recover()
    assert list(again.follower.cache.image.topics) == ["x", "y", "z"]


async def test_a_snapshot_taken_meanwhile_leaves_the_one_that_is_being_received(
    autojump_clock: MockClock,
) -> None:
    subject = copy()
    filled(subject, range(2))
    image = MetadataImage().apply_all([topic("x")], offset=40, leader_epoch=3)
    received = subject.follower.receive_snapshot(snapshot_id(image))
    received.append(snapshot_bytes(image))
    await subject.follower.log.take_snapshot()
    await subject.follower.install(received)
    assert subject.follower.cache.image == image
    unfinished = subject.follower.receive_snapshot(OffsetAndEpoch(50, 3))
    unfinished.append(b"a half")
    again = Copy(subject.file_system)
    again.follower.recover()
    assert again.follower.cache.image == image
    names = subject.file_system.list_directory(again.follower.log.log.directory)
    assert not [name for name in names if name.endswith(".part")]


@pytest.mark.conformance("KR-612", "KR-615")
async def test_a_snapshot_replaces_no_log_that_has_moved_on(autojump_clock: MockClock) -> None:
    """What came meanwhile may be acknowledged by now: seed 21 of the swarm with three controllers."""
    subject = copy()
    filled(subject, range(2))
    image = MetadataImage().apply_all([topic("x")], offset=40, leader_epoch=3)
    received = subject.follower.receive_snapshot(snapshot_id(image))
    received.append(snapshot_bytes(image))
    subject.receive(batch_at(2, topic("later")))
    await subject.follower.install(received)
    received.discard()
    assert subject.follower.log_end_offset(METADATA_PARTITION) == 3
    assert "later" in subject.follower.cache.image.topics


@pytest.mark.parametrize("power", one_in(2, [True, False]), ids=["power cut", "killed"])
@pytest.mark.parametrize("event", ["cut", "installed"])
async def test_a_crash_at_any_point_leaves_a_prefix_or_the_snapshot(
    autojump_clock: MockClock, event: str, power: bool
) -> None:
    """Records of the controller may be lost here: it sends them again."""
    other = MetadataImage().apply_all([topic("x")], offset=40, leader_epoch=3)
    whole = MetadataImage().apply_all(
        [topic(f"topic-{number}") for number in range(6)], offset=5, leader_epoch=1
    )
    changes, finished = 0, False
    while not finished:
        subject = copy()
        subject.file_system.die_after(changes)
        try:
            filled(subject, range(3))
            if event == "cut":
                await subject.follower.log.take_snapshot()
            else:
                await install(subject, other)
            filled(subject, range(3, 6))
            await subject.follower.log.take_snapshot()
            finished = True
        except (KafkaStorageError, OSError):
            pass
        subject.file_system.crash() if power else subject.file_system.detach()
        again = Copy(subject.file_system.reopen())
        again.recover()
        found = again.follower.cache.image
        if found.offset < other.offset:
            assert set(found.topics) == set(list(whole.topics)[: found.offset + 1])
        else:
            beyond = list(whole.topics)[3 : 3 + found.offset - other.offset]
            assert set(found.topics) == {"x", *beyond}
        assert again.follower.log_end_offset(METADATA_PARTITION) == found.offset + 1
        filled(again, range(10, 12))
        await again.follower.log.take_snapshot()
        assert again.failures == []
        changes += 1
    assert changes > 20
