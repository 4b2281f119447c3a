"""The controller on virtual time: sessions, fencing, elections, and what a restart keeps.

The file is long because the rules of the controller are shown by whole runs of it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import pytest
import trio

from replication.controller.controller import Controller
from replication.controller.rules.brokers import (
    BrokerSessions,
    heartbeat,
    is_change,
    register_controller,
)
from replication.controller.rules.election import ElectionRules
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ControlledShutdownStarted,
    Event,
    LeaderElected,
    PartitionOffline,
    TopicCreated,
)
from replication.metadata.rules.image import MetadataImage, apply_batches
from replication.metadata.rules.records import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
)
from replication.net.rpc import RpcClient
from replication.net.seams import Offload
from replication.steps import STEP
from replication.wire.api_versions import METADATA_VERSION, TRANSACTION_VERSION
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.controller_registration import ControllerRegistrationRequest
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from scenarios.world.world import World
from storage.errors import InconsistentMetadataError, KafkaStorageError, LogDirectoryLockedError
from storage.testing import DiskCosts, Fault
from storage.types import TopicPartition
from tests.replication.broker.stage import played, played_in
from tests.replication.controller import images
from tests.replication.controller.images import partition_of
from tests.replication.controller.running_controller import (
    CONFIG,
    Registered,
    create_topic,
    join,
    running,
)

ORDERS = TopicPartition("orders", 0)


T = TypeVar("T")
E = TypeVar("E", bound=Event)


def events(world: World, kind: type[E]) -> list[E]:
    return [entry.event for entry in world.trace.entries if isinstance(entry.event, kind)]


@played_in(running)
async def test_a_broker_is_unfenced_when_it_has_applied_its_registration(
    controller: Controller, world: World
) -> None:
    broker = Registered(controller, 1)
    await broker.register()
    # Before it are the leader change, the levels of four features, and the minimum ISR.
    assert broker.epoch == 6
    behind = await broker.heartbeat(current_metadata_offset=5)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    assert not controller.image.is_alive(1)
    there = await broker.heartbeat(current_metadata_offset=6)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert controller.image.is_alive(1)
    stale = await broker.heartbeat(broker_epoch=1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(events(world, BrokerRegistered)) == 1
    assert len(events(world, BrokerUnfenced)) == 1


@played
async def test_a_silent_broker_is_fenced_and_its_leaderships_move(world: World) -> None:
    seams = world.node("controller")
    async with running(world) as controller, trio.open_nursery() as nursery:
        _, second, third = await join(controller, 1, 2, 3)
        await create_topic(controller, "orders", (1, 2, 3), (2, 3, 1))
        nursery.start_soon(second.keep_alive, seams)
        nursery.start_soon(third.keep_alive, seams)
        await seams.clock.sleep(8.9)
        assert partition_of(controller.image, "orders").leader == 1
        await seams.clock.sleep(0.2)
        led, followed = (partition_of(controller.image, "orders", each) for each in (0, 1))
        assert (led.leader, led.isr, led.leader_epoch, led.partition_epoch) == (2, (2, 3), 1, 1)
        # It followed there: the ISR shrinks, the leader and its epoch stay.
        assert (followed.leader, followed.isr) == (2, (2, 3))
        assert (followed.leader_epoch, followed.partition_epoch) == (0, 1)
        nursery.cancel_scope.cancel()
    (fenced,) = events(world, BrokerFenced)
    assert (fenced.broker, fenced.cause, fenced.since_heartbeat_ms) == (1, "session expired", 9001)
    assert [each for each in events(world, LeaderElected) if each.cause == "clean"] == [
        LeaderElected(
            partition=ORDERS,
            leader=2,
            leader_epoch=1,
            isr=(2, 3),
            cause="clean",
            previous_leader=1,
            reason="leader fenced",
        )
    ]


@played_in(running)
async def test_the_last_in_sync_replica_is_waited_for_and_leads_again(
    controller: Controller, world: World
) -> None:
    seams = controller.seams
    (first, second) = await join(controller, 1, 2)
    await create_topic(controller, "orders", (1,))
    await seams.clock.sleep(10)
    offline = partition_of(controller.image, "orders")
    assert (offline.leader, offline.isr, offline.leader_epoch) == (NO_LEADER, (), 1)
    assert (offline.elr, offline.last_known_elr) == ((1,), (1,))
    await second.heartbeat()
    assert partition_of(controller.image, "orders").leader == NO_LEADER
    await first.heartbeat()
    back = partition_of(controller.image, "orders")
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 2)
    assert (back.elr, back.last_known_elr) == ((), ())
    assert len(events(world, PartitionOffline)) == 1


@pytest.mark.parametrize("clean", [False, True])
@played_in(running)
async def test_a_broker_without_a_clean_shutdown_is_no_longer_eligible(
    controller: Controller, clean: bool
) -> None:
    """S49: the marker of a clean shutdown names the broker epoch that was shut down."""
    seams = controller.seams
    first, second, _ = await join(controller, 1, 2, 3)
    await create_topic(controller, "orders", (1, 2), min_insync_replicas="2")
    await seams.clock.sleep(8)
    await first.heartbeat()
    await seams.clock.sleep(8)
    alone = partition_of(controller.image, "orders")
    assert (alone.leader, alone.isr, alone.elr) == (1, (1,), (2,))
    reborn = Registered(controller, 2, incarnation=2)
    marker = second.epoch if clean else second.epoch - 1
    await reborn.register(previous_broker_epoch=marker)
    elr = partition_of(controller.image, "orders").elr
    assert elr == ((2,) if clean else ())
    await seams.clock.sleep(10)  # 1 is fenced
    await reborn.heartbeat()
    then = partition_of(controller.image, "orders")
    assert (then.leader, then.isr) == ((2, (2,)) if clean else (NO_LEADER, ()))
    assert then.elr == (1,)


@played
async def test_the_minimum_isr_of_a_cluster_is_that_of_its_first_controller(world: World) -> None:
    """Leaders and the controller must reckon by the same one, whatever their files say."""

    def minimum(controller: Controller) -> str:
        return controller.image.broker_configs[None]["min.insync.replicas"]

    async with running(world, attrs.evolve(CONFIG, min_insync_replicas=2)) as controller:
        assert minimum(controller) == "2"
    async with running(world, attrs.evolve(CONFIG, min_insync_replicas=3)) as controller:
        assert minimum(controller) == "2"


@played_in(running)
async def test_the_same_incarnation_that_registers_again_stays_in_sync(
    controller: Controller,
) -> None:
    (first,) = await join(controller, 1)
    await create_topic(controller, "orders", (1,))
    await first.register()
    assert partition_of(controller.image, "orders").leader == 1


@played_in(running, config=attrs.evolve(CONFIG, understudy_eligible_leader_replicas_version=0))
async def test_a_controller_without_eligible_leader_replicas_keeps_the_last_one_in_sync(
    controller: Controller,
) -> None:
    seams = controller.seams
    await join(controller, 1)
    await create_topic(controller, "orders", (1,))
    await seams.clock.sleep(10)
    offline = partition_of(controller.image, "orders")
    assert (offline.leader, offline.isr, offline.elr) == (NO_LEADER, (1,), ())
    reborn = Registered(controller, 1, incarnation=2)
    await reborn.register()
    await reborn.heartbeat()
    back = partition_of(controller.image, "orders")
    assert (back.leader, back.isr, back.leader_recovery_state) == (1, (1,), 0)


def test_a_new_log_begins_with_the_feature_levels_of_the_configuration() -> None:
    async def story(first: int, world: World) -> list[int]:
        levels = []
        for wanted in (first, 2, 1, 0):
            config = attrs.evolve(CONFIG, understudy_transaction_version=wanted)
            async with running(world, config) as controller:
                levels.append(controller.image.feature(TRANSACTION_VERSION))
        return levels

    for first in (2, 1):
        assert World(seed=4).run(partial(story, first)) == [first] * 4


@pytest.mark.parametrize("unclean", [False, True])
def test_an_unclean_election_needs_the_topics_configuration(unclean: bool) -> None:
    async def story(world: World) -> MetadataImage:
        seams = world.node("controller")
        async with running(world) as controller, trio.open_nursery() as nursery:
            first, second = await join(controller, 1, 2)
            nursery.start_soon(first.keep_alive, seams)
            await seams.clock.sleep(10)  # 2 is fenced, and so is not in sync
            flag = "true" if unclean else "false"
            await create_topic(controller, "orders", (1, 2), unclean_leader_election_enable=flag)
            assert partition_of(controller.image, "orders").isr == (1,)
            nursery.start_soon(second.keep_alive, seams)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return await after_silence_of_the_first(world)

    async def after_silence_of_the_first(world: World) -> MetadataImage:
        seams = world.node("controller")
        async with running(world) as controller, trio.open_nursery() as nursery:
            second = Registered(controller, 2, epoch=controller.image.brokers[2].broker_epoch)
            nursery.start_soon(second.keep_alive, seams)
            await seams.clock.sleep(10)
            nursery.cancel_scope.cancel()
        return controller.image

    partition = partition_of(World(seed=4).run(story), "orders")
    if unclean:
        assert (partition.leader, partition.isr) == (2, (2,))
        assert partition.leader_recovery_state == 1
    else:
        assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1,))


@played_in(running)
async def test_a_killed_broker_registers_again_when_its_session_has_expired(
    controller: Controller,
) -> None:
    seams = controller.seams
    (first,) = await join(controller, 1)
    reborn = Registered(controller, 1, incarnation=2)
    refused = await reborn.register()
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    # The same incarnation may say it again: an answer may have been lost.
    before = first.epoch
    await first.register()
    assert first.epoch == before
    assert controller.image.is_alive(1)
    await seams.clock.sleep(9.1)
    assert (await reborn.register()).error_code == ErrorCode.NONE
    assert reborn.epoch > first.epoch
    assert (await first.heartbeat()).error_code == ErrorCode.STALE_BROKER_EPOCH


@played_in(running)
async def test_a_broker_of_another_cluster_is_refused(controller: Controller) -> None:
    broker = Registered(controller, 1)
    refused = await broker.register(cluster_id="another")
    assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (await broker.register(listeners=[])).error_code == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    ("level", "error"), [(14, ErrorCode.UNSUPPORTED_VERSION), (15, ErrorCode.NONE)]
)
def test_a_controller_registers_since_kafka_3_7(level: int, error: ErrorCode) -> None:
    where = Endpoint(name="CONTROLLER", host="c", port=9093, security_protocol=0)
    supported = Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=33)
    asked = ControllerRegistrationRequest(
        controller_id=3003,
        incarnation_id=b"i" * 16,
        zk_migration_ready=False,
        listeners=[where],
        features=[supported],
    )
    image = MetadataImage(feature_levels={METADATA_VERSION: level})
    made = register_controller(image, asked)
    assert made.answer.error_code == error
    after = image.apply_all(made.records, offset=1, leader_epoch=1).controllers
    if error is ErrorCode.NONE:
        assert after[3003].incarnation_id == asked.incarnation_id
        assert (after[3003].endpoints, after[3003].features) == ((where,), (supported,))
    else:
        assert not after


@played_in(running)
async def test_a_controlled_shutdown_waits_until_the_others_know(
    controller: Controller, world: World
) -> None:
    first, second = await join(controller, 1, 2)
    await create_topic(controller, "orders", (1, 2))
    before = controller.image.offset
    await second.heartbeat(current_metadata_offset=before)
    leaving = await first.heartbeat(want_shut_down=True)
    assert (leaving.should_shut_down, leaving.is_fenced) == (False, False)
    moved = partition_of(controller.image, "orders")
    assert (moved.leader, moved.isr, moved.leader_epoch) == (2, (2,), 1)
    assert not (await first.heartbeat(want_shut_down=True)).should_shut_down
    await second.heartbeat()
    granted = await first.heartbeat(want_shut_down=True)
    assert (granted.should_shut_down, granted.is_fenced) == (True, True)
    # It restarts at once: its session ended with the shutdown.
    assert (await Registered(controller, 1, incarnation=2).register()).error_code == 0
    (started,) = events(world, ControlledShutdownStarted)
    assert (started.broker, started.leading) == (1, 1)
    causes = [event.cause for event in events(world, BrokerFenced)]
    assert causes == ["controlled shutdown"]


@played_in(running)
async def test_one_that_leads_nothing_may_leave_at_once(controller: Controller) -> None:
    first, _ = await join(controller, 1, 2)
    await create_topic(controller, "orders", (2, 1))
    assert (await first.heartbeat(want_shut_down=True)).should_shut_down
    assert partition_of(controller.image, "orders").isr == (2,)


@played
async def test_a_returning_controller_has_its_log_and_fences_no_live_broker(
    world: World,
) -> None:
    async with running(world) as first:
        await join(first, 1, 2)
        created = await create_topic(first, "orders", (1, 2), (2, 1))
        cluster_id, image = first.cluster_id, first.image
    async with running(world) as second, trio.open_nursery() as nursery:
        seams = world.node("controller")
        assert second.cluster_id == cluster_id
        assert second.image.topic_id("orders") == created.topic_id
        assert second.image.brokers == image.brokers
        assert second.log.leading_epoch == 2
        assert second.image.leader_epoch == 2
        alive = Registered(second, 2, epoch=image.brokers[2].broker_epoch)
        nursery.start_soon(alive.keep_alive, seams)
        await seams.clock.sleep(8.9)
        assert second.image.is_alive(1)
        await seams.clock.sleep(0.2)
        assert not second.image.is_alive(1)
        assert second.image.is_alive(2)
        assert partition_of(second.image, "orders").leader == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("snapshot_bytes", [20 << 20, 500], ids=["", "cut often"])
def test_what_was_answered_survives_a_power_cut(seed: int, snapshot_bytes: int) -> None:
    config = attrs.evolve(CONFIG, metadata_log_max_record_bytes_between_snapshots=snapshot_bytes)

    async def story(world: World) -> None:
        answered: list[str] = []

        async def create_topics(controller: Controller) -> None:
            for number in range(1000):
                name = f"t{number}"
                result = await create_topic(controller, name, (1,))
                assert result.error_code == ErrorCode.NONE
                answered.append(name)

        world.node("controller")
        world.disk("controller").costs = DiskCosts(sync=0.01)
        async with trio.open_nursery() as nursery:
            controller = Controller(config=config, seams=world.node("controller"), on_bug=_raise)
            await nursery.start(controller.run)
            await join(controller, 1)
            nursery.start_soon(create_topics, controller)
            await world.node("controller").clock.sleep(0.05 + seed * 0.007)
            world.crash_disk("controller")
            nursery.cancel_scope.cancel()
        async with running(world, config) as again:
            assert answered
            assert set(answered) <= again.image.topics.keys() <= {*answered, f"t{len(answered)}"}
            assert again.image.broker(1) is not None
            assert again.log.leading_epoch == 2

    World(seed=seed).run(story)


def _raise(error: BaseException) -> None:
    raise error


def test_decisions_that_come_together_are_synced_together() -> None:
    async def story(world: World) -> float:
        world.node("controller")
        world.disk("controller").costs = DiskCosts(sync=0.1)
        async with running(world) as controller:
            await join(controller, 1)
            clock = world.node("controller").clock
            began = clock.now()
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(create_topic, controller, f"t{number}", (1,))
            assert len(controller.image.topics) == 50
            return clock.now() - began

    assert World(seed=10).run(story) < 1.0


@pytest.mark.conformance("KR-572")
@played_in(running)
async def test_nothing_is_served_before_it_is_synced(controller: Controller, world: World) -> None:
    await join(controller, 1)
    end = controller.log.high_watermark
    world.disk("controller").costs = DiskCosts(sync=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create_topic, controller, "orders", (1,))
        data = await _fetch(controller, end, max_wait_ms=500)
        assert controller.log.log_end_offset > end
        assert (data.high_watermark, data.records) == (end, b"")
        data = await _fetch(controller, end, max_wait_ms=60_000)
        assert data.high_watermark == controller.log.log_end_offset
        assert data.records


async def _fetch(
    controller: Controller, offset: int, *, max_wait_ms: int = 0, last_epoch: int = 1
) -> PartitionData:
    response = await controller.fetch(
        FetchRequest(
            session_epoch=0,
            max_wait_ms=max_wait_ms,
            topics=[
                FetchTopic(
                    topic_id=METADATA_TOPIC_ID,
                    partitions=[
                        FetchPartition(
                            partition=METADATA_PARTITION.partition,
                            current_leader_epoch=controller.node.quorum.leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_epoch,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
    )
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions[0]


@pytest.mark.conformance("KR-558")
@played
async def test_an_observer_of_an_older_leader_epoch_learns_where_the_logs_diverge(
    world: World,
) -> None:
    async with running(world) as controller:
        await join(controller, 1)
        end = controller.log.high_watermark
    async with running(world) as again:
        # Its last epoch 1 is known here to end where this leader epoch began.
        same = await _fetch(again, end)
        assert same.diverging_epoch.epoch == -1
        assert same.records
        parted = await _fetch(again, end + 5)
        assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (1, end)
        for epoch in (-1, 7):
            refused = await _fetch(again, end, last_epoch=epoch)
            assert refused.error_code == ErrorCode.INVALID_REQUEST


@played_in(running)
async def test_over_the_wire_a_broker_reads_the_log_it_is_in(
    controller: Controller, world: World
) -> None:
    await join(controller, 1)
    await create_topic(controller, "orders", (1,))
    seams = world.node("b1")
    client = await RpcClient.connect(
        seams.transport,
        "controller",
        9093,
        client_id="b1",
        clock=seams.clock,
        timeout_ms=1000,
    )
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=6, current_metadata_offset=6)
    answer = await client.call(beat, version=1, timeout_ms=1000)
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert not answer.is_fenced
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=1,
        fetch_offset=0,
        last_fetched_epoch=0,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        session_epoch=0,
        topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    fetched = await client.call(request, version=17, timeout_ms=1000)
    data = fetched.responses[0].partitions[0]
    assert apply_batches(MetadataImage(), data.records) == controller.image
    client.close()


@played
async def test_a_disk_that_fails_ends_the_controller_and_nothing_is_answered(world: World) -> None:
    async def ask(controller: Controller) -> None:
        with pytest.raises(PeerUnavailableError):
            await create_topic(controller, "orders", (1,))

    world.node("controller")
    async with running(world) as controller:
        await join(controller, 1)
    again = Controller(config=CONFIG, seams=world.node("controller"), on_bug=_raise)
    async with trio.open_nursery() as nursery:
        await nursery.start(_ends_with_its_disk, again)
        world.disk("controller").faults.append(Fault(operation="sync"))
        nursery.start_soon(ask, again)
    world.crash_disk("controller")
    async with running(world) as last:
        assert last.image.broker(1) is not None
        assert "orders" not in last.image.topics


async def _ends_with_its_disk(
    controller: Controller, *, task_status: trio.TaskStatus[None]
) -> None:
    with pytest.raises(KafkaStorageError):
        await controller.run(task_status=task_status)


@played
async def test_a_directory_of_another_node_or_cluster_or_in_use_is_refused(world: World) -> None:
    async with running(world):
        seams = world.node("controller")
        with pytest.raises(LogDirectoryLockedError):
            await Controller(config=CONFIG, seams=seams, on_bug=_raise).run()
    for config in (
        attrs.evolve(CONFIG, node_id=7),
        attrs.evolve(CONFIG, cluster_id="another"),
    ):
        seams = world.node("controller")
        with pytest.raises(InconsistentMetadataError):
            await Controller(config=config, seams=seams, on_bug=_raise).run()


@played_in(running)
async def test_events_are_emitted_once_they_are_durable(
    controller: Controller, world: World
) -> None:
    await join(controller, 1)
    world.disk("controller").costs = DiskCosts(sync=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create_topic, controller, "orders", (1,))
        await world.node("controller").clock.sleep(0.5)
        assert "orders" in controller.image.topics
        assert not events(world, TopicCreated)
    assert len(events(world, TopicCreated)) == 1


@attrs.define(eq=False)
class Held:
    """An offload whose work begins when it is let go."""

    inner: Offload
    waiting: trio.Event = attrs.field(factory=trio.Event)
    let_go: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.waiting.set()
        await self.let_go.wait()
        return await self.inner(fn)


@played_in(running)
async def test_while_a_large_decision_is_made_heartbeats_are_answered_and_changes_wait(
    controller: Controller,
) -> None:
    broker, _ = await join(controller, 1, 2)
    held = Held(controller.seams.offload)
    controller.seams = attrs.evolve(controller.seams, offload=held)
    answered: list[int] = []

    async def create(prefix: str, count: int) -> None:
        topics = [
            CreatableTopic(name=f"{prefix}-{each}", num_partitions=1, replication_factor=1)
            for each in range(count)
        ]
        response = await controller.answer_client(CreateTopicsRequest(topics=topics))
        answered.append(len(response.topics))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, "many", STEP + 1)
        await held.waiting.wait()
        nursery.start_soon(create, "few", 1)
        beat = await broker.heartbeat()
        assert (beat.error_code, beat.is_fenced) == (ErrorCode.NONE, False)
        assert not controller.image.topics
        assert not answered
        held.let_go.set()
    assert sorted(answered) == [1, STEP + 1]
    assert len(controller.image.topics) == STEP + 2


@pytest.mark.parametrize("fields", [{"want_shut_down": True}, {"want_fence": True}, {}])
@played
async def test_elections_in_many_partitions_are_made_away_from_the_loop(
    world: World, fields: dict[str, Any]
) -> None:
    """A broker shuts down, asks to be fenced, or is silent; another one's heartbeats go on."""
    async with running(world) as controller, trio.open_nursery() as nursery:
        first, second = await join(controller, 1, 2)
        await create_topic(controller, "orders", *[(1, 2)] * (STEP + 1))
        held = Held(controller.seams.offload)
        controller.seams = attrs.evolve(controller.seams, offload=held)
        if fields:
            nursery.start_soon(partial(first.heartbeat, **fields))
        else:
            nursery.start_soon(second.keep_alive, world.node("controller"))
        await held.waiting.wait()
        beat = await second.heartbeat()
        assert (beat.error_code, beat.is_fenced) == (ErrorCode.NONE, False)
        assert partition_of(controller.image, "orders").leader == 1
        held.let_go.set()
        await world.node("controller").clock.sleep(0.1)
        partitions = controller.image.topics["orders"].partitions.values()
        assert {each.leader for each in partitions} == {2}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("offline", [[], [bytes(16)], [b"another directory"]])
