"""A world on virtual time, grown from one seed.

    world = World(seed=7)
    world.run(story)              # trio, with a clock that jumps and an order drawn from the
                                  # seed; one virtual hour at most
    async def story(world):
        seams = world.node("b1")  # clock, chance, transport, file system, offload
        ...                       # start the real broker with them
        world.kill("b1")          # first its disk and network are gone; cancel its tasks next
        seams = world.node("b1")  # the next incarnation, on the same disk
    world.trace_hash()            # equal for equal seeds, in any process

Rule 1: one stream of chance for each purpose, so that a fault that is left out does not
shift the delays, nor another disk's.

Rule 2: a node's disk outlives its processes; what a process holds of it does not.

Rule 3: a run in which no task can ever run again raises StuckError.
"""

import gc
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import attrs
import trio

from replication.events import Event, EventSink
from replication.net.detach import DetachableTransport
from replication.net.seams import Seams
from scenarios.world.clock import SimulatedClock, SimulatedOffload, VirtualTime
from scenarios.world.determinism import deterministic_scheduling
from scenarios.world.endless import EndlessRunError, where_tasks_wait
from scenarios.world.network import SimulatedNetwork
from scenarios.world.streams import Link
from scenarios.world.trace import (
    SIMULATOR,
    CutUndone,
    DiskReplaced,
    NodeKilled,
    NodePaused,
    NodeResumed,
    NodeStarted,
    NodeStopped,
    PowerCut,
    SimulationTrace,
)
from storage.log.segment import LOG_SUFFIX
from storage.testing import FaultyFileSystem, SimulatedDisk
from storage.testing.disk import DirectoryNode, Fate

T = TypeVar("T")

VIRTUAL_HOUR = 3600.0
MOST_PASSES = 500_000
"""The limit of passes of trio's scheduler in one run; the longest of 60 runs had 43,000."""


YOUNG_OBJECTS = 20_000
"""The number of new objects after which the youngest are collected; Python's own is 700, with which
a tenth of a run's time goes into looking at all that has been imported.
"""


@contextmanager
def _collecting_garbage_seldom() -> Iterator[None]:
    youngest, *older = gc.get_threshold()
    gc.set_threshold(max(youngest, YOUNG_OBJECTS) if youngest else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)


def do_nothing() -> None:
    """Do nothing: the default of `World.before_receipt`."""


def ignore_node(_: str) -> None:
    """Do nothing: the default of `World.before_power_cut`."""


class StuckError(EndlessRunError):
    """A run reached its limit of virtual time, or virtual time stood still: a task waits for ever."""


@attrs.define(eq=False)
class _Node:
    """A machine, and what its present incarnation has of it."""

    name: str
    clock: SimulatedClock
    disk: SimulatedDisk
    incarnation: int = 0
    powered: bool = True
    seams: Seams | None = None
    transport: DetachableTransport | None = None
    file_system: FaultyFileSystem | None = None


