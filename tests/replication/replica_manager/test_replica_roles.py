"""What newer metadata makes of a broker's replicas."""

import random

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.events import BecameFollower, BecameLeader, PartitionStopped
from replication.follower.rules.fetch_state import BrokerEndPoint, InitialFetchState
from replication.metadata.rules.image import MetadataDelta, RemovedPartition
from replication.wire.fetch import PartitionData
from storage.testing import Fault, FaultyFileSystem
from storage.types import TopicId, TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    TOPIC_ID,
    batch,
    broker,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, TP, Node


def following(
    leader: int = REMOTE, *, epoch: int, offset: int, topic_id: TopicId = TOPIC_ID, port: int = 9092
) -> InitialFetchState:
    return InitialFetchState(
        topic_id=topic_id,
        leader=BrokerEndPoint(leader, f"host{leader}", port),
        current_leader_epoch=epoch,
        init_offset=offset,
    )


@pytest.mark.conformance("RM-38")
@pytest.mark.conformance("RM-48")
async def test_a_leader_that_becomes_follower_fetches_from_its_log_end(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce(2)
        assert node.fetchers.following == {}
        # What is appended until the fetcher has let go counts.
        log = node.logs.get(TP)
        assert log is not None

        def append_once_more() -> None:
            if log.log_end_offset == 2:
                log.append_as_follower(batch(1, base_offset=2, leader_epoch=1))

        node.fetchers.on_removal = append_once_more
        await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert node.fetchers.following == {TP: following(epoch=2, offset=3)}
        assert not node.state().is_leader
        assert node.state().leader_epoch == 2
        assert (await node.produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [
        type(event) for event in node.events if isinstance(event, BecameLeader | BecameFollower)
    ] == [
        BecameLeader,
        BecameFollower,
    ]


async def test_a_smaller_minimum_commits_nothing_at_who_is_deposed_by_the_same_change(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,), min_insync_replicas=2)
        await node.produce(2)
        assert node.state().high_watermark == 0, "one copy is not enough"
        deposed = registration(leader=REMOTE, leader_epoch=9, partition_epoch=9, isr=(REMOTE,))
        await node.learn(deposed, configs={"min.insync.replicas": "1"})
        assert (node.state().high_watermark, node.state().is_leader) == (0, False)


@pytest.mark.conformance("RM-39")
async def test_a_follower_that_becomes_leader_stops_fetching(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE))
        assert set(node.fetchers.following) == {TP}
        await node.learn(registration(leader_epoch=2, partition_epoch=2, isr=(LOCAL,)))
        assert node.fetchers.following == {}
        assert node.state().leader_epoch == 2
        assert (await node.produce(acks=-1)).error is ErrorCode.NONE


async def test_a_log_without_epochs_is_fetched_from_the_high_watermark(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE))
        assert node.fetchers.following == {TP: following(epoch=1, offset=0)}


async def test_where_a_fetch_cannot_tell_a_divergence_it_starts_at_the_high_watermark(
    autojump_clock: MockClock,
) -> None:
    config = BrokerConfig(node_id=LOCAL, understudy_inter_broker_fetch_version=11)
    async with Node(config=config).running() as node:
        await node.lead()
        await node.produce(5)
        await node.follow(3)
        await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert node.fetchers.following == {TP: following(epoch=2, offset=3)}


@pytest.mark.conformance("RM-36")
@pytest.mark.conformance("RM-40")
@pytest.mark.conformance("RM-50")
async def test_only_a_new_leader_epoch_restarts_a_fetcher(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE))
        node.manager.replicas.process_partition_data(
            TP,
            0,
            1,
            PartitionData(high_watermark=1, log_start_offset=0, records=batch(2, leader_epoch=1)),
        )
        node.fetchers.calls.clear()
        await node.learn(registration(leader=REMOTE, partition_epoch=2, isr=(REMOTE,)))
        assert node.fetchers.calls == []
        assert node.state().partition_epoch == 2
        await node.learn(registration(leader=REMOTE, leader_epoch=5, partition_epoch=5))
        assert node.fetchers.calls == ["remove", "add"]
        assert node.fetchers.following == {TP: following(epoch=5, offset=2)}


async def test_without_a_leader_nobody_is_followed_until_there_is_one(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=-1))
        assert node.fetchers.following == {}
        assert node.state().leader == -1
        await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert set(node.fetchers.following) == {TP}


