"""Members of the new group protocol (KIP-848), against our own coordinators on virtual time.

The file is long because the tests share one stage, and one measure of when a group has settled.
"""

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from replication.client.admin import Admin
from replication.client.consumer import (
    CommitFailedError,
    Consumer,
    SubscriptionPattern,
)
from replication.client.consumer.group.membership import Membership, MemberState
from replication.client.consumer.group.rules.consumer_membership import ConsumerMembership
from replication.client.errors import UnsupportedVersionError
from replication.errors import ErrorCode, KafkaError
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.client.consumer.test_group_member import ALL, FOUR, QUICK, Noting
from tests.replication.client.scene import T0, Scene, now, played, scene

SERVED = QUICK | {
    "group_coordinator_rebalance_protocols": "classic,consumer",
    "group_consumer_session_timeout_ms": "6000",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_assignment_interval_ms": "0",
}


@asynccontextmanager
async def served(world: World, **properties: Any) -> AsyncIterator[Scene]:
    async with scene(world, replicas=FOUR, **(SERVED | properties)) as stage:
        yield stage


def member(stage: Scene, *topics: str, **config: Any) -> Consumer:
    config = {"group_id": "g", "group_protocol": "consumer"} | config
    return stage.consumer(*topics or ("t",), **config)


def membership(consumer: Consumer) -> ConsumerMembership:
    found = consumer._coordinator.protocol.membership
    assert isinstance(found, ConsumerMembership)
    return found


def is_stable(consumer: Consumer) -> bool:
    if isinstance(found := consumer._coordinator.protocol.membership, Membership):
        return found.state is MemberState.STABLE and not found.rejoin_needed
    return membership(consumer).state.value == "stable"


async def settle(
    *consumers: Consumer, seconds: float = 30, everything: set[TopicPartition] = ALL
) -> None:
    """Poll all of them until each partition has one owner and nobody has to reconcile.

    A member of the classic protocol may be among them.
    """
    clock = consumers[0]._seams.clock

    def is_settled() -> bool:
        owned = [tp for each in consumers for tp in each.assignment()]
        stable = all(map(is_stable, consumers))
        sizes = {len(each.assignment()) for each in consumers}
        shared = max(sizes) - min(sizes) <= 1
        return stable and shared and sorted(owned) == sorted(everything)

    deadline = clock.now() + seconds
    while not is_settled():
        assert clock.now() < deadline, [
            (each.assignment(), each._coordinator.protocol.membership) for each in consumers
        ]
        async with trio.open_nursery() as nursery:
            for each in consumers:
                nursery.start_soon(each.poll, 200)


async def pass_time(world: World, seconds: float, *consumers: Consumer) -> None:
    deadline = now(world) + seconds
    while now(world) < deadline:
        for each in consumers:
            await each.poll(timeout_ms=200)


@played
async def test_members_share_partitions_one_by_one_and_take_over(world: World) -> None:
    noted = [Noting(), Noting()]
    async with served(world) as stage:
        first = member(stage)
        first.subscribe(["t"], listener=noted[0])
        async with first:
            await settle(first)
            assert first.assignment() == ALL
            second = member(stage)
            second.subscribe(["t"], listener=noted[1])
            async with second:
                await settle(first, second)
                kept = {tp.partition for tp in first.assignment()}
                assert len(kept) == 2
            await settle(first)
    taken = {0, 1, 2, 3} - kept
    assert noted[0].noted == [
        ("assigned", {0, 1, 2, 3}),
        ("revoked", taken),
        ("assigned", set()),
        ("assigned", taken),
        ("revoked", {0, 1, 2, 3}),
    ]
    assert [each for each in noted[1].noted if each[1]] == [("assigned", taken), ("revoked", taken)]


