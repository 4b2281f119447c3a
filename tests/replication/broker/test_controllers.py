"""How a broker finds the active controller among several addresses, and follows it elsewhere.

The active controller is a real one; a standby is a real server that refuses every request as Kafka's
standby does.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from replication.broker.broker import Broker
from replication.config import BrokerConfig, ListenerConfig
from replication.config.listeners import HostPort
from replication.controller.controller import Controller
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import MetadataNotServed, ignore
from replication.metadata.rules.records import METADATA_PARTITION
from replication.net.controller_channel import Controllers
from replication.observe.sentences import sentence
from replication.wire.allocate_producer_ids import (
    AllocateProducerIdsRequest,
)
from replication.wire.alter_partition import AlterPartitionResponse, PartitionAnswer, TopicAnswer
from replication.wire.apis import ApiKey, api_of
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.fetch import FetchSnapshotId
from replication.wire.fetch_snapshot import PartitionSnapshot, SnapshotId
from replication.wire.metadata import NodeEndpoint
from replication.wire.refusals import error_of_whole, refused_whole
from scenarios.world.world import World
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, played
from tests.replication.broker.standbys import PORT, Standby, standing_by
from tests.replication.controller.running_controller import CONFIG, fail, running


def broker_config(*controllers: str) -> BrokerConfig:
    """Return the configuration of a broker that knows these controllers."""
    return BrokerConfig.from_properties(
        QUICK
        | {
            "node.id": "1",
            "listeners": "PLAINTEXT://b1:9092",
            "log.dirs": "/b1",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{each}:{PORT}" for each in controllers
            ),
        }
    )


@asynccontextmanager
async def a_broker(world: World, *controllers: str) -> AsyncIterator[Broker]:
    """A broker that knows these controllers, once it is unfenced."""
    broker = Broker(
        config=broker_config(*controllers),
        seams=world.node("b1"),
        sink=world.sink("b1"),
        on_bug=fail,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        world.kill("b1")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def an_active_controller(
    world: World, name: str, *, cluster_id: str | None = None
) -> AsyncIterator[Controller]:
    listener = ListenerConfig("CONTROLLER", name, PORT)
    config = attrs.evolve(
        CONFIG, listeners=(listener,), log_dirs=(f"/{name}",), cluster_id=cluster_id
    )
    async with running(world, config, name=name) as controller:
        yield controller


async def create_topic(world: World, name: str = "t") -> ErrorCode:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )
    answer: CreateTopicsResponse = await Client(world.node("client")).ask("b1:9092", request)
    return ErrorCode.of(answer.topics[0].error_code)


@played
async def test_a_broker_asks_the_next_address_where_a_controller_is_not_active(
    world: World,
) -> None:
    one, two = Standby(), Standby()
    async with (
        an_active_controller(world, "c3"),
        standing_by(world, c1=one, c2=two),
        a_broker(world, "c1", "c2", "c3"),
    ):
        began = world.clock("b1").now()
        assert await create_topic(world) is ErrorCode.NONE
        assert world.clock("b1").now() - began < 0.5
        assert ApiKey.CREATE_TOPICS not in {*one.asked, *two.asked}  # it knew the leader by then
        assert one.asked.count(ApiKey.FETCH) == two.asked.count(ApiKey.FETCH) == 1


@played
async def test_a_standby_names_the_leader_which_need_not_be_in_the_list(world: World) -> None:
    leader = NodeEndpoint(node_id=CONFIG.node_id, host="c2", port=PORT)
    standby = Standby(leader=leader, leader_epoch=1)
    async with (
        an_active_controller(world, "c2"),
        standing_by(world, c1=standby),
        a_broker(world, "c1"),
    ):
        assert await create_topic(world) is ErrorCode.NONE
        assert standby.asked.count(ApiKey.FETCH) == 1


@played
async def test_a_broker_registers_its_one_log_directory(world: World) -> None:
    async with an_active_controller(world, "c1") as controller, a_broker(world, "c1") as broker:
        (directory,) = broker.logs.directories
        assert controller.image.brokers[1].directories == (directory.directory_id,)


@played
async def test_a_controller_that_is_gone_or_silent_is_passed_over(world: World) -> None:
    async with (
        an_active_controller(world, "c3"),
        standing_by(world, c2=Standby(answers=False)),
        a_broker(world, "c1", "c2", "c3"),
    ):
        assert await create_topic(world) is ErrorCode.NONE
        # The fetch of the metadata gives the silent one up, and takes the registration with it.
        assert world.clock("b1").now() < 4


@played
async def test_a_broker_follows_the_leader_to_another_address(world: World) -> None:
    """The controller of one log moves, as a quorum's leadership would; the standbys say where to."""
    standby = Standby()
    async with standing_by(world, c3=standby), trio.open_nursery() as nursery:
        moved = trio.Event()

        async def lead_first() -> None:
            async with an_active_controller(world, "c1"):
                await moved.wait()

        nursery.start_soon(lead_first)
        async with a_broker(world, "c1", "c2", "c3") as broker:
            assert await create_topic(world, "before") is ErrorCode.NONE
            moved.set()
            await world.clock("b1").sleep(0.01)
            world.node("c2")
            world.kill("c2")
            world.replace_disk("c2", world.disk("c1").root)
            listener = ListenerConfig("CONTROLLER", "c2", PORT)
            config = attrs.evolve(CONFIG, listeners=(listener,), log_dirs=("/c1",))
            async with running(world, config, name="c2") as controller:
                assert await create_topic(world, "after") is ErrorCode.NONE
                await world.clock("b1").sleep(3)
                assert broker.metadata.image == controller.image
                assert not controller.image.brokers[1].fenced


