"""Members of a group, against the real coordinators of a simulated world."""

from collections.abc import Collection
from typing import Any

import pytest
import trio

from replication.client.consumer import (
    CommitFailedError,
    Consumer,
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    FencedInstanceIdError,
    OffsetAndMetadata,
)
from replication.client.consumer.group.membership import Membership, MemberState
from replication.client.errors import IllegalStateError
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.client.scene import T0, Scene, now, play, played, scene

FOUR = ((1,),) * 4
T1, T2, T3 = (TopicPartition("t", each) for each in (1, 2, 3))
ALL = {T0, T1, T2, T3}
QUICK: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
}


class Noting(ConsumerRebalanceListener):
    """A listener that notes its calls."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, set[int]]] = []

    def note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.noted.append((what, {tp.partition for tp in partitions}))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.note("revoked", partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.note("assigned", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.note("lost", partitions)


def membership(consumer: Consumer) -> Membership:
    found = consumer._coordinator.protocol.membership
    assert isinstance(found, Membership)
    return found


async def settle(*consumers: Consumer, seconds: float = 30) -> None:
    """Poll all of them until every partition is somebody's and nobody joins."""
    clock = consumers[0]._seams.clock

    def is_settled() -> bool:
        owned = [tp for each in consumers for tp in each.assignment()]
        stable = all(
            not membership(each).rejoin_needed and membership(each).state is MemberState.STABLE
            for each in consumers
        )
        return stable and sorted(owned) == sorted(ALL)

    deadline = clock.now() + seconds
    while not is_settled():
        assert clock.now() < deadline, [each.assignment() for each in consumers]
        async with trio.open_nursery() as nursery:
            for each in consumers:
                nursery.start_soon(each.poll, 200)


def member(stage: Scene, **config: Any) -> Consumer:
    config.setdefault("group_id", "g")
    return stage.consumer("t", **config)


def test_a_member_reads_all_there_is_and_commits_it() -> None:
    committed: list[dict[TopicPartition, OffsetAndMetadata]] = []

    class Noted(ConsumerInterceptor):
        def on_commit(self, offsets: object) -> None:
            committed.append(dict(offsets))  # type: ignore[call-overload]  # a mapping

    async def story(world: World) -> None:
        async with scene(world, replicas=FOUR, **QUICK) as stage:
            for partition in range(4):
                await stage.produce("a", "b", partition=partition)
            async with member(stage, interceptors=[Noted()], enable_auto_commit=False) as consumer:
                read = [(await consumer.getone()).value for _ in range(8)]
                assert sorted(read) == sorted([b"a", b"b"] * 4)
                assert consumer.assignment() == ALL
                assert consumer.subscription() == {"t"}
                assert await consumer.committed(T0) is None
                await consumer.commit()
                assert await consumer.committed(T0) == OffsetAndMetadata(2, leader_epoch=0)
                await consumer.commit({T0: 1, T1: OffsetAndMetadata(1, "why")})
                assert (await consumer.committed(T1)) == OffsetAndMetadata(1, "why")
                assert len(committed) == 2
                metadata = consumer.group_metadata()
                assert metadata.generation_id >= 1
                assert metadata.member_id
            async with member(stage) as consumer:
                read = [await consumer.getone() for _ in range(2)]
                assert {(each.partition, each.offset) for each in read} == {(0, 1), (1, 1)}

    play(story)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@played
async def test_members_share_partitions_and_take_over_from_one_that_leaves(
    world: World, strategy: str
) -> None:
    listeners = [Noting(), Noting()]
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        first = member(stage, partition_assignment_strategy=strategy)
        first.subscribe(["t"], listener=listeners[0])
        async with first:
            await settle(first)
            assert first.assignment() == ALL
            second = member(stage, partition_assignment_strategy=strategy)
            second.subscribe(["t"], listener=listeners[1])
            async with second:
                await settle(first, second)
                assert len(first.assignment()) == len(second.assignment()) == 2
                kept = first.assignment()
            await settle(first)
        noted, others = listeners[0].noted, listeners[1].noted
        given = {tp.partition for tp in kept}
        taken = {0, 1, 2, 3} - given
        if strategy == "cooperative-sticky":
            assert noted[:2] == [("assigned", {0, 1, 2, 3}), ("revoked", taken)]
            assert ("revoked", {0, 1, 2, 3}) not in noted[1:-1], "it goes on reading"
        else:
            assert noted[:3] == [
                ("assigned", {0, 1, 2, 3}),
                ("revoked", {0, 1, 2, 3}),
                ("assigned", given),
            ]
        assert noted[-1] == ("revoked", {0, 1, 2, 3})
        assert [each for each in others if each[1]] == [("assigned", taken), ("revoked", taken)]


