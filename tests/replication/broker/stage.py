"""A cluster of real nodes on a simulated world, and what a test wants to do with it."""

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import attrs

from replication.cluster.cluster import Cluster, open_cluster
from replication.faults.impairments import Impairments
from replication.leader.partition import ReplicaSnapshot
from replication.net.seams import Seams
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.clients import Client

Given = ParamSpec("Given")

QUICK = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",
    # A disk in memory holds every byte, also those of an index's spare room.
    "log.index.size.max.bytes": "4096",
}


def name_of(node_id: int) -> str:
    return "controller" if node_id == 0 else f"b{node_id}"


@attrs.define(repr=False)
class Stage:
    """What a story plays on."""

    world: World
    cluster: Cluster
    client: Client

    def address(self, broker_id: int) -> str:
        return self.cluster.bootstrap_list[broker_id - 1]

    async def leader(self, topic: str, *, other_than: int | None = None) -> int:
        """Return who leads, once that broker knows it."""

        def leads() -> bool:
            return self.cluster.leader(topic, 0) != other_than and self._leads(topic) is not None

        await self.cluster.until(leads, what=f"{topic} has a leader")
        leader = self.cluster.leader(topic, 0)
        assert leader is not None
        return leader

    def _leads(self, topic: str) -> ReplicaSnapshot | None:
        """Return the leader's own view; None while nobody leads, as far as it knows itself."""
        broker = self.cluster.brokers.get(self.cluster.leader(topic, 0) or -1)
        if broker is None:
            return None
        seen = broker.replica_manager.hosted.snapshot(TopicPartition(topic, 0))
        return seen if seen is not None and seen.is_leader else None

    async def until_in_sync(self, topic: str, count: int) -> None:
        """Wait until the controller and the leader have so many in the ISR."""

        def in_sync() -> bool:
            partition, led = self.cluster.partition(topic, 0), self._leads(topic)
            return partition is not None and len(partition.isr) == count == len(
                led.isr if led else ()
            )

        await self.cluster.until(in_sync, what=f"{count} replicas of {topic} in sync")


def seams_in(world: World, node_id: int) -> Seams:
    return world.node(name_of(node_id))


@contextlib.asynccontextmanager
async def staged(
    world: World,
    impairments: Impairments | None = None,
    /,
    *,
    brokers: int = 3,
    **properties: str,
) -> AsyncIterator[Stage]:
    """Open a cluster on the simulator's seams, or on those of `impairments`."""
    async with open_cluster(
        brokers=brokers,
        data_dir="/data",
        properties=QUICK | {key.replace("_", "."): value for key, value in properties.items()},
        host_of=name_of,
        make_seams=None if impairments else partial(seams_in, world),
        impairments=impairments,
        make_sink=lambda node_id: world.sink(name_of(node_id)),
    ) as cluster:
        yield Stage(world, cluster, Client(world.node("client")))


def play(story: Callable[[World], Awaitable[None]]) -> None:
    World(seed=1).run(story)


def played(story: Callable[Concatenate[World, Given], Awaitable[None]]) -> Callable[Given, None]:
    """Turn a story into a test, which gets the story's arguments without the world."""

    @wraps(story)
    def test(*args: Given.args, **kwargs: Given.kwargs) -> None:
        play(lambda world: story(world, *args, **kwargs))

    signature = inspect.signature(story)
    given = [each for name, each in signature.parameters.items() if name != "world"]
    vars(test)["__signature__"] = signature.replace(parameters=given)
    return test


def played_in(
    scene: Callable[..., AbstractAsyncContextManager[Any]], **how: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Turn a story inside `scene(world, **how)` into a test.

    The story's first argument is what the scene opens; it gets the world too if it names it.
    """

    def decorate(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(story)

        @wraps(story)
        async def within(world: World, **given: Any) -> None:
            if "world" in signature.parameters:
                given["world"] = world
            async with scene(world, **how) as opened:
                await story(opened, **given)

        _, *others = signature.parameters.values()
        vars(within)["__signature__"] = signature.replace(parameters=others)
        return played(within)

    return decorate
