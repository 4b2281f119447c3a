"""Clients against the real brokers of a simulated world, on virtual time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from replication.client.consumer import Consumer
from replication.client.producer import Producer
from replication.faults.node_faults import Faults
from scenarios.world.client import StoryClient
from scenarios.world.cluster import SimulatedCluster, open_simulated_cluster
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import played as played  # noqa: PLC0414 - found here too

T0 = TopicPartition("t", 0)


class Scene:
    """Brokers with a topic `t`, a machine for producers and one for consumers."""

    def __init__(self, world: World, cluster: SimulatedCluster, client: StoryClient) -> None:
        self.world, self.cluster, self.client = world, cluster, client

    def producer(self, **config: Any) -> Producer[bytes, bytes]:
        config.setdefault("bootstrap_servers", self.bootstrap_servers)
        return Producer(seams=self.world.node("producer"), **config)

    def consumer(self, *topics: str, **config: Any) -> Consumer:
        config.setdefault("bootstrap_servers", self.bootstrap_servers)
        config.setdefault("auto_offset_reset", "earliest")
        return Consumer(*topics, seams=self.world.node("consumer"), **config)

    @property
    def bootstrap_servers(self) -> list[str]:
        return [f"{name}:9092" for name in self.cluster.broker_names]

    @property
    def faults(self) -> Faults:
        return self.cluster.nodes.faults

    async def produce(self, *values: str, partition: int = 0, **config: Any) -> None:
        """Each in a batch of its own."""
        async with self.producer(**config) as producer:
            for value in values:
                await producer.send("t", value.encode(), partition=partition)

    async def values(self, partition: TopicPartition = T0) -> list[str]:
        return [record.value for record in await self.client.read(partition)]

    def leader(self, partition: TopicPartition = T0) -> str:
        leader = self.cluster.leader(partition)
        assert leader is not None
        return leader


@asynccontextmanager
async def scene(
    world: World,
    *,
    brokers: int = 1,
    replicas: tuple[tuple[int, ...], ...] = ((1,),),
    topic: dict[str, str] | None = None,
    **properties: str,
) -> AsyncIterator[Scene]:
    settings = {key.replace("_", "."): value for key, value in properties.items()}
    async with open_simulated_cluster(world, brokers=brokers, properties=settings) as cluster:
        client = StoryClient(
            name="client",
            seams=world.node("client"),
            bootstrap=[(name, 9092) for name in cluster.broker_names],
        )
        await client.create_topic("t", replicas, configs=topic)
        yield Scene(world, cluster, client)


def now(world: World) -> float:
    return world.clock("b1").now()


def play(story: Callable[[World], Awaitable[None]], *, seed: int = 1) -> World:
    world = World(seed=seed)
    world.run(story)
    return world