@attrs.define(eq=False)
class World:
    """The nodes, the network between them, and the trace of what happened."""

    seed: int
    # Left out of `repr`: a failing test prints its values, and all of them lead here.
    trace: SimulationTrace = attrs.field(factory=SimulationTrace, init=False, repr=False)
    time: VirtualTime = attrs.field(factory=VirtualTime, init=False, repr=False)
    network: SimulatedNetwork = attrs.field(init=False, repr=False)
    before_receipt: Callable[[], None] = attrs.field(default=do_nothing, init=False, repr=False)
    """A call before any message is received: then every task waits, and no change is half done."""
    before_power_cut: Callable[[str], None] = attrs.field(
        default=ignore_node, init=False, repr=False
    )
    """A call with the name of the node, before its disk loses what was not synced."""
    _nodes: dict[str, _Node] = attrs.field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.network = SimulatedNetwork(
            self.chance("network"), self.time, sink=self.sink(SIMULATOR), on_received=self._received
        )

    def run(
        self,
        story: Callable[["World"], Awaitable[T]],
        *,
        limit: float = VIRTUAL_HOUR,
        passes: int = MOST_PASSES,
    ) -> T:
        """Run `story` and return its result.

        StuckError is raised after `limit` virtual seconds, or after `passes` passes of trio's
        scheduler: while tasks go on without waiting, virtual time stands still.
        """
        stuck: list[str] = []

        async def limited() -> T:
            with trio.CancelScope() as scope:

                def give_up(after: str) -> None:
                    if not stuck:
                        stuck.append(
                            f"not done after {after}; seed {self.seed}: {where_tasks_wait()}"
                        )
                    scope.cancel()

                alarm = self.time.alarm(limit, partial(give_up, f"{limit:.0f} virtual seconds"))
                self.time.bound(
                    passes,
                    lambda: give_up(
                        f"{passes} passes of the scheduler, at {self.time.now:.3f} virtual seconds"
                    ),
                )
                try:
                    return await story(self)
                finally:
                    alarm.call_off()
            raise StuckError(stuck[0])

        with deterministic_scheduling(f"{self.seed}/scheduler"), _collecting_garbage_seldom():
            return trio.run(limited, clock=self.time)

    def chance(self, purpose: str) -> random.Random:
        """Return the random stream for `purpose`, from its beginning."""
        return random.Random(f"{self.seed}/{purpose}")

    # -- nodes

    def node(self, name: str) -> Seams:
        """Return the seams of the present incarnation, or of a new one if there is none."""
        node = self._nodes.get(name) or self._add(name)
        if node.seams is None:
            node.seams = self._start(node)
        return node.seams

    def clock(self, name: str) -> SimulatedClock:
        return self._nodes[name].clock

    def disk(self, name: str) -> SimulatedDisk:
        """Return a node's disk, which stays when its processes die; faults are injected there."""
        return self._nodes[name].disk

    def sink(self, name: str) -> EventSink:
        """Return the sink of the node's events."""

        def record(event: Event) -> None:
            self.trace.record(event, at=self.time.now, node=name)

        return record

    def kill(self, name: str) -> None:
        """Take away a killed process's disk and network; its tasks are to be cancelled next.

        Its kernel lives: the page cache keeps what was written, and peers see the connections
        close.
        """
        node = self._nodes[name]
        if node.seams is None:
            return
        self.sink(SIMULATOR)(NodeKilled(node=name))
        self._detach(node)

    def stopped(self, name: str) -> None:
        """Release what a process held that has ended by itself, as its kernel would."""
        node = self._nodes[name]
        self.sink(SIMULATOR)(NodeStopped(node=name))
        self._detach(node)

    def crash_disk(self, name: str, fate: Fate | None = None) -> None:
        """Cut the power: chance decides what is left of unsynced writes, and peers hear nothing.

        A disk that has lied loses all of them: if half were lost, there would be holes where the
        disk had claimed that everything was written, and neither we nor Apache Kafka look there.
        """
        self.before_power_cut(name)
        node = self._nodes[name]
        if node.disk.lies and fate is None:
            fate = Fate.NOTHING
        self.sink(SIMULATOR)(PowerCut(node=name))
        self.network.power_off(name)
        node.powered = False
        self._detach(node)
        undone = node.disk.power_cut(fate)
        if any(each.endswith(LOG_SUFFIX) for each in undone):
            self.sink(SIMULATOR)(CutUndone(node=name))

    def pause(self, name: str) -> None:
        """Pause a node as SIGSTOP would: its timers and its bytes are withheld."""
        self.sink(SIMULATOR)(NodePaused(node=name))
        self._nodes[name].clock.pause()

    def resume(self, name: str) -> None:
        self.sink(SIMULATOR)(NodeResumed(node=name))
        self._nodes[name].clock.resume()

    def replace_disk(self, name: str, root: DirectoryNode) -> None:
        self.sink(SIMULATOR)(DiskReplaced(node=name))
        self._nodes[name].disk.root = root

    def trace_hash(self) -> str:
        return self.trace.hash()

    def _add(self, name: str) -> _Node:
        clock = SimulatedClock(self.time)
        disk = SimulatedDisk(self.chance(f"disk {name}"), wall_ms=clock.wall_ms)
        self.network.add_host(name, clock)
        node = self._nodes[name] = _Node(name, clock, disk)
        return node

    def _start(self, node: _Node) -> Seams:
        node.incarnation += 1
        if not node.powered:
            node.powered = True
            self.network.power_on(node.name)
        self.sink(SIMULATOR)(NodeStarted(node=node.name, incarnation=node.incarnation))
        node.transport = DetachableTransport(self.network.transport(node.name))
        node.file_system = FaultyFileSystem(node.disk.chance, disk=node.disk)
        return Seams(
            clock=node.clock,
            chance=self.chance(f"node {node.name} {node.incarnation}"),
            transport=node.transport,
            file_system=node.file_system,
            offload=SimulatedOffload(node.clock, node.file_system),
        )

    def _detach(self, node: _Node) -> None:
        if node.transport is not None:
            node.transport.detach()
        if node.file_system is not None:
            node.file_system.detach()
        node.seams = node.transport = node.file_system = None
        node.clock.stop_working()
        if node.clock.paused:  # a killed process is not paused
            node.clock.resume()

    def _received(self, data: memoryview, link: Link) -> None:
        self.before_receipt()
        self.trace.received(
            data, at=self.time.now, source=link.source.name, target=link.target.name
        )