@pytest.mark.parametrize("wants", ["", "want_fence", "want_shut_down"])
@pytest.mark.parametrize("applied", [0, 9])
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("broker", [{"fenced": True}, {"in_controlled_shutdown": True}, {}])
def test_a_heartbeat_is_a_change_where_its_decision_has_records(
    offline: list[bytes], wants: str, applied: int, leads: bool, broker: dict[str, bool]
) -> None:
    registered = attrs.evolve(
        images.registered(1), in_controlled_shutdown=broker.get("in_controlled_shutdown", False)
    )
    records: list[MetadataRecord] = [
        attrs.evolve(registered, fenced=broker.get("fenced", False)),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=[bytes(16)]),
        TopicRecord(name="orders", topic_id=images.ORDERS),
        PartitionRecord(
            topic_id=images.ORDERS,
            partition_id=0,
            replicas=[1],
            isr=[1],
            leader=1 if leads else NO_LEADER,
            leader_epoch=0,
            partition_epoch=0,
        ),
    ]
    image = images.after(MetadataImage(), records)
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=7,
        current_metadata_offset=applied,
        want_fence=wants == "want_fence",
        want_shut_down=wants == "want_shut_down",
        offline_log_dirs=offline,
    )
    sessions = BrokerSessions(9_000)
    decision = heartbeat(
        image, request, sessions=sessions, rules_of=lambda _: ElectionRules(min_insync_replicas=1)
    )
    assert is_change(image, request, sessions=sessions) == bool(decision.records)
