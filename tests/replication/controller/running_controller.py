"""A controller on a simulated node, and brokers that are no more than their requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from replication.config import BrokerConfig, ListenerConfig
from replication.controller.controller import Controller
from replication.errors import ErrorCode
from replication.metadata.rules.levels import named_features
from replication.net.seams import Seams
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Endpoint,
)
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from scenarios.world.world import World

CONFIG = BrokerConfig(
    node_id=100,
    process_roles=("controller",),
    listeners=(ListenerConfig("CONTROLLER", "controller", 9093),),
    log_dirs=("/controller",),
    log_index_size_max_bytes=4096,
)


def fail(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def running(
    world: World, config: BrokerConfig = CONFIG, *, name: str = "controller"
) -> AsyncIterator[Controller]:
    """A controller until the block ends; then it is killed, and writes nothing more."""
    controller = Controller(
        config=config, seams=world.node(name), sink=world.sink(name), on_bug=fail
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        try:
            yield controller
        finally:
            world.kill(name)
            nursery.cancel_scope.cancel()


@attrs.define
class Registered:
    """A broker as the controller meets it: it registers, sends heartbeats, and no more."""

    controller: Controller
    broker_id: int
    incarnation: int = 1
    epoch: int = -1

    async def register(self, **fields: Any) -> BrokerRegistrationResponse:
        request = BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=self.controller.cluster_id,
            incarnation_id=bytes([self.broker_id, self.incarnation]) * 8,
            listeners=[Endpoint(name="PLAINTEXT", host=f"b{self.broker_id}", port=9092)],
            features=named_features(),
        )
        response = await self.controller.broker_registration(attrs.evolve(request, **fields))
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.broker_epoch
        return response

    async def heartbeat(self, **fields: Any) -> BrokerHeartbeatResponse:
        # It fetches nothing: no change is to wait for that.
        self.controller.sessions.fetches_from(self.broker_id, 1 << 62)
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self.controller.log.high_watermark - 1,
        )
        return await self.controller.broker_heartbeat(attrs.evolve(request, **fields))

    async def keep_alive(self, seams: Seams) -> None:
        """A heartbeat every two seconds, until cancelled."""
        while True:
            await self.heartbeat()
            await seams.clock.sleep(2.0)


async def join(controller: Controller, *broker_ids: int, incarnation: int = 1) -> list[Registered]:
    """Brokers that are registered and unfenced."""
    brokers = [Registered(controller, each, incarnation) for each in broker_ids]
    for broker in brokers:
        assert (await broker.register()).error_code == ErrorCode.NONE
        assert not (await broker.heartbeat()).is_fenced
    return brokers


async def create_topic(
    controller: Controller, name: str, *replicas: tuple[int, ...], **configs: str
) -> CreatableTopicResult:
    """A topic whose partitions have these replicas; dots in keys as underscores."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(replicas)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic])
    response: CreateTopicsResponse = await controller.answer_client(request)
    return response.topics[0]