@played
async def test_no_copy_is_cut_to_the_log_of_a_leader_of_an_earlier_epoch(world: World) -> None:
    """Such a leader may be cut off from a majority that has long elected another."""
    async with an_active_controller(world, "c1"):
        pass
    async with an_active_controller(world, "c1"), a_broker(world, "c1") as broker:
        assert await create_topic(world) is ErrorCode.NONE
        copy = broker.logs.get(METADATA_PARTITION)
        assert copy is not None
        assert copy.latest_epoch == 2
    of_the_past = an_active_controller(world, "c2", cluster_id=broker.logs.cluster_id)
    async with of_the_past, trio.open_nursery() as nursery:
        again = Broker(config=broker_config("c2"), seams=world.node("b1"), sink=ignore, on_bug=fail)
        nursery.start_soon(again.run)
        await world.clock("b1").sleep(20)
        kept = again.logs.get(METADATA_PARTITION)
        assert kept is not None
        assert kept.log_end_offset == copy.log_end_offset
        world.kill("b1")
        nursery.cancel_scope.cancel()


CALL = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
ONE, TWO, THREE = [HostPort(each, PORT) for each in ("c1", "c2", "c3")]


@played
async def test_a_call_that_a_frozen_leader_has_ends_when_another_one_leads(world: World) -> None:
    controllers = Controllers([ONE, TWO], 2000)
    channel = controllers.channel("t", world.node("b1"))
    async with (
        standing_by(world, c1=Standby(answers=False), c2=Standby()),
        trio.open_nursery() as n,
    ):
        controllers.leads(ONE, 1)

        async def call() -> None:
            with pytest.raises(PeerUnavailableError):
                await channel.call(CALL, timeout_ms=60_000)
            assert world.clock("b1").now() < 2

        n.start_soon(call)
        await world.clock("b1").sleep(1)
        controllers.leads(TWO, 2)


@played
async def test_a_connection_to_a_controller_that_is_left_meanwhile_is_closed(world: World) -> None:
    controllers = Controllers([ONE, TWO], 2000)
    channel = controllers.channel("t", world.node("b1"))
    async with standing_by(world, c2=Standby()), trio.open_nursery() as n:
        world.network.set_delay("b1", "c2", least=0.2, mean_extra=0.0)

        async def call() -> None:
            with pytest.raises(PeerUnavailableError):
                await channel.call(CALL, timeout_ms=2000)

        controllers.leads(TWO, 1)
        n.start_soon(call)
        await world.clock("b1").sleep(0.1)
        controllers.leads(ONE, 2)
    assert not world.network.open_ends("b1")


def test_a_partition_that_another_controller_has_decided_about_refuses_no_whole_request() -> None:
    refused_one = PartitionAnswer(error_code=ErrorCode.NOT_CONTROLLER)
    topic = TopicAnswer(topic_id=bytes(16), partitions=[refused_one])
    assert error_of_whole(AlterPartitionResponse(topics=[topic])) == ErrorCode.NONE


@played
async def test_a_call_that_its_caller_gives_up_does_not_leave_a_known_leader(world: World) -> None:
    controllers = Controllers([ONE, TWO], 2000)
    channel = controllers.channel("t", world.node("b1"))
    async with standing_by(world, c1=Standby(answers=False)):
        controllers.leads(ONE, 1)
        with pytest.raises(PeerUnavailableError):
            await channel.call(CALL, timeout_ms=10)
        assert controllers.address == ONE


@played
async def test_a_refusal_of_the_one_partition_is_that_of_the_whole_request(world: World) -> None:
    controllers = Controllers([ONE, TWO], 2000)
    channel = controllers.channel("t", world.node("b1"))
    async with standing_by(world, c1=Standby()):
        controllers.leads(ONE, 1)
        partition = QuorumTopic(
            topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)]
        )
        with pytest.raises(PeerUnavailableError, match="not active"):
            await channel.call(DescribeQuorumRequest(topics=[partition]), timeout_ms=1000)
        assert controllers.address == TWO


def test_a_leader_of_an_earlier_epoch_is_no_news() -> None:
    controllers = Controllers([ONE, TWO], 2000)
    controllers.leads(TWO, 5)
    controllers.leads(ONE, 4)
    assert controllers.address == TWO
    controllers.not_at(TWO)
    controllers.leads(ONE, 4)
    assert controllers.leader is None
    controllers.leads(TWO, 5)  # others still follow it
    assert controllers.address == TWO


