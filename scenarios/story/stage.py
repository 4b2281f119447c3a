"""The state that the commands of a story act on in the simulator: its world, its cluster, its clients.

The cluster is opened by the first command and ends with the story.
"""

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack

import attrs
import trio

from replication.events import Event, fan_out
from replication.leader.partition import Partition
from scenarios.checkers import Checkers
from scenarios.checkers.out_of_sync import reasons_out_of_sync
from scenarios.story.client_stage import ClientStage
from scenarios.story.programs import Programs
from scenarios.story.report.recording import Recording
from scenarios.story.script import ScriptError
from scenarios.world.client import CLIENT, StoryClient
from scenarios.world.cluster import (
    BROKER_PORT,
    SimulatedCluster,
    node_name,
    open_simulated_cluster,
)
from scenarios.world.network import SimulatedNetwork
from scenarios.world.trace import SIMULATOR
from scenarios.world.world import World
from storage.testing.disk import Node
from storage.types import Offset, TopicPartition


@attrs.define(eq=False, kw_only=True, repr=False)
class Stage(ClientStage):
    """The state of one story in a simulated world."""

    world: World
    stack: AsyncExitStack
    checkers: Checkers = attrs.field(factory=Checkers)
    recording: Recording | None = None
    rotten: list[tuple[str, TopicPartition, Offset]] = attrs.field(factory=list, init=False)
    """The places of flipped bits: the node of the replica, and an offset in the batch."""
    rotten_checkpoints: list[tuple[str, str, int]] = attrs.field(factory=list, init=False)
    """The places of flipped bits in checkpoints: node, path and byte."""
    images: dict[str, Node] = attrs.field(factory=dict, init=False)
    """The copies of disks, by the names that the story gave them."""
    programs: Programs = attrs.field(init=False)
    """The programs that run our own clients."""
    passes_at_rest: float | None = attrs.field(default=None, init=False)
    """The passes of the scheduler in a second when `judge-rest` looked first."""
    events_shown: int = attrs.field(default=0, init=False)
    _cluster: SimulatedCluster | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.programs = Programs(world=self.world)
        self.requests = self.checkers.controllers.requests
        if self.recording is not None:
            self.recording.begin(self.world)

    @property
    def cluster(self) -> SimulatedCluster:
        if self._cluster is None:
            raise ScriptError("there is no cluster yet: a story begins with `cluster`")
        return self._cluster

    async def open(
        self, *, brokers: int, controllers: int, combined: bool, properties: dict[str, str]
    ) -> None:
        if self._cluster is not None:
            raise ScriptError("a story has one cluster")
        # The recording comes first, so that it has seen what the checkers end a run for.
        watcher = (
            self.checkers if self.recording is None else fan_out(self.recording, self.checkers)
        )
        cluster = await self.stack.enter_async_context(
            open_simulated_cluster(
                self.world,
                brokers=brokers,
                controllers=controllers,
                combined=combined,
                properties=properties,
                watcher=watcher,
            )
        )
        self._cluster = self.checkers.cluster = cluster
        self.checkers.cluster_is_up()
        self.world.before_receipt = self.checkers.before_receipt
        self.world.before_power_cut = self.checkers.before_power_cut
        if self.recording is not None:
            self.recording.cluster = cluster
            self.stack.callback(self.recording.end)
        self._client = StoryClient(
            name=CLIENT,
            seams=self.world.node(CLIENT),
            bootstrap=[(name, BROKER_PORT) for name in cluster.broker_names],
            sink=fan_out(self.world.sink(CLIENT), self.checkers),
        )
        self._background = await self.stack.enter_async_context(trio.open_nursery())
        self.programs.begin(cluster.broker_names, self._background, self._client.finish)
        self.stack.callback(self.programs.cancel)

    def tell(self, event: Event) -> None:
        self.world.sink(SIMULATOR)(event)
        self.cluster.watcher(event)

    @property
    def network(self) -> SimulatedNetwork:
        return self.world.network

    @property
    def programs_running(self) -> Collection[str]:
        return self.programs.running.keys()

    async def kill(self, name: str) -> None:
        if name in self.programs.running:
            await self.programs.kill(name)
        else:
            await self.cluster.kill(name)

    def pause(self, name: str) -> None:
        self.world.pause(name)

    def resume(self, name: str) -> None:
        self.world.resume(name)

    def look(self) -> None:
        self.checkers.look()

    def judge_answered(self) -> None:
        self.checkers.judge_answered()

    def requests_unclean(self, partition: TopicPartition) -> None:
        self.checkers.unclean_requested.add(partition)

    def why_out_of_sync(self, partition: TopicPartition) -> str:
        return reasons_out_of_sync(self.cluster, partition)

    # Waiting.

    async def until_led(self, partition: TopicPartition) -> None:
        cluster = self.cluster
        await self.until_known(partition)

        def is_led() -> bool:
            brokers = cluster.brokers
            leader = cluster.leader(partition)
            registrations = [each.metadata.image.partition(partition) for each in brokers.values()]
            return leader in brokers and all(each == registrations[0] for each in registrations)

        await cluster.until(is_led, what=f"a broker leads {partition}")

    def is_equal(self, partition: TopicPartition) -> bool:
        """Return whether the replicas in sync have the same records, and know them committed."""
        registration = self.cluster.partition(partition)
        if registration is None:
            return False
        ends = set()
        for broker_id in registration.isr:
            replica = self.online(node_name(broker_id)).get(partition)
            if replica is None:
                return False
            snapshot = replica.snapshot()
            ends |= {snapshot.log_end_offset, snapshot.high_watermark}
        return len(ends) == 1

    def online(self, name: str) -> Mapping[TopicPartition, Partition]:
        """Return the replicas that a node has online; none while it is down."""
        manager = self.cluster.replica_managers.get(name)
        return {} if manager is None else manager.hosted.online
