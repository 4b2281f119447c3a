"""A cluster's life on virtual time: started, its leader killed, its controller away.

The nodes are the real ones; the network, the disks and the clock are the simulator's.
"""

import contextlib
import random
from typing import Any

import pytest
import trio

from replication.broker.nodes import CONTROLLER_ID, controller_ids, node_directory, node_name
from replication.cluster.cluster import KilledError, open_cluster
from replication.cluster.interface import NotPossibleError
from replication.errors import ConfigError, ErrorCode, PeerUnavailableError
from replication.events import FollowersBehind
from replication.wire.apis import ApiKey
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.testing import DiskCosts, Fault, FaultyFileSystem
from tests.replication.broker.stage import Stage, name_of, played, played_in, staged


def contents(world: World, name: str) -> dict[str, bytes]:
    """Every file on a node's disk, as its kernel sees it."""
    file_system = FaultyFileSystem(random.Random(0), disk=world.disk(name))
    found: dict[str, bytes] = {}
    directories = ["/"]
    while directories:
        directory = directories.pop()
        for entry in file_system.list_directory(directory):
            path = f"{directory.rstrip('/')}/{entry}"
            if file_system.is_directory(path):
                directories.append(path)
                continue
            with contextlib.closing(file_system.open_for_reading(path)) as file:
                found[path] = file.read(0, file.size())
    return found


@played_in(staged)
async def test_three_brokers_come_up_and_know_each_other(stage: Stage) -> None:
    for broker_id in stage.cluster.broker_ids:
        answer = await stage.client.metadata(stage.address(broker_id))
        assert [broker.node_id for broker in answer.brokers] == [1, 2, 3]
        assert answer.cluster_id == "understudy"


@played_in(staged)
async def test_the_quorum_names_its_leader_at_the_port_that_it_got(stage: Stage) -> None:
    controller = stage.cluster.controllers[CONTROLLER_ID]
    (address,) = controller.node.quorum.leader_endpoints.addresses
    assert address.port == controller.port != 0


@played_in(staged)
async def test_a_record_produced_with_acks_all_is_on_every_replica_and_can_be_read(
    stage: Stage,
) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    answer = await stage.client.produce(stage.address(leader), "t", b"a", b"b")
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    ends = {
        snapshot.log_end_offset
        for broker in stage.cluster.brokers.values()
        for snapshot in broker.replica_manager.hosted.describe().values()
    }
    assert ends == {2}
    values = await stage.client.read_all(stage.address(leader), topic_id)
    assert values == [b"a", b"b"]


@pytest.mark.parametrize("dies", ["nobody", "the controller", "the leader"])
@played
async def test_what_an_acknowledgement_depends_on_is_shown_with_it(world: World, dies: str) -> None:
    """A follower dies; a record is acknowledged once it has left the ISR, which no broker has heard
    of by its copy of the metadata.
    """
    patient = {"replica_lag_time_max_ms": "500", "broker_session_timeout_ms": "9000"}
    async with staged(world, brokers=3, **patient) as stage:
        await stage.client.create_topic(stage.address(1), "t")
        leader = await stage.leader("t")
        follower = next(each for each in stage.cluster.broker_ids if each != leader)
        for broker in stage.cluster.broker_ids:
            world.network.hold("controller", name_of(broker), ApiKey.FETCH)
        await stage.cluster.kill_broker(follower)
        answer = await stage.client.produce(stage.address(leader), "t", b"one")
        assert answer.error_code == ErrorCode.NONE
        if dies != "nobody":
            await stage.cluster.kill_node(0 if dies == "the controller" else leader)
        partition = stage.cluster.partition("t", 0)
        assert partition is not None
        assert sorted(partition.isr) == [each for each in (1, 2, 3) if each != follower]
        world.network.heal_all()


@played_in(staged)
async def test_leader_and_isr_are_as_new_as_what_any_broker_tells(
    stage: Stage, world: World
) -> None:
    """One broker hears of each change late, so that two of them tell a client two leaders."""
    await stage.client.create_topic(stage.address(1), "t")
    killed = await stage.leader("t")
    others = [each for each in stage.cluster.broker_ids if each != killed]
    world.network.set_delay("controller", name_of(others[1]), least=0.3)
    await stage.cluster.kill_broker(killed)
    leaders = dict.fromkeys(others, killed)
    disagreed = 0
    while killed in leaders.values():
        for broker in others:
            (topic,) = (await stage.client.metadata(stage.address(broker), "t")).topics
            (shown,) = topic.partitions
            partition = stage.cluster.partition("t", 0)
            assert partition is not None
            assert shown.leader_epoch <= partition.leader_epoch
            if shown.leader_epoch == partition.leader_epoch:
                assert shown.leader_id == stage.cluster.leader("t", 0)
                assert set(shown.isr_nodes) == set(partition.isr)
            leaders[broker] = shown.leader_id
        disagreed += len(set(leaders.values())) > 1
        await stage.cluster.clock.sleep(0.05)
    assert disagreed