@pytest.mark.parametrize(
    "protocols",
    [
        ("consumer", "consumer", "consumer"),
        ("classic", "consumer", "classic"),
        ("consumer", "classic", "consumer"),
    ],
    ids=" ".join,
)
@played
async def test_each_record_is_read_once_while_members_come_and_go(
    world: World, protocols: tuple[str, str, str]
) -> None:
    """Revoked means committed: with automatic commits nobody reads twice, and nothing is lost."""
    read: list[tuple[int, int]] = []
    clock = world.node("consumer").clock
    async with served(world) as stage, trio.open_nursery() as nursery:

        async def write() -> None:
            async with stage.producer() as producer:
                for each in range(60):
                    await producer.send("t", b"%d" % each, partition=each % 4)
                    await clock.sleep(0.2)

        async def take_part(protocol: str, after: float, seconds: float) -> None:
            await clock.sleep(after)
            async with member(stage, group_protocol=protocol) as consumer:
                with clock.move_on_after(seconds):
                    while True:
                        record = await consumer.getone()
                        read.append((record.partition, record.offset))

        nursery.start_soon(write)
        times = [(0, 25), (3, 6), (5, 15)]
        for protocol, (after, seconds) in zip(protocols, times, strict=True):
            nursery.start_soon(take_part, protocol, after, seconds)
    assert sorted(read) == sorted((each % 4, each // 4) for each in range(60))


@played
async def test_a_partition_is_given_up_only_when_the_listener_has_returned(world: World) -> None:
    class Slow(Noting):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await world.clock("b1").sleep(3)
            assert not second.assignment(), "nobody has them before"
            await super().on_partitions_revoked(partitions)

    listener = Slow()
    async with served(world) as stage:
        first, second = member(stage), member(stage)
        first.subscribe(["t"], listener=listener)
        async with first:
            await settle(first)
            async with second, trio.open_nursery() as nursery:
                nursery.start_soon(pass_time, world, 10, second)
                await pass_time(world, 10, first)
    assert listener.noted[1][0] == "revoked"


@played
async def test_a_coordinator_that_dies_during_a_reconciliation_is_replaced(world: World) -> None:
    killed: list[str] = []

    class Killing(Noting):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await super().on_partitions_revoked(partitions)
            known = first._coordinator.finder.known
            if not killed and known is not None:
                killed.append(known.host)
                await stage.cluster.kill(known.host)

    replicas = {"offsets_topic_replication_factor": "3"}
    async with scene(world, brokers=3, replicas=((1, 2, 3),) * 4, **(SERVED | replicas)) as stage:
        first, second = member(stage), member(stage)
        first.subscribe(["t"], listener=Killing())
        async with first:
            await settle(first)
            await stage.produce("a", acks="all")
            assert (await first.getone()).value == b"a"
            async with second:
                await settle(first, second, seconds=60)
                assert len(second.assignment()) == 2
                assert killed
                await first.commit()
                committed = await first.committed(T0)
                assert committed is not None
                assert committed.offset == 1


@played
async def test_a_coordinator_that_has_handed_its_groups_over_rests(world: World) -> None:
    """The time limits of a member go on where its group is; the former coordinator spun on them."""
    replicas = {"offsets_topic_replication_factor": "3"}
    async with (
        scene(world, brokers=3, replicas=((1, 2, 3),) * 4, **(SERVED | replicas)) as stage,
        member(stage) as consumer,
    ):
        await settle(consumer)
        former = consumer._coordinator.finder.known
        assert former is not None
        cluster = stage.cluster
        before = cluster.brokers[former.host].groups
        [[_, hosted]] = [each for shard in before.shards.values() for each in shard]
        world.network.isolate(former.host)
        await settle(consumer, seconds=60)
        await pass_time(world, 10, consumer)
        world.network.heal_all()
        await pass_time(world, 10, consumer)
        assert hosted.next_deadline_ms is None


@played
async def test_a_join_that_was_written_and_answered_with_an_error_expires(world: World) -> None:
    """Its member had no session, and kept its partitions, and its instance id, for ever."""
    replicas = {"offsets_topic_replication_factor": "3", "offsets_commit_timeout_ms": "2000"}
    async with scene(world, brokers=3, replicas=((1, 2, 3),) * 4, **(SERVED | replicas)) as stage:
        async with member(stage) as first:
            await settle(first)
            assert first._coordinator.finder.known is not None
            coordinator = first._coordinator.finder.known.host
        others = set(stage.cluster.broker_names) - {coordinator}
        for each in others:
            world.network.cut(coordinator, each)
        async with member(stage, group_instance_id="one") as joins:
            await pass_time(world, 4, joins)
            assert membership(joins).may_hold_instance_id
            for each in others:
                world.network.heal(coordinator, each)
            await settle(joins, seconds=40)


@played
async def test_a_member_that_is_cut_off_loses_everything_and_joins_again(world: World) -> None:
    listener = Noting()
    async with served(world) as stage:
        lost = member(stage, enable_auto_commit=False)
        lost.subscribe(["t"], listener=listener)
        async with lost:
            await settle(lost)
            await stage.produce("a")
            await lost.getone()
            before = membership(lost).member_id
            world.network.isolate("consumer")
            await world.clock("b1").sleep(15)
            world.network.heal_all()
            with pytest.raises(CommitFailedError):
                await lost.commit()
            await settle(lost)
            assert [what for what, _ in listener.noted] == ["assigned", "lost", "assigned"]
            assert membership(lost).member_id == before, "the id is its own (KIP-1082)"
            assert (await lost.getone()).value == b"a", "it was not committed"


@played
async def test_a_member_that_does_not_poll_leaves_and_comes_back(world: World) -> None:
    listener = Noting()
    async with served(world) as stage:
        slow = member(stage, max_poll_interval_ms=10_000, enable_auto_commit=False)
        slow.subscribe(["t"], listener=listener)
        async with slow, member(stage) as other:
            await settle(slow, other)
            await stage.produce("a", partition=min(slow.assignment()).partition)
            await slow.getone()
            await pass_time(world, 15, other)
            assert other.assignment() == ALL
            with pytest.raises(CommitFailedError):
                await slow.commit()
            await settle(slow, other)
    said = [what for what, partitions in listener.noted if partitions]
    assert said.count("lost") == 1
    assert said[-2:] == ["assigned", "revoked"]
    assert said.index("lost") < len(said) - 2


@played
async def test_a_static_member_that_comes_back_keeps_its_place(world: World) -> None:
    async with served(world) as stage:
        listener = Noting()
        staying = member(stage, group_instance_id="one")
        staying.subscribe(["t"], listener=listener)
        async with staying:
            async with member(stage, group_instance_id="two") as leaving:
                await settle(staying, leaving)
                had = leaving.assignment()
            noted = list(listener.noted)
            await pass_time(world, 4, staying)
            async with member(stage, group_instance_id="two") as back:
                await settle(staying, back)
                assert back.assignment() == had
            assert listener.noted == noted, "nobody was disturbed"


@played
async def test_an_instance_id_that_is_in_use_is_refused_for_good(world: World) -> None:
    async with served(world) as stage, member(stage, group_instance_id="one") as first:
        await settle(first)
        async with member(stage, group_instance_id="one") as second:
            for _ in range(2):
                with pytest.raises(KafkaError, match="owned by") as refused:
                    await pass_time(world, 5, second)
                assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        await settle(first)


@played
async def test_a_static_member_whose_join_was_not_answered_is_not_in_its_own_way(
    world: World,
) -> None:
    async with served(world) as stage:
        consumer = member(stage, group_instance_id="one", request_timeout_ms=2_000)
        async with consumer:
            await consumer.poll(timeout_ms=100)
            # The request has arrived by then, and its response is lost.
            while membership(consumer).due_ms is not None:
                await consumer.poll(timeout_ms=1)
            world.network.isolate("consumer")
            await world.clock("b1").sleep(3)
            world.network.heal_all()
            await settle(consumer, seconds=60)


@played
async def test_brokers_match_a_pattern_and_topics_come_and_go(world: World) -> None:
    async with served(world) as stage:
        consumer = stage.consumer(group_id="g", group_protocol="consumer")
        consumer.subscribe(pattern=SubscriptionPattern("t.*"))
        async with consumer:
            await stage.produce("a")
            assert (await consumer.getone()).value == b"a"
            assert consumer.subscription() == frozenset()
            await settle(consumer)
            await stage.client.create_topic("t-more", ((1,),))
            await stage.client.create_topic("other", ((1,),))
            more = TopicPartition("t-more", 0)
            await settle(consumer, everything=ALL | {more})
            await consumer.unsubscribe()
            consumer.subscribe(["t"])
            await settle(consumer)


@played
async def test_a_pattern_that_is_none_is_an_error_and_another_may_follow(world: World) -> None:
    async with served(world) as stage:
        consumer = stage.consumer(group_id="g", group_protocol="consumer")
        consumer.subscribe(pattern=SubscriptionPattern("t("))
        async with consumer:
            with pytest.raises(KafkaError) as refused:
                await pass_time(world, 10, consumer)
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
            await consumer.unsubscribe()
            consumer.subscribe(pattern=SubscriptionPattern("t"))
            await settle(consumer)


@played
async def test_a_compiled_pattern_is_matched_by_the_consumer(world: World) -> None:
    async with served(world) as stage:
        consumer = stage.consumer(
            group_id="g", group_protocol="consumer", metadata_max_age_ms=2_000
        )
        consumer.subscribe(pattern=re.compile("t(?!-less).*"))
        async with consumer:
            await settle(consumer)
            await stage.client.create_topic("t-less", ((1,),))
            await stage.client.create_topic("t-more", ((1,),))
            await settle(consumer, everything=ALL | {TopicPartition("t-more", 0)})
            assert consumer.subscription() == {"t", "t-more"}


@played
async def test_other_topics_and_another_assignor(world: World) -> None:
    async with served(world) as stage:
        await stage.client.create_topic("u", ((1,),) * 2)
        async with member(stage, group_remote_assignor="range") as consumer:
            await settle(consumer)
            consumer.subscribe(["u"])
            both = {TopicPartition("u", 0), TopicPartition("u", 1)}
            await settle(consumer, everything=both)
            assert consumer.group_metadata().generation_id >= 2
        async with member(stage, group_remote_assignor="none") as refused:
            with pytest.raises(KafkaError) as error:
                await pass_time(world, 5, refused)
            assert error.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@played
async def test_a_classic_member_and_a_new_one_are_in_one_group(world: World, strategy: str) -> None:
    """The group changes its type twice while the classic member stays."""
    async with (
        served(world) as stage,
        Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin,
    ):

        async def group_type() -> tuple[str, list[bool]]:
            group = (await admin.describe_groups(["g"]))["g"]
            return group.type, sorted(bool(each.upgraded) for each in group.members)

        classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy}
        async with member(stage, **classic) as stays:
            await settle(stays)
            assert await group_type() == ("classic", [False])
            async with member(stage) as new:
                await settle(stays, new)
                assert await group_type() == ("consumer", [False, True])
                async with member(stage, **classic) as late:
                    await settle(stays, new, late)
                    assert await group_type() == ("consumer", [False, False, True])
                await settle(stays, new)
            await settle(stays)
            assert await group_type() == ("classic", [False])


@played
async def test_a_cluster_without_the_protocol_says_so(world: World) -> None:
    async with (
        scene(
            world, replicas=FOUR, **QUICK, group_coordinator_rebalance_protocols="classic"
        ) as stage,
        member(stage) as consumer,
    ):
        for _ in range(2):
            with pytest.raises(UnsupportedVersionError, match=r"group\.protocol=classic"):
                await pass_time(world, 5, consumer)


@played
async def test_a_commit_waits_for_the_epoch_that_the_coordinator_has(world: World) -> None:
    """STALE_MEMBER_EPOCH is no failure: the next heartbeat brings the newer epoch."""
    async with served(world, group_consumer_session_timeout_ms="30000") as stage:
        await stage.client.create_topic("u", ((1,),))
        elsewhere = Consumer(
            "u",
            seams=world.node("elsewhere"),
            bootstrap_servers=stage.bootstrap_servers,
            group_id="g",
            group_protocol="consumer",
        )
        first = member(stage, enable_auto_commit=False)
        async with first, elsewhere, trio.open_nursery() as nursery:
            await settle(first)
            before = membership(first).member_epoch
            world.network.cut("b1", "consumer", one_way=True)
            # The group goes on to another epoch, which the member does not hear of.
            await pass_time(world, 5, elsewhere)
            nursery.start_soon(partial(first.commit, {T0: 1}))
            await world.clock("b1").sleep(1)
            world.network.heal_all()
            while (found := await first.committed(T0)) is None:
                await world.clock("b1").sleep(0.1)
            assert found.offset == 1
            assert membership(first).member_epoch > before
