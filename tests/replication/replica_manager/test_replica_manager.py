"""Requests to a broker's replicas: what they are answered, and when.

The file is long because each request, and each failure of a disk, has its cases here.
"""

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.events import IsrChanged, IsrChangeProposed
from replication.leader.rules.fetch_data import FetchInfo, FetchParams, Isolation, TopicIdPartition
from replication.wire.fetch import PartitionData
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT
from storage.testing import FaultyFileSystem
from storage.testing.disk import Fault
from storage.types import TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    TOPIC_ID,
    batch,
    consumer_params,
    follower_params,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node, beside

T = TypeVar("T")

ALL = (LOCAL, REMOTE, OTHER)


# Produce.


@pytest.mark.conformance("RM-1")
async def test_acks_of_no_known_kind_are_refused(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        result = await node.produce(acks=3)
        assert result.error is ErrorCode.INVALID_REQUIRED_ACKS
        assert node.state().log_end_offset == 0


@pytest.mark.parametrize("acks", [0, 1])
async def test_acks_of_the_leader_alone_do_not_wait(autojump_clock: MockClock, acks: int) -> None:
    async with Node().running() as node:
        await node.lead()
        started = CLOCK.now()
        first, second = await node.produce(3, acks=acks), await node.produce(2, acks=acks)
        assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
        assert (second.base_offset, second.log_start_offset) == (3, 0)
        assert CLOCK.now() == started
        assert node.state().high_watermark == 0


@pytest.mark.conformance("RM-12")
async def test_acks_all_waits_for_the_followers(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        async with beside(partial(node.produce, 3, acks=-1)) as produced:
            assert not produced.done
            await node.follow(0)
            assert not produced.done
            await node.follow(3)
        assert produced.result.error is ErrorCode.NONE
        assert produced.result.base_offset == 0
        assert produced.at == pytest.approx(0.05)
        assert node.state().high_watermark == 3
        assert node.manager.purgatories.produce.waiting == 0


async def test_acks_all_of_a_lonely_leader_does_not_wait(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,))
        assert (await node.produce(acks=-1)).error is ErrorCode.NONE
        assert CLOCK.now() == 0


async def test_what_is_not_replicated_in_time_is_timed_out_and_stays(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        result = await node.produce(acks=-1, timeout_ms=700)
        assert result.error is ErrorCode.REQUEST_TIMED_OUT
        assert CLOCK.now() == pytest.approx(0.7)
        assert node.state().log_end_offset == 1
        assert node.manager.purgatories.produce.expired == 1


async def test_below_the_minimum_isr_acks_all_is_refused_and_what_was_appended_waits(
    autojump_clock: MockClock,
) -> None:
    two = {"min.insync.replicas": "2"}
    async with Node().running() as node:
        await node.learn(registration(isr=(LOCAL, REMOTE), replicas=ALL), configs=two)
        async with beside(partial(node.produce, acks=-1, timeout_ms=10_000)) as produced:
            await node.learn(
                registration(isr=(LOCAL,), replicas=ALL, partition_epoch=2), configs=two
            )
            refused = await node.produce(acks=-1)
            assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
            assert node.state().log_end_offset == 1
            await node.follow(1)
            await node.follow(1, replica=OTHER)
            # The follower that has caught up joins, and what waited is committed then.
            assert not produced.done
        assert produced.result.error is ErrorCode.NONE
        assert produced.at == pytest.approx(0.06)


@pytest.mark.conformance("RM-2")
@pytest.mark.conformance("RM-45")
async def test_a_waiting_produce_is_answered_when_the_leadership_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        async with beside(partial(node.produce, acks=-1)) as produced:
            await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert produced.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produced.at == pytest.approx(0.05)


@pytest.mark.conformance("RM-19")
@pytest.mark.conformance("RM-18")
async def test_a_wait_for_a_deleted_topic_is_answered(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        waiting = consumer_params(max_wait_ms=5000)
        async with (
            beside(partial(node.produce, acks=-1)) as produced,
            beside(partial(node.fetch, waiting, p0=FetchInfo(0))) as fetched,
        ):
            await node.learn()
        assert produced.result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert fetched.result[0][1].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert fetched.at < 1
        assert node.logs.get(TP) is None


async def test_what_is_not_hosted_is_refused(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(registration(replicas=(REMOTE, OTHER), leader=REMOTE, isr=(REMOTE,)))
        assert (await node.produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        nowhere = await node.produce(to=TopicPartition("nowhere", 0))
        assert nowhere.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = await node.produce(to=TopicPartition("__consumer_offsets", 0))
        assert internal.error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.conformance("RM-3")
async def test_records_that_are_refused_change_nothing_and_say_where_the_log_starts(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,))
        two = memoryview(bytearray(batch(2)) + bytearray(batch(2)))
        result = await node.produce(records=two, acks=-1)
        assert (result.error, result.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)
        records = batch(2)
        records[-1] ^= 0xFF
        result = await node.produce(records=records, acks=-1)
        assert (result.error, result.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert node.state().log_end_offset == 0


# Fetch.


def wanting(min_bytes: int = 1, max_wait_ms: int = 5000) -> FetchParams:
    return follower_params(min_bytes=min_bytes, max_wait_ms=max_wait_ms)


async def test_a_fetch_waits_for_an_append(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        async with beside(partial(node.fetch, wanting(), p0=FetchInfo(0))) as fetched:
            assert not fetched.done
            await node.produce(2)
        [(_, answer)] = fetched.result
        assert answer.records is not None
        assert answer.records.size == node.manager.hosted.get(TP).log.size
        assert fetched.at == pytest.approx(0.05)


async def test_a_fetch_waits_no_longer_than_it_said(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        [(_, answer)] = await node.fetch(wanting(max_wait_ms=300), p0=FetchInfo(0))
        assert CLOCK.now() == pytest.approx(0.3)
        assert (answer.error, answer.records) == (ErrorCode.NONE, None)
        assert node.manager.purgatories.fetch.expired == 1


async def test_a_fetch_waits_until_enough_partitions_together_have_enough(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(), registration())
        size = len(batch())
        params = wanting(min_bytes=2 * size)
        call = partial(node.fetch, params, p0=FetchInfo(0), p1=FetchInfo(0))
        async with beside(call) as fetched:
            await node.produce(to=TP)
            await CLOCK.sleep(0.05)
            assert not fetched.done
            await node.produce(to=SECOND)
        assert [answer.records_size for _, answer in fetched.result] == [size, size]
        assert fetched.at == pytest.approx(0.1)


async def test_a_follower_is_noted_once_and_not_again_after_the_wait(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        async with beside(partial(node.fetch, wanting(), p0=FetchInfo(0))):
            followers = node.manager.hosted.get(TP).leadership
            assert followers is not None
            assert followers.followers[REMOTE].last_fetch_ms == 0
            await node.produce()
        assert followers.followers[REMOTE].last_fetch_ms == 0


async def test_a_fetch_that_commits_gets_the_new_high_watermark_after_its_wait(
    autojump_clock: MockClock,
) -> None:
    """And not a round later; found by a story whose last follower lagged behind."""
    async with Node().running() as node:
        await node.lead()
        await node.produce()
        [(_, answer)] = await node.fetch(wanting(max_wait_ms=300), p0=FetchInfo(1))
        assert CLOCK.now() == pytest.approx(0.3)
        assert answer.high_watermark == node.state().high_watermark == 1


async def test_partitions_share_the_limit_and_the_first_gives_at_least_a_batch(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(), registration())
        for each in (TP, SECOND):
            await node.produce(10, to=each)
        size = len(batch(10))
        params = FetchParams(
            replica_id=REMOTE,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=10,
            isolation=Isolation.LOG_END,
        )
        answers = await node.fetch(params, p1=FetchInfo(0), p0=FetchInfo(0))
        assert [answer.records_size for _, answer in answers] == [size, 0]
        assert node.state(TP).log_end_offset == 10


async def test_limits_below_zero_are_no_limits_to_a_first_batch(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce()
        params = follower_params(min_bytes=-5, max_wait_ms=-5)
        [(_, answer)] = await node.fetch(params, p0=FetchInfo(0, max_bytes=-7))
        assert answer.records_size == len(batch())
        [(_, answer)] = await node.fetch(params, p0=FetchInfo(-3))
        assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.conformance("RM-10")
async def test_another_topic_id_is_inconsistent_and_none_is_not(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        for topic_id, expected in (
            (bytes(16), ErrorCode.NONE),
            (TOPIC_ID, ErrorCode.NONE),
            (bytes([9]) * 16, ErrorCode.INCONSISTENT_TOPIC_ID),
        ):
            wanted = [(TopicIdPartition(topic_id, "topic", 0), FetchInfo(0))]
            [(_, answer)] = await node.manager.fetch.fetch(follower_params(), wanted)
            assert answer.error is expected


@pytest.mark.conformance("RM-11")
async def test_a_follower_of_one_partition_is_refused_the_other(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(registration(), registration(replicas=(LOCAL, OTHER), isr=(LOCAL, OTHER)))
        for each in (TP, SECOND):
            await node.produce(to=each)
        at_end = FetchInfo(1, current_leader_epoch=1)
        answers = await node.fetch(wanting(), p0=FetchInfo(0, current_leader_epoch=1), p1=at_end)
        (_, first), (_, second) = answers
        assert first.records is not None
        assert (second.error, second.high_watermark) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        [(_, answer), _] = await node.fetch(wanting(), p0=at_end, p1=at_end)
        # What is answered is as of before this fetch was counted.
        assert (answer.high_watermark, node.state(TP).high_watermark) == (0, 1)
        assert node.state(SECOND).high_watermark == 0


@pytest.mark.conformance("RM-15")
@pytest.mark.conformance("RM-16")
@pytest.mark.conformance("RM-46")
@pytest.mark.parametrize(
    ("current", "expected"),
    [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.FENCED_LEADER_EPOCH)],
)
async def test_a_waiting_fetch_is_answered_when_the_leadership_is_lost(
    autojump_clock: MockClock, current: int, expected: ErrorCode
) -> None:
    async with Node().running() as node:
        await node.lead()
        params = consumer_params(knows_followers=current >= 0, max_wait_ms=5000)
        info = FetchInfo(0, current_leader_epoch=current)
        async with beside(partial(node.fetch, params, p0=info)) as fetched:
            await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert fetched.result[0][1].error is expected
        assert fetched.at < 1


async def test_a_consumer_is_woken_by_the_high_watermark_and_not_by_an_append(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        params = consumer_params(max_wait_ms=5000)
        async with beside(partial(node.fetch, params, p0=FetchInfo(0))) as fetched:
            await node.produce()
            await CLOCK.sleep(0.05)
            assert not fetched.done
            await node.follow(1)
        assert fetched.result[0][1].records is not None


async def test_a_consumer_of_a_follower_is_woken_when_the_leader_tells_the_high_watermark(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE))
        node.manager.replicas.process_partition_data(
            TP,
            0,
            1,
            PartitionData(high_watermark=0, log_start_offset=0, records=batch(2, leader_epoch=1)),
        )
        params = consumer_params(max_wait_ms=5000)
        async with beside(partial(node.fetch, params, p0=FetchInfo(0))) as fetched:
            node.manager.replicas.process_partition_data(
                TP,
                2,
                1,
                PartitionData(high_watermark=2, log_start_offset=0, records=memoryview(b"")),
            )
            node.manager.replicas.complete_delayed_fetches()
        [(_, answer)] = fetched.result
        assert (answer.high_watermark, answer.records_size) == (2, len(batch(2)))


# The ISR, over time.


async def test_a_silent_follower_leaves_the_isr_and_is_back_when_it_has_caught_up(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce()
        async with beside(partial(node.produce, acks=-1, timeout_ms=100_000)) as produced:
            # Looked at every 15 s; 30 s is not yet too long.
            await CLOCK.sleep(44)
            assert node.state().isr == {LOCAL, REMOTE}
            await CLOCK.sleep(2)
            assert node.state().isr == {LOCAL}
        assert produced.result.error is ErrorCode.NONE
        assert node.state().high_watermark == 2
        await node.follow(1)
        await CLOCK.sleep(0.1)
        assert node.state().isr == {LOCAL}
        await node.follow(2)
        assert node.state().maximal_isr == {LOCAL, REMOTE}
        await CLOCK.sleep(0.1)
        assert node.state().isr == {LOCAL, REMOTE}
        assert node.state().partition_epoch == 3
    proposals = [event for event in node.events if isinstance(event, IsrChangeProposed)]
    changes = [event for event in node.events if isinstance(event, IsrChanged)]
    assert [(event.leaving, event.joining, event.lag) for event in proposals] == [
        ((REMOTE,), (), 2),
        ((), (REMOTE,), 0),
    ]
    assert [(event.previous_isr, event.isr) for event in changes] == [
        ((LOCAL, REMOTE), (LOCAL,)),
        ((LOCAL,), (LOCAL, REMOTE)),
    ]


@pytest.mark.conformance("PT-48b")
async def test_a_change_whose_fate_is_unknown_is_asked_for_until_it_is_decided(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.controller.error = ErrorCode.UNKNOWN_SERVER_ERROR
    async with node.running():
        await node.learn(registration(isr=(LOCAL,)))
        await node.follow(0)
        await CLOCK.sleep(1.0)
        # Not as fast as it is refused, which takes 10 ms.
        assert 15 <= len(node.controller.proposals) <= 17
        node.controller.error = ErrorCode.NONE
        await CLOCK.sleep(0.07)
        asked = len(node.controller.proposals)
        await CLOCK.sleep(1.0)
        assert len(node.controller.proposals) == asked
        assert node.state().isr == {LOCAL, REMOTE}
        assert node.state().partition_epoch == 2


# What is written down.


@pytest.mark.conformance("RM-83")
@pytest.mark.conformance("PT-51")
async def test_the_high_watermark_is_written_down_and_found_again(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.lead()
        await node.produce(5)
        await node.follow(3)
        await CLOCK.sleep(5.1)
    again = disk.reopen()
    async with Node(file_system=again).running() as node:
        await node.learn(registration(leader_epoch=2, partition_epoch=2))
        assert (node.state().high_watermark, node.state().log_end_offset) == (3, 5)


@pytest.mark.conformance("RM-85")
async def test_a_shut_down_writes_the_last_high_watermarks(autojump_clock: MockClock) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(5)
        await node.manager.shutdown()
        node.logs.shutdown(broker_epoch=101)
    async with Node(file_system=disk.reopen()).running() as node:
        assert node.logs.previous_broker_epoch == 101
        await node.learn(registration(leader_epoch=2, partition_epoch=2))
        assert node.state().high_watermark == 5


@attrs.define(eq=False)
class SlowOffload:
    """A worker that takes half a second over everything."""

    in_hand: int = 0
    most_in_hand: int = 0
    is_at_work: bool = False

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.in_hand += 1
        self.most_in_hand = max(self.most_in_hand, self.in_hand)
        try:
            await CLOCK.sleep(0.5)
            self.is_at_work = True
            return fn()
        finally:
            self.is_at_work = False
            self.in_hand -= 1


async def test_high_watermarks_are_written_by_one_at_a_time(autojump_clock: MockClock) -> None:
    """Two would write the same temporary file, and the second find it renamed away."""
    offload = SlowOffload()
    async with Node(offload=offload).running() as node:
        begun = CLOCK.now()
        await node.lead(isr=(LOCAL,))
        offload.most_in_hand = 0
        await CLOCK.sleep(begun + 5.2 - CLOCK.now())  # in the middle of the job's own
        await node.manager.shutdown()
        assert offload.most_in_hand == 1


async def test_log_starts_are_written_from_the_loop(autojump_clock: MockClock) -> None:
    """A truncation writes them there too, and must not be overtaken (log_manager, rule 4)."""
    offload = SlowOffload()
    by_worker: list[bool] = []

    class Disk(FaultyFileSystem):
        def rename(self, source: str, target: str) -> None:
            if target.endswith(LOG_START_OFFSET_CHECKPOINT):
                by_worker.append(offload.is_at_work)
            super().rename(source, target)

    async with Node(file_system=Disk(random.Random(1)), offload=offload).running() as node:
        await node.lead(isr=(LOCAL,))
        await CLOCK.sleep(70)
    assert by_worker == [False]


async def test_a_killed_one_writes_nothing_more(autojump_clock: MockClock) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(5)
        disk.detach()
        await CLOCK.sleep(100)
    async with Node(file_system=disk.reopen()).running() as node:
        assert node.logs.read_high_watermarks() == {}
        assert not node.logs.clean
        await node.learn(registration(leader_epoch=2, partition_epoch=2))
        assert (node.state().high_watermark, node.state().log_end_offset) == (0, 5)


# Disks.


async def test_a_disk_that_fails_takes_what_lies_on_it_offline_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    config = BrokerConfig(node_id=LOCAL, log_dirs=("/a", "/b"))
    async with Node(file_system=disk, config=config).running() as node:
        await node.learn(*[registration(partition_epoch=0) for _ in range(4)])
        partitions = [TopicPartition("topic", number) for number in range(4)]
        for each in partitions:
            await node.produce(to=each)
        waiting = consumer_params(max_wait_ms=5000)
        async with beside(partial(node.fetch, waiting, p2=FetchInfo(0))) as fetched:
            disk.inject(Fault(operation="write", error=errno.EIO))
            broken = await node.produce(to=TP)
        assert broken.error is ErrorCode.KAFKA_STORAGE_ERROR
        homes = [each.logs for each in node.logs.directories]
        gone = [each for each in partitions if any({each, TP} <= logs.keys() for logs in homes)]
        assert len(gone) == 2
        assert sorted(node.manager.hosted.offline) == gone
        assert node.fetchers.failed == set(gone)
        assert fetched.result[0][1].error is ErrorCode.KAFKA_STORAGE_ERROR
        for each in partitions:
            expected = ErrorCode.KAFKA_STORAGE_ERROR if each in gone else ErrorCode.NONE
            assert (await node.produce(to=each)).error is expected
            listed = node.manager.offsets.list_offsets(each, timestamp=-2, isolation=None)
            assert listed.error is expected
        # With the same metadata again, they stay where they are (RM-56).
        await node.learn(*[registration(partition_epoch=1) for _ in range(4)])
        assert sorted(node.manager.hosted.offline) == gone


async def test_old_records_go_leading_or_following_a_while_after_the_start(
    autojump_clock: MockClock,
) -> None:
    config = BrokerConfig(node_id=LOCAL, log_initial_task_delay_ms=30_000)
    async with Node(config=config).running() as node:
        # The records' clock begins in 1970.
        configs = {"retention.ms": "1000"}
        alone = registration(isr=(LOCAL,))
        await node.learn(alone, alone, configs=configs)
        await node.produce(3, to=TP)
        await node.produce(3, to=SECOND)
        led, followed = alone, registration(leader=REMOTE, leader_epoch=8, partition_epoch=8)
        await node.learn(led, followed, configs=configs)
        assert not node.state(SECOND).is_leader
        await CLOCK.sleep(29)
        assert node.state(TP).log_start_offset == 0
        await CLOCK.sleep(2)
        assert node.state(TP).log_start_offset == node.state(TP).log_end_offset == 3
        assert node.state(SECOND).log_start_offset == 3
        await node.produce(to=TP)
        await CLOCK.sleep(298)
        assert node.state(TP).log_start_offset == 3
        await CLOCK.sleep(2)
        assert node.state(TP).log_start_offset == 4


async def test_a_disk_that_fails_while_records_go_takes_its_partition_offline(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.learn(registration(isr=(LOCAL,)))
        await node.produce(to=TP)
        disk.inject(Fault(operation="rename", names="*.log", error=errno.EIO))
        await CLOCK.sleep(31)
        assert sorted(node.manager.hosted.offline) == [TP]


@pytest.mark.conformance("RM-47")
async def test_a_log_that_cannot_be_made_leaves_its_partition_offline(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        disk.inject(Fault(operation="open", names="*.log"))
        await node.lead()
        assert sorted(node.manager.hosted.offline) == [TP]
        assert (await node.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR


# Two of the smaller requests.


async def test_where_an_epoch_ends(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce(4)
        end = node.manager.offsets.end_of_leader_epoch(TP, leader_epoch=1, current_leader_epoch=1)
        assert (end.error, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, 1, 4)
        newer = node.manager.offsets.end_of_leader_epoch(TP, leader_epoch=2)
        assert (newer.error, newer.leader_epoch, newer.end_offset) == (ErrorCode.NONE, -1, -1)
        fenced = node.manager.offsets.end_of_leader_epoch(
            TP, leader_epoch=1, current_leader_epoch=0
        )
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
        listed = node.manager.offsets.list_offsets(
            TP, timestamp=-1, isolation=Isolation.HIGH_WATERMARK
        )
        assert (listed.offset, listed.leader_epoch) == (0, 1)
        assert node.manager.hosted.describe() == {TP: node.state()}