@pytest.mark.parametrize("is_in_sync", [True, False], ids=["in sync", "out of the ISR"])
@played
async def test_a_follower_that_lacks_records_is_reported(world: World, *, is_in_sync: bool) -> None:
    patient = {"replica_lag_time_max_ms": "9000" if is_in_sync else "500"}
    async with staged(world, brokers=3, broker_session_timeout_ms="9000", **patient) as stage:
        await stage.client.create_topic(stage.address(1), "t")
        leader = await stage.leader("t")
        follower = next(each for each in stage.cluster.broker_ids if each != leader)
        await stage.cluster.kill_broker(follower)
        if not is_in_sync:
            await stage.client.produce(stage.address(leader), "t", b"one")
            await stage.until_in_sync("t", 2)
        for _ in range(3):
            await stage.client.produce(stage.address(leader), "t", b"x", acks=1)
            await stage.cluster.clock.sleep(0.5)
        behind = [
            each.event for each in world.trace.entries if isinstance(each.event, FollowersBehind)
        ]
        assert {each.broker for each in behind} == {follower}
        lags = [each.lag for each in behind]
        assert lags == sorted(lags)
        assert lags[-1] == (3 if is_in_sync else 4)
        assert behind[-1].lag_ms >= 1000


@played_in(staged, min_insync_replicas="2")
async def test_nothing_that_was_acked_is_lost_when_the_leader_is_killed(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    victim = await stage.leader("t")
    await stage.client.produce(stage.address(victim), "t", b"before")
    await stage.cluster.kill_broker(victim)
    leader = await stage.leader("t", other_than=victim)
    answer = await stage.client.produce(stage.address(leader), "t", b"after")
    assert answer.error_code == ErrorCode.NONE
    await stage.cluster.start_broker(victim)
    await stage.until_in_sync("t", 3)
    assert await stage.client.read_all(stage.address(leader), topic_id) == [
        b"before",
        b"after",
    ]


@played_in(staged)
async def test_a_broker_may_be_killed_while_it_starts_and_starts_again(stage: Stage) -> None:
    await stage.cluster.kill_broker(2)

    async def start() -> None:
        with pytest.raises(KilledError, match="node 2 was killed before it had started"):
            await stage.cluster.start_broker(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await stage.cluster.until(lambda: 2 in stage.cluster.brokers)
        await stage.cluster.kill_broker(2)
    assert sorted(stage.cluster.brokers) == [1, 3]
    await stage.cluster.start_broker(2)
    await stage.cluster.until(stage.cluster.is_complete)


def test_a_single_controller_is_node_0_and_several_begin_at_3001() -> None:
    assert controller_ids(1) == [0]
    assert controller_ids(3) == [3001, 3002, 3003]
    assert [node_name(each) for each in (0, 1, 3001)] == [
        "the controller",
        "broker 1",
        "controller 3001",
    ]
    assert node_directory(3001) == "controller-3001"


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ({"controllers": 0}, "controllers=0: expected a whole number of at least 1"),
        ({"controllers": "3"}, "controllers='3': expected a whole number"),
        ({"brokers": 3001}, "brokers=3001: expected a whole number from 1 to 3000"),
        ({"brokers": True}, "brokers=True: expected a whole number"),
    ],
)
async def test_a_number_of_nodes_that_cannot_be_is_refused(
    count: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with open_cluster(**count):
            pass


@played_in(staged)
async def test_what_cannot_be_done_to_a_node_is_refused_by_its_name(stage: Stage) -> None:
    cluster = stage.cluster
    for call in (cluster.kill_broker, cluster.stop_broker, cluster.start_broker):
        with pytest.raises(NotPossibleError, match=r"no broker 9; .* cluster: 1, 2, 3$"):
            await call(9)
        with pytest.raises(NotPossibleError, match=r"no broker 0 \(0 is a controller"):
            await call(0)
    with pytest.raises(NotPossibleError, match=r"^broker 1 is up already$"):
        await cluster.start_broker(1)
    with pytest.raises(NotPossibleError, match=r"^the controller is up already$"):
        await cluster.start_controller()
    await cluster.kill_broker(1)
    for call in (cluster.kill_broker, cluster.stop_broker):
        with pytest.raises(NotPossibleError, match=r"^broker 1 is down already$"):
            await call(1)
    assert sorted(cluster.brokers) == [2, 3]


@played_in(staged)
async def test_brokers_serve_what_they_lead_while_the_controller_is_away_and_elect_after(
    stage: Stage,
) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.cluster.kill_controller()
    await stage.cluster.clock.sleep(5)
    answer = await stage.client.produce(stage.address(leader), "t", b"alone")
    assert answer.error_code == ErrorCode.NONE
    await stage.cluster.start_controller()
    await stage.cluster.kill_broker(leader)
    successor = await stage.leader("t", other_than=leader)
    assert await stage.client.read_all(stage.address(successor), topic_id) == [b"alone"]


@pytest.mark.parametrize("unclean", [False, True], ids=["clean only", "unclean allowed"])
@played_in(staged)
async def test_a_replica_outside_the_isr_leads_only_where_the_topic_says_so(
    stage: Stage, unclean: bool
) -> None:
    topic_id = await stage.client.create_topic(
        stage.address(1),
        "t",
        replicas=2,
        unclean_leader_election_enable=str(unclean).lower(),
    )
    leader = await stage.leader("t")
    partition = stage.cluster.partition("t", 0)
    assert partition is not None
    (other,) = set(partition.replicas) - {leader}
    await stage.client.produce(stage.address(leader), "t", b"on both")
    await stage.cluster.kill_broker(other)
    await stage.until_in_sync("t", 1)
    await stage.client.produce(stage.address(leader), "t", b"on one")
    await stage.cluster.kill_broker(leader)
    await stage.cluster.until(lambda: stage.cluster.leader("t", 0) is None)
    await stage.cluster.start_broker(other)
    if unclean:
        await stage.cluster.until(lambda: stage.cluster.leader("t", 0) == other)
    else:
        await stage.cluster.clock.sleep(10)
        assert stage.cluster.leader("t", 0) is None
    await stage.cluster.start_broker(leader)
    await stage.until_in_sync("t", 2)
    leads = await stage.leader("t")
    assert leads == (other if unclean else leader)
    values = await stage.client.read_all(stage.address(leads), topic_id)
    assert values == ([b"on both"] if unclean else [b"on both", b"on one"])


@played_in(staged)
async def test_a_broker_that_leaves_in_good_order_gives_its_leadership_away_first(
    stage: Stage,
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"a")
    began = stage.cluster.clock.now()
    await stage.cluster.stop_broker(leader)
    assert await stage.leader("t", other_than=leader) != leader
    # Long before its session would have ended.
    assert stage.cluster.clock.now() - began < 0.5
    await stage.cluster.start_broker(leader)
    await stage.until_in_sync("t", 3)


@pytest.mark.parametrize("brokers", [1, 2, 3])
@played
async def test_a_cluster_is_stopped_without_waiting_for_anybody(world: World, brokers: int) -> None:
    """Brokers without a leadership may go at once, and are slow to end: the others do not wait."""
    async with staged(world, brokers=brokers, broker_session_timeout_ms="9000") as stage:
        cluster = stage.cluster
        await stage.client.create_topic(stage.address(1), "t", replicas=brokers)
        leader = await stage.leader("t")
        await stage.client.produce(stage.address(leader), "t", b"a")
        async with trio.open_nursery() as nursery:
            for follower in set(cluster.broker_ids) - {leader}:
                world.disk(name_of(follower)).costs = DiskCosts(sync=0.06)
                nursery.start_soon(cluster.stop_broker, follower)
            await cluster.clock.sleep(0.06)  # they were let go, and write their files
            began = cluster.clock.now()
            await cluster.stop()
        assert cluster.clock.now() - began < 3


@pytest.mark.parametrize("killed", ["a follower", "the controller"])
@played_in(staged, broker_session_timeout_ms="9000")
async def test_a_cluster_is_stopped_without_waiting_for_the_dead(stage: Stage, killed: str) -> None:
    """Look for what was acked after the cluster is started again."""
    cluster = stage.cluster
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"a")
    follower = leader % 3 + 1
    await cluster.kill_node(follower if killed == "a follower" else CONTROLLER_ID)
    began = cluster.clock.now()
    await cluster.stop()
    assert cluster.clock.now() - began < 1.5
    await cluster.start_controller()
    async with trio.open_nursery() as nursery:
        for broker_id in cluster.broker_ids:
            nursery.start_soon(cluster.start_broker, broker_id)
    leader = await stage.leader("t")
    assert await stage.client.read_all(stage.address(leader), topic_id) == [b"a"]