async def test_a_leader_that_is_back_or_elsewhere_is_followed_there(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        follows_remote = registration(leader=REMOTE)
        await node.learn(follows_remote, brokers=[broker(REMOTE, fenced=True)])
        assert node.fetchers.following == {}
        await node.learn(follows_remote, brokers=[broker(REMOTE)])
        assert node.fetchers.following == {TP: following(epoch=1, offset=0)}
        await node.learn(follows_remote, brokers=[broker(REMOTE, port=9099)])
        assert node.fetchers.following == {TP: following(epoch=1, offset=0, port=9099)}
        node.fetchers.calls.clear()
        await node.learn(follows_remote, brokers=[broker(OTHER, fenced=True)])
        assert node.fetchers.calls == []


async def test_a_follower_that_may_not_come_back_holds_nobody_up(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.follow(0)
        leads_alone = registration(isr=(LOCAL,), partition_epoch=2)
        await node.learn(leads_alone)
        await node.produce(3)
        assert node.state().high_watermark == 0
        await node.learn(leads_alone, brokers=[broker(REMOTE, fenced=True)])
        assert node.state().high_watermark == 3


@pytest.mark.conformance("RM-41")
@pytest.mark.conformance("RM-42")
@pytest.mark.conformance("RM-43")
@pytest.mark.conformance("RM-44")
@pytest.mark.parametrize("leader", [LOCAL, REMOTE])
@pytest.mark.parametrize("topic_deleted", [True, False])
async def test_a_replica_that_is_assigned_elsewhere_or_deleted_is_gone(
    autojump_clock: MockClock, leader: int, topic_deleted: bool
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=leader))
        if topic_deleted:
            await node.learn()
        else:
            elsewhere = registration(
                leader=REMOTE,
                leader_epoch=2,
                partition_epoch=2,
                replicas=(REMOTE, OTHER),
                isr=(REMOTE,),
            )
            await node.learn(elsewhere)
        assert node.manager.hosted.snapshot(TP) is None
        assert node.fetchers.following == {}
        assert node.logs.get(TP) is None
        assert not node.file_system.exists("/tmp/kafka-logs/topic-0")
    assert node.events[-1] == PartitionStopped(partition=TP, deleted=True)


@pytest.mark.conformance("RM-98")
async def test_a_topic_that_is_made_again_begins_with_an_empty_log(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(5)
        again = registration(isr=(LOCAL,), leader_epoch=0, partition_epoch=0)
        await node.learn(again, topic_id=bytes([7]) * 16)
        assert node.state().log_end_offset == 0
        log = node.logs.get(TP)
        assert log is not None
        assert log.topic_id == bytes([7]) * 16


@pytest.mark.parametrize("away", [False, True])
async def test_a_replica_takes_no_high_watermark_from_a_deleted_one_of_its_name(
    autojump_clock: MockClock, away: bool
) -> None:
    """The broker is killed before it writes the next checkpoint."""
    disk = FaultyFileSystem(random.Random(1))
    again = registration(isr=(LOCAL, REMOTE), leader_epoch=0, partition_epoch=0)

    async def make_again(node: Node) -> None:
        await node.learn(again, topic_id=bytes([7]) * 16)
        await node.produce(3)
        assert node.state().high_watermark == 0

    async with Node(file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(5)
        await node.manager.high_watermarks.write()
        if not away:
            await make_again(node)
        disk.detach()
    if away:
        disk = disk.reopen()
        async with Node(file_system=disk).running() as node:
            await make_again(node)
            disk.detach()
    async with Node(file_system=disk.reopen()).running() as node:
        await node.learn(again, topic_id=bytes([7]) * 16)
        assert (node.state().high_watermark, node.state().log_end_offset) == (0, 3)


async def test_news_of_an_old_topics_end_leave_the_new_one_of_its_name_alone(
    autojump_clock: MockClock,
) -> None:
    """A broker that starts again replays metadata, and has the new topic's log by then."""
    disk = FaultyFileSystem(random.Random(1))
    old, new = bytes([6]) * 16, bytes([7]) * 16
    async with Node(file_system=disk).running() as node:
        await node.learn(registration(isr=(LOCAL,)), topic_id=new)
        await node.produce(5)
    async with Node(file_system=disk.reopen()).running() as node:
        again = registration(isr=(LOCAL,), leader_epoch=2, partition_epoch=2)
        await node.learn(again, topic_id=new)
        image = node.image
        removed = MetadataDelta(
            changed=frozenset(),
            removed=frozenset({RemovedPartition(TP, old)}),
            reconfigured=frozenset(),
            brokers=frozenset(),
            reconfigured_brokers=frozenset(),
        )
        await node.manager.apply_metadata(image, removed)
        assert node.state().log_end_offset == 5
        of_the_new_one = attrs.evolve(removed, removed=frozenset({RemovedPartition(TP, new)}))
        await node.manager.apply_metadata(image, of_the_new_one)
        assert node.manager.hosted.snapshot(TP) is None


@pytest.mark.conformance("RM-95")
@pytest.mark.parametrize("made_again", [True, False])
async def test_what_was_deleted_while_this_broker_was_away_goes_at_the_start(
    autojump_clock: MockClock, made_again: bool
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        await node.learn(registration(isr=(LOCAL,)), topic="kept", topic_id=bytes([8]) * 16)
        await node.produce(5)
        await node.produce(3, to=TopicPartition("kept", 0))
    async with Node(file_system=disk.reopen()).running() as node:
        kept = registration(isr=(LOCAL,), leader_epoch=2, partition_epoch=2)
        if made_again:
            await node.learn(
                registration(isr=(LOCAL,), leader_epoch=0, partition_epoch=0),
                topic_id=bytes([7]) * 16,
            )
            assert node.state().log_end_offset == 0
        else:
            await node.learn(kept, topic="kept", topic_id=bytes([8]) * 16)
            assert node.state(TopicPartition("kept", 0)).log_end_offset == 3
            assert node.logs.get(TP) is None


@pytest.mark.conformance("RM-51")
async def test_a_disk_that_keeps_the_log_of_a_deleted_topic_takes_its_directory_offline(
    autojump_clock: MockClock,
) -> None:
    """The broker goes on, and applies the rest of the metadata."""
    disk = FaultyFileSystem(random.Random(1))
    config = BrokerConfig(node_id=LOCAL, log_dirs=("/a", "/b"))
    disk.inject(Fault(operation="rename", names="topic-0"))
    async with Node(file_system=disk, config=config).running() as node:
        await node.learn(*[registration(isr=(LOCAL,), partition_epoch=0) for _ in range(4)])
        await node.learn()
        assert [each.failure is not None for each in node.logs.directories] == [True, False]
        assert node.logs.logs() == []


async def test_a_disk_that_keeps_a_stray_log_takes_its_directory_offline(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    config = BrokerConfig(node_id=LOCAL, log_dirs=("/a", "/b"))
    async with Node(file_system=disk, config=config).running() as node:
        await node.learn(*[registration(isr=(LOCAL,), partition_epoch=0) for _ in range(4)])
    disk = disk.reopen()
    disk.inject(Fault(operation="rename", names="topic-0"))
    async with Node(file_system=disk, config=config).running() as node:
        await node.learn(registration(partition_epoch=0), topic="new", topic_id=bytes([8]) * 16)
        assert [each.failure is not None for each in node.logs.directories] == [True, False]
        assert [str(log.topic_partition) for log in node.logs.logs()] == ["new-0"]


async def test_on_the_way_out_a_replica_that_has_left_the_isr_stops_following(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        follows = registration(leader=REMOTE)
        await node.learn(follows, follows, follows)
        node.manager.roles.shutting_down = True
        await node.learn(
            registration(leader=REMOTE, partition_epoch=2, isr=(REMOTE,)),
            registration(leader=-1, leader_epoch=2, partition_epoch=2),
            registration(leader=REMOTE, partition_epoch=2),
        )
        assert set(node.fetchers.following) == {TopicPartition("topic", 2)}


async def test_a_changed_configuration_reaches_log_and_leader(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead(min_insync_replicas=2)
        await node.learn(
            registration(),
            configs={"min.insync.replicas": "1", "segment.bytes": "4096"},
        )
        log = node.logs.get(TP)
        assert log is not None
        assert log.config.segment_bytes == 4096
        assert (await node.produce(acks=0)).error is ErrorCode.NONE
        leadership = node.manager.hosted.get(TP).leadership
        assert leadership is not None
        assert leadership.min_insync_replicas == 1


async def test_a_larger_minimum_is_in_force_before_a_smaller_isr(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead(min_insync_replicas=1)
        await node.produce(1, acks=1)
        alone = registration(isr=(LOCAL,), partition_epoch=2)
        await node.learn(alone, configs={"min.insync.replicas": "2"})
        assert node.state().high_watermark == 0
        await node.learn(attrs.evolve(alone, partition_epoch=3), configs={})
        assert node.state().high_watermark == 1


async def test_closed_segments_are_synced_away_from_the_loop(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(registration(isr=(LOCAL,)), configs={"segment.bytes": "200"})
        for _ in range(4):
            await node.produce(1)
        log = node.logs.get(TP)
        assert log is not None
        assert log.recovery_point == 0
        await CLOCK.sleep(1.1)
        assert log.recovery_point == 4


async def test_the_start_of_a_leader_epoch_is_on_disk_when_the_metadata_is_applied(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        checkpoint = disk.open_for_reading("/tmp/kafka-logs/topic-0/leader-epoch-checkpoint")
        assert checkpoint.read(0, 100) == b"0\n1\n1 0\n"


async def test_a_disk_that_fails_while_leader_epochs_begin_takes_partitions_offline(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with Node(file_system=disk).running() as node:
        await node.learn(registration(leader=REMOTE), registration(leader=REMOTE))
        disk.inject(Fault(operation="sync", names="leader-epoch-checkpoint*"))
        leads = registration(leader_epoch=2, partition_epoch=2)
        await node.learn(leads, leads)
        both = [TopicPartition("topic", 0), TopicPartition("topic", 1)]
        assert sorted(node.manager.hosted.offline) == both