@played
async def test_each_record_is_read_once_while_members_come_and_go(world: World) -> None:
    """Revoked means committed: with automatic commits nobody reads twice, and nothing is lost."""
    read: list[tuple[int, int]] = []
    clock = world.node("consumer").clock
    async with scene(world, replicas=FOUR, **QUICK) as stage, trio.open_nursery() as nursery:

        async def write() -> None:
            async with stage.producer() as producer:
                for each in range(60):
                    await producer.send("t", b"%d" % each, partition=each % 4)
                    await clock.sleep(0.2)

        async def take_part(after: float, seconds: float) -> None:
            await clock.sleep(after)
            strategy = "cooperative-sticky"
            async with member(stage, partition_assignment_strategy=strategy) as consumer:
                with clock.move_on_after(seconds):
                    while True:
                        record = await consumer.getone()
                        read.append((record.partition, record.offset))

        nursery.start_soon(write)
        nursery.start_soon(take_part, 0, 25)
        nursery.start_soon(take_part, 3, 6)
        nursery.start_soon(take_part, 5, 15)
    assert sorted(read) == sorted((each % 4, each // 4) for each in range(60))


@played
async def test_a_member_that_does_not_poll_leaves_and_its_commit_fails(world: World) -> None:
    listener = Noting()
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        slow = member(stage, max_poll_interval_ms=10_000, enable_auto_commit=False)
        slow.subscribe(["t"], listener=listener)
        async with slow, member(stage) as other:
            await settle(slow, other)
            await stage.produce("a", partition=min(slow.assignment()).partition)
            await slow.getone()
            deadline = now(world) + 20
            while now(world) < deadline:
                await other.poll(timeout_ms=500)
            await settle(other)
            with pytest.raises(CommitFailedError):
                await slow.commit()
            await settle(slow, other)
            assert [what for what, _ in listener.noted][:3] == ["assigned", "lost", "assigned"]


@played
async def test_a_static_member_that_comes_back_keeps_its_place(world: World) -> None:
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        listener = Noting()
        staying = member(stage, group_instance_id="one")
        staying.subscribe(["t"], listener=listener)
        async with staying:
            async with member(stage, group_instance_id="two") as leaving:
                await settle(staying, leaving)
                had = leaving.assignment()
            noted = list(listener.noted)
            for _ in range(10):
                await staying.poll(timeout_ms=500)
            async with member(stage, group_instance_id="two") as back:
                await settle(staying, back)
                assert back.assignment() == had
            assert listener.noted == noted, "nobody was disturbed"


@played
async def test_a_pattern_follows_topics_as_they_come(world: World) -> None:
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        consumer = stage.consumer(group_id="g", metadata_max_age_ms=2_000)
        consumer.subscribe(pattern="t.*")
        async with consumer:
            await settle(consumer)
            await stage.client.create_topic("t-more", ((1,),))
            more = TopicPartition("t-more", 0)
            while more not in consumer.assignment():
                await consumer.poll(timeout_ms=500)
            assert consumer.subscription() == {"t", "t-more"}
            assert now(world) < 60


@played
async def test_a_consumer_may_commit_for_a_group_that_it_is_not_in(world: World) -> None:
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        await stage.produce("a", "b", "c")
        done: list[object] = []
        async with stage.consumer(group_id="g", auto_commit_interval_ms=1_000) as consumer:
            consumer.assign([T0])
            assert (await consumer.getone()).offset == 0
            consumer.commit_soon({T0: 1}, lambda offsets, error: done.append((offsets, error)))
            consumer.commit_soon({T0: 2}, lambda offsets, error: done.append((offsets, error)))
            await consumer.commit({T0: 3})
            assert done == [
                ({T0: OffsetAndMetadata(1)}, None),
                ({T0: OffsetAndMetadata(2)}, None),
            ]
            assert await consumer.committed(T0) == OffsetAndMetadata(3)
            deadline = now(world) + 2
            while now(world) < deadline:
                await consumer.poll(timeout_ms=100, max_records=1)
            assert await consumer.committed(T0) == OffsetAndMetadata(3, leader_epoch=0)
        async with stage.consumer(group_id="g") as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 3
        async with stage.consumer() as consumer:
            with pytest.raises(IllegalStateError, match=r"group\.id"):
                await consumer.commit()


@played
async def test_left_by_an_exception_the_record_in_hand_comes_again(world: World) -> None:
    async with scene(world, replicas=FOUR, **QUICK) as stage:
        await stage.produce("a", "b")

        async def fails() -> None:
            async with member(stage) as consumer:
                await consumer.getone()
                raise ValueError("while it was dealt with")

        with pytest.raises(ValueError, match="dealt with"):
            await fails()
        async with member(stage) as consumer:
            began = now(world)
            assert (await consumer.getone()).value == b"a"
            assert now(world) - began < 10, "it has left, so nobody waited for its session"
        async with member(stage) as consumer:
            assert (await consumer.getone()).value == b"b", "left in order, it was committed"


@played
async def test_a_coordinator_that_dies_is_replaced_by_another(world: World) -> None:
    async with (
        scene(
            world,
            brokers=3,
            replicas=((1, 2, 3),) * 4,
            **QUICK | {"offsets_topic_replication_factor": "3"},
        ) as stage,
        member(stage, session_timeout_ms=10_000) as consumer,
    ):
        await settle(consumer)
        await stage.produce("a", acks="all")
        assert (await consumer.getone()).value == b"a"
        await consumer.commit()
        coordinator = consumer._coordinator
        assert coordinator is not None
        assert coordinator.finder.known is not None
        await stage.cluster.kill(coordinator.finder.known.host)
        await stage.produce("b", acks="all")
        assert (await consumer.getone()).value == b"b"
        await consumer.commit()
        committed = await consumer.committed(T0)
        assert committed is not None
        assert committed.offset == 2


def test_calls_inside_a_listener_and_its_errors() -> None:
    class Busy(Noting):
        def __init__(self) -> None:
            super().__init__()
            self.consumer: Consumer | None = None
            self.positions: list[int] = []
            self.mishap = "cancelled"

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            assert self.consumer is not None
            self.positions += [await self.consumer.position(tp) for tp in sorted(partitions)]
            mishap, self.mishap = self.mishap, ""
            if mishap == "cancelled":
                await trio.sleep_forever()
            if mishap == "raises":
                raise ValueError("a listener's own")
            self.consumer.seek(T0, 1)
            self.note("assigned", partitions)

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            assert self.consumer is not None
            await self.consumer.commit()
            self.note("revoked", partitions)

    async def story(world: World) -> None:
        async with scene(world, replicas=FOUR, **QUICK) as stage:
            await stage.produce("a", "b", "c")
            listener = Busy()
            consumer = stage.consumer(group_id="g", enable_auto_commit=False)
            consumer.subscribe(["t"], listener=listener)
            listener.consumer = consumer
            async with consumer:
                with world.clock("consumer").move_on_after(10) as scope:
                    await consumer.getone()
                assert scope.cancelled_caught
                assert (listener.positions, listener.noted) == ([0, 0, 0, 0], [])
                record = await consumer.getone()
                assert listener.noted == [("assigned", {0, 1, 2, 3})], "called again"
                assert (record.value, record.offset) == (b"b", 1), "and fetched only after"
                consumer.enforce_rebalance()
                await settle(consumer)
                assert listener.noted[1:] == [
                    ("revoked", {0, 1, 2, 3}),
                    ("assigned", {0, 1, 2, 3}),
                ]
                committed = await consumer.committed(T0)
                assert committed is not None
                assert committed.offset == 2
                listener.mishap = "raises"
                consumer.enforce_rebalance()

                async def go_on() -> None:
                    while True:
                        await consumer.poll(timeout_ms=1000)

                with pytest.raises(ValueError, match="a listener's own"):
                    await go_on()
                assert consumer.assignment() == ALL
                assert (await consumer.getone()).topic_partition == T0, "the group goes on"

    play(story)


@played
async def test_a_member_replaced_under_its_instance_id_stays_fenced(
    world: World,
) -> None:
    async with (
        scene(world, replicas=FOUR, **QUICK) as stage,
        member(stage, group_instance_id="one") as first,
    ):
        await settle(first)
        async with member(stage, group_instance_id="one") as second:
            await settle(second)

            async def go_on() -> None:
                while True:
                    await first.poll(timeout_ms=1000)

            for _ in range(2):
                with pytest.raises(FencedInstanceIdError):
                    await go_on()
            await settle(second)


@played
async def test_unsubscribing_leaves_the_group_and_subscribing_joins_again(world: World) -> None:
    async with (
        scene(world, replicas=FOUR, **QUICK) as stage,
        member(stage) as other,
        member(stage) as consumer,
    ):
        await settle(consumer, other)
        await consumer.unsubscribe()
        assert consumer.assignment() == set()
        began = now(world)
        await settle(other)
        assert now(world) - began < 10
        with pytest.raises(IllegalStateError, match="subscribe to topics or assign"):
            await consumer.poll()
        consumer.subscribe(["t"])
        await settle(consumer, other)
        assert len(consumer.assignment()) == 2