@played_in(staged)
async def test_a_killed_broker_writes_nothing_any_more(stage: Stage, world: World) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"a")
    before = contents(world, name_of(leader))
    await stage.cluster.kill_broker(leader)
    await stage.cluster.clock.sleep(60)
    assert contents(world, name_of(leader)) == before
    assert f"/data/broker-{leader}/log/t-0/00000000000000000000.log" in before
    assert f"/data/broker-{leader}/log/.kafka_cleanshutdown" not in before


@played
async def test_a_cluster_that_was_stopped_comes_back_with_its_topics_and_records(
    world: World,
) -> None:
    async with staged(world) as stage:
        topic_id = await stage.client.create_topic(stage.address(1), "t")
        leader = await stage.leader("t")
        await stage.client.produce(stage.address(leader), "t", b"a")
    for name in ("controller", "b1", "b2", "b3"):
        world.kill(name)  # the next incarnation has new seams
    async with staged(world) as stage:
        leader = await stage.leader("t")
        assert await stage.client.read_all(stage.address(leader), topic_id) == [b"a"]


@played_in(staged)
async def test_a_log_of_a_topic_deleted_while_its_broker_was_away_is_put_aside(
    stage: Stage, world: World
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"kept")
    await stage.cluster.stop_broker(3)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    response = await stage.client.ask(stage.address(1), request)
    assert response.responses[0].error_code == ErrorCode.NONE
    await stage.cluster.start_broker(3)
    logs = {
        path.split("/")[-2]: data
        for path, data in contents(world, name_of(3)).items()
        if path.endswith(".log") and "metadata" not in path
    }
    ((directory, data),) = logs.items()
    assert directory.endswith("-stray")
    assert b"kept" in data


