"""A cluster of ours that is followed, and a mirror on a machine of its own, on virtual time."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from replication.client.admin import Admin
from replication.client.config import ClientConfig
from replication.events import Event, LogTruncated
from replication.mirror import Mirror, MirrorOptions, PartitionProgress
from replication.mirror.state import LOG_DIRECTORY
from replication.net.raising import raising_only_one
from replication.verify import verify_directories
from scenarios.world.cluster import log_directory
from scenarios.world.world import World
from storage.testing import FaultyFileSystem, SimulatedDisk
from storage.testing.disk import DirectoryNode
from storage.types import Offset, TopicPartition
from tests.replication.client.scene import T0, Scene, scene

MACHINE = "m"
COPY = f"/{MACHINE}/{LOG_DIRECTORY}"
SOON = {"metadata_max_age_ms": 5000}


def admin_of(scene: Scene) -> Admin:
    return Admin(scene.bootstrap_servers, seams=scene.world.node("admin"))


@attrs.define(eq=False)
class Following:
    """One life of a mirror after the other, on one disk."""

    scene: Scene
    nursery: trio.Nursery
    options: dict[str, Any]
    mirror: Mirror = attrs.field(init=False)
    events: list[Event] = attrs.field(init=False, factory=list)
    _scope: trio.CancelScope = attrs.field(init=False)
    _ended: trio.Event = attrs.field(init=False)

    @property
    def world(self) -> World:
        return self.scene.world

    def make(self, **options: Any) -> Mirror:
        given = {"topics": ("t",)} | self.options | options
        source = SOON | given.pop("source", {})
        given["properties"] = {"log.index.size.max.bytes": "4096"} | given.get("properties", {})
        return Mirror(
            source_config=ClientConfig.of(bootstrap_servers=self.scene.bootstrap_servers, **source),
            options=MirrorOptions(**given),
            directory=f"/{MACHINE}",
            seams=self.world.node(MACHINE),
            sink=self.events.append,
        )

    async def start(self, **options: Any) -> None:
        self.mirror = self.make(**options)
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        await self.nursery.start(self._run)

    async def begin(self, *values: str) -> None:
        """Produce `values`, start, and wait until they are copied."""
        await self.scene.produce(*values)
        await self.start()
        await self.until_end(len(values))

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            await self.mirror.run(task_status=task_status)
        self._ended.set()

    async def stop(self) -> None:
        self.mirror.stop()
        await self._ended.wait()
        self.world.stopped(MACHINE)

    async def kill(self) -> None:
        """Kill the mirror's process."""
        self.world.kill(MACHINE)
        await self._end()

    async def cut_power(self) -> None:
        """Cut the power: each write that was not synced may be lost."""
        self.world.crash_disk(MACHINE)
        await self._end()

    async def _end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    # Looking.

    def at(self, partition: TopicPartition = T0) -> PartitionProgress | None:
        return next((e for e in self.mirror.progress() if e.topic_partition == partition), None)

    def end(self, partition: TopicPartition = T0) -> Offset:
        found = self.at(partition)
        return -1 if found is None else found.log_end_offset

    async def until(self, predicate: Callable[[], bool], what: str, seconds: float = 60) -> None:
        await self.scene.cluster.until(predicate, what=what, seconds=seconds)

    async def until_end(self, offset: Offset, partition: TopicPartition = T0) -> None:
        await self.until(
            lambda: self.end(partition) == offset, f"the copy of {partition} ends at {offset}"
        )

    def assert_same(self, broker: str = "b1", partition: TopicPartition = T0) -> None:
        """Byte for byte, the copy and the log of `broker`."""
        assert ": same in 2 copies" in compared(self.world, broker, MACHINE, partition=partition)


def cuts(copy: Following) -> list[tuple[int, int, str]]:
    """Return the offsets and the cause of each truncation."""
    return [
        (each.from_offset, each.to_offset, each.cause)
        for each in copy.events
        if isinstance(each, LogTruncated)
    ]


def all_files(world: World) -> dict[str, bytes]:
    """Every byte of the copy, and of what is known of it."""
    return dict(_files_in(world.disk(MACHINE).directory(f"/{MACHINE}"), ""))


def _files_in(directory: DirectoryNode, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in directory.entries.items():
        if isinstance(node, DirectoryNode):
            yield from _files_in(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", bytes(node.content)


def compared(world: World, *names: str, partition: TopicPartition = T0) -> str:
    """Return the result of comparing the logs of brokers, and of the copy for MACHINE."""
    root = DirectoryNode()
    for name in names:
        root.entries |= world.disk(name).root.entries
    chance = world.chance("nothing")
    disks = FaultyFileSystem(chance, disk=SimulatedDisk(chance, root=root))
    directories = [COPY if name == MACHINE else log_directory(name) for name in names]
    found = verify_directories(disks, directories, copies=len(names))
    [result] = [each for each in found.partitions if each.partition == partition]
    return str(result)


@asynccontextmanager
async def following(
    world: World,
    *,
    brokers: int = 1,
    replicas: tuple[tuple[int, ...], ...] = ((1,),),
    topic: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[Following]:
    """A mirror that is not yet started, of a topic `t`."""
    async with scene(
        world, brokers=brokers, replicas=replicas, topic=topic, **dict(properties or {})
    ) as source:
        with raising_only_one():
            async with trio.open_nursery() as nursery:
                yield Following(source, nursery, options or {})
                nursery.cancel_scope.cancel()