@pytest.mark.conformance("KR-565", "KR-568")
def test_addresses_are_tried_in_turn_and_once_for_all_who_fail_at_one() -> None:
    controllers = Controllers([ONE, TWO, THREE], 2000)
    controllers.not_at(ONE)
    controllers.not_at(ONE)  # another user of the same address
    assert controllers.address == TWO
    controllers.not_at(TWO)
    controllers.not_at(THREE)
    assert controllers.address == ONE


TOPICS = CreateTopicsRequest(topics=[CreatableTopic(name="t")])


@pytest.mark.parametrize(
    ("request_", "shows"),
    [
        pytest.param(CALL, True, id="for the whole"),
        pytest.param(TOPICS, True, id="for each item"),
        pytest.param(CreateTopicsRequest(), False, id="no items"),
    ],
)
def test_a_refused_response_shows_its_code(request_: Any, *, shows: bool) -> None:
    api = api_of(type(request_))
    response = refused_whole(api.key, api.max_version, request_, ErrorCode.NOT_CONTROLLER)
    assert error_of_whole(response) == (ErrorCode.NOT_CONTROLLER if shows else ErrorCode.NONE)


@played
async def test_a_heartbeat_has_a_version_that_controllers_of_kafka_4_1_know(world: World) -> None:
    channel = Controllers([ONE], 2000).channel("t", world.node("b1"))
    standby = Standby()
    async with standing_by(world, c1=standby):
        with pytest.raises(PeerUnavailableError):
            await channel.call(BrokerHeartbeatRequest(broker_id=1), timeout_ms=100)
        assert standby.version == 1


@played
async def test_a_broker_says_what_a_controller_of_an_older_release_does_not_serve(
    world: World,
) -> None:
    config = attrs.evolve(broker_config("c1"), initial_broker_registration_timeout_ms=1000)
    broker = Broker(config=config, seams=world.node("b1"), sink=world.sink("b1"), on_bug=fail)
    async with standing_by(world, c1=Standby(serves=())):
        with pytest.raises(
            PeerUnavailableError,
            match=r"^broker 1 has found no controller for 1 s .*: "
            r"c1:9093 closed the connection instead of answering BROKER_REGISTRATION v4$",
        ):
            await broker.run()


@played
async def test_a_broker_says_that_no_controller_serves_its_fetch_of_the_metadata(
    world: World,
) -> None:
    config = broker_config("c1", "c2")
    broker = Broker(config=config, seams=world.node("b1"), sink=world.sink("b1"), on_bug=fail)
    old = Standby(serves_fetch=False)
    async with standing_by(world, c1=old, c2=old), trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await world.clock("b1").sleep(25)
        nursery.cancel_scope.cancel()
    said = [
        each.event
        for each in world.trace.entries
        if each.node == "b1" and isinstance(each.event, MetadataNotServed)
    ]
    assert len(said) == 3, "one in ten seconds"
    assert "closed the connection instead of answering FETCH v18" in said[0].cause
    assert sentence(said[0]).startswith("gets no metadata: c")
    assert said[1].left_out > 0


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        pytest.param(
            FetchSnapshotId(end_offset=-7, epoch=3),
            PartitionSnapshot(),
            marks=pytest.mark.conformance("KR-600"),
            id="an id that cannot be",
        ),
        pytest.param(
            FetchSnapshotId(end_offset=90, epoch=4),
            PartitionSnapshot(error_code=ErrorCode.SNAPSHOT_NOT_FOUND),
            marks=pytest.mark.conformance("KR-613"),
            id="a snapshot that is gone",
        ),
        pytest.param(
            FetchSnapshotId(end_offset=90, epoch=4),
            PartitionSnapshot(
                snapshot_id=SnapshotId(end_offset=91, epoch=4), size=9, unaligned_records=b"123"
            ),
            marks=pytest.mark.conformance("KR-616"),
            id="another one",
        ),
    ],
)
@played
async def test_a_snapshot_that_is_not_the_one_that_was_named_leaves_nothing(
    world: World, named: FetchSnapshotId, sent: PartitionSnapshot
) -> None:
    seams = world.node("b1")
    broker = Broker(config=broker_config("c1"), seams=seams, sink=world.sink("b1"), on_bug=fail)
    standby = Standby(snapshot=named, piece=sent)
    async with standing_by(world, c1=standby), trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await seams.clock.sleep(10)
        nursery.cancel_scope.cancel()
    assert standby.asked.count(ApiKey.FETCH) > 2, "it asks again"
    assert (ApiKey.FETCH_SNAPSHOT in standby.asked) == (named.end_offset > 0)
    names = seams.file_system.list_directory(f"/b1/{METADATA_PARTITION}")
    assert not [each for each in names if "checkpoint" in each and each[0] in "0123456789-"]