@played_in(staged)
async def test_a_broker_whose_only_disk_fails_ends_with_the_reason_and_others_take_over(
    stage: Stage, world: World
) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    victim = await stage.leader("t")
    await stage.client.produce(stage.address(victim), "t", b"a")
    world.disk(name_of(victim)).faults.append(Fault(operation="write", names="*.log"))
    with contextlib.suppress(PeerUnavailableError):  # it ends at once, as Kafka halts
        refused = await stage.client.produce(stage.address(victim), "t", b"b")
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    leader = await stage.leader("t", other_than=victim)
    assert await stage.client.read_all(stage.address(leader), topic_id) == [b"a"]
    assert list(stage.cluster.failures) == [victim]
    assert isinstance(stage.cluster.failures[victim], KafkaStorageError)
    # The disk has been replaced, or rather it was a passing fault.
    await stage.cluster.start_broker(victim)
    await stage.until_in_sync("t", 3)


@played_in(staged, metadata_log_max_record_bytes_between_snapshots="1")
async def test_a_controller_whose_disk_fails_two_tasks_at_once_ends_alone(
    stage: Stage, world: World
) -> None:
    """Its log is synced while a snapshot is: neither is called off once it is under way."""
    disk = world.disk(name_of(CONTROLLER_ID))
    disk.costs = DiskCosts(sync=0.06)
    disk.faults.append(Fault(operation="sync", times=None))
    with contextlib.suppress(PeerUnavailableError), stage.cluster.clock.move_on_after(5):
        await stage.client.create_topic(stage.address(1), "t")
    await stage.cluster.until(lambda: stage.cluster.controller is None)
    assert isinstance(stage.cluster.failures[CONTROLLER_ID], KafkaStorageError)
    assert sorted(stage.cluster.brokers) == [1, 2, 3]


@played_in(staged, brokers=1)
async def test_nodes_are_neither_frozen_nor_cut_off_without_impairments(stage: Stage) -> None:
    for refused in (stage.cluster.freeze_node(1), stage.cluster.cut([1])):
        with pytest.raises(NotPossibleError, match="opened without impairments"):
            await refused


@played_in(staged, brokers=1)
async def test_a_broker_that_is_not_unfenced_in_time_is_down_again(stage: Stage) -> None:
    await stage.cluster.kill_broker(1)
    await stage.cluster.kill_controller()
    with pytest.raises(NotPossibleError, match="not started within 5 s"):
        await stage.cluster.start_node(1, timeout_seconds=5)
    assert not stage.cluster.is_up(1)
    await stage.cluster.start_controller()
    await stage.cluster.start_node(1, timeout_seconds=5)
    assert stage.cluster.is_up(1)
