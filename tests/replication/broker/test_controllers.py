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
from replication.net.controller_channel import Controllers
from replication.server.server import Handler, RequestContext, Server
from replication.wire.allocate_producer_ids import (
    AllocateProducerIdsRequest,
)
from replication.wire.alter_partition import AlterPartitionResponse, PartitionAnswer, TopicAnswer
from replication.wire.apis import ApiKey, api_of
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from replication.wire.fetch import FetchRequest, FetchResponse, PartitionData
from replication.wire.metadata import LeaderIdAndEpoch, NodeEndpoint
from replication.wire.refusals import error_of_whole, refused, refused_whole
from scenarios.world.world import World
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, played
from tests.replication.controller.running_controller import CONFIG, fail, running

PORT = 9093
ASKED = (
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CREATE_TOPICS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)


@attrs.define
class Standby:
    """What a controller that does not lead says, and the requests that it was sent."""

    leader: NodeEndpoint | None = None
    leader_epoch: int = -1
    answers: bool = True
    asked: list[ApiKey] = attrs.field(factory=list)

    async def refuse(self, context: RequestContext, request: Any) -> Any:
        self.asked.append(context.api_key)
        await self._stay_silent()
        return refused_whole(context.api_key, context.version, request, ErrorCode.NOT_CONTROLLER)

    async def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        self.asked.append(context.api_key)
        await self._stay_silent()
        response: FetchResponse = refused(FetchResponse, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response.error_code = ErrorCode.NONE
        for topic, asked in zip(response.responses, request.topics, strict=True):
            topic.topic_id = asked.topic_id
            topic.partitions = [
                PartitionData(
                    partition_index=each.partition,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    high_watermark=-1,
                    current_leader=LeaderIdAndEpoch(
                        leader_id=-1 if self.leader is None else self.leader.node_id,
                        leader_epoch=self.leader_epoch,
                    ),
                )
                for each in asked.partitions
            ]
        response.node_endpoints = [] if self.leader is None else [self.leader]
        return response

    async def _stay_silent(self) -> None:
        if not self.answers:
            await trio.sleep_forever()

    async def serve(
        self,
        world: World,
        name: str,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        seams = world.node(name)
        handlers: dict[ApiKey, Handler] = dict.fromkeys(ASKED, self.refuse)
        server = Server(
            handlers={**handlers, ApiKey.FETCH: self.fetch},
            clock=seams.clock,
            sink=world.sink(name),
            on_bug=fail,
        )
        listener = await seams.transport.listen(name, PORT)
        task_status.started()
        await server.serve(listener, name="CONTROLLER")


@asynccontextmanager
async def standing_by(world: World, **standbys: Standby) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for name, standby in standbys.items():
            await nursery.start(standby.serve, world, name)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def a_broker(world: World, *controllers: str) -> AsyncIterator[Broker]:
    """A broker that knows these controllers, once it is unfenced."""
    config = BrokerConfig.from_properties(
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
    broker = Broker(config=config, seams=world.node("b1"), sink=world.sink("b1"), on_bug=fail)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        world.kill("b1")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def an_active_controller(world: World, name: str) -> AsyncIterator[Controller]:
    listener = ListenerConfig("CONTROLLER", name, PORT)
    config = attrs.evolve(CONFIG, listeners=(listener,), log_dirs=(f"/{name}",))
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
