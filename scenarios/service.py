"""A user's own program as a node of the simulated world.

    async def my_service(node: ServiceNode) -> None:
        async with node.consumer("orders", group_id="g") as orders, node.producer() as producer:
            ...

    run = simulate(my_service, seed=7, topics={"orders": 1}, inputs={"orders": [b"1"]}, check=check)
    run.check()                      # raise what `check` or the program raised
    run.write_report("seven.html")   # the same run as a page

`topics` are created, `inputs` are sent by a machine that nothing happens to, and faults are drawn
from the seed: the program and the brokers are killed, frozen, and cut off from each other, one at a
time. Then all is mended; the program has some time to catch up, and is killed. It has caught up
when groups have committed the ends of all inputs and no topic has grown for five seconds; a program
that commits nothing has `settle_seconds`. `check` receives the committed records of each topic.

Rule 1: a kill detaches the program's network first, and cancels its task next. So `finally` blocks
and `async with` exits run, as Python demands, and reach nobody: what they send is lost, as after
SIGKILL, and what they wait for raises `trio.Cancelled` or an error of the client. What they raise
is ignored. A shielded scope
that never ends keeps the program from being killed, and the run ends with StuckError.

Rule 2: the next life calls the function again, after up to three seconds. Only what is in Kafka
outlives a kill, so a program keeps its state in local variables: globals would outlive it.

Rule 3: a KafkaError ends a life as a crash does, and the next one begins. Any other error of the
program ends the run, and is its failure. A program that returns is not started again.

Rule 4: what the program draws and waits for comes from the world: `node.chance`, `node.sleep`, and
all that our clients do. `trio.sleep` runs on virtual time too, but goes on while the node is frozen.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from replication.client.admin import Admin
from replication.client.consumer import Consumer
from replication.client.consumer.records import ConsumerRecord
from replication.client.producer import Producer
from replication.errors import KafkaError
from replication.net.raising import raising_only_one
from replication.net.seams import Seams
from replication.wire.list_offsets import LATEST
from scenarios.checkers import Checkers
from scenarios.story.commands.table import run_command
from scenarios.story.report import Recording, page, scene_of
from scenarios.story.stage import Stage
from scenarios.world.clients.machine import Program
from scenarios.world.world import World
from storage.types import TopicPartition

SERVICE: Final = "service"
"""The name of the program's machine, in faults and on the page."""
POLL_MS: Final = 1_000
REPLICAS: Final = 3
SETTLE_SECONDS: Final = 400.0
"""The longest time to catch up: a group may wait for a member that was killed as long as
`max.poll.interval.ms` says, which is five minutes by default.
"""
QUIET_SECONDS: Final = 5.0
"""How long the ends of all topics stay as they are before a program counts as caught up."""

Records: TypeAlias = Mapping[str, Sequence[ConsumerRecord]]
"""The committed records of each topic, in the order of their partitions and offsets."""


@attrs.frozen(kw_only=True)
class ServiceNode:
    """The machine of a user's program, in one life of it."""

    bootstrap_servers: Sequence[str]
    seams: Seams
    """Clock, chance, transport and file system; clients of `replication.client` take them."""
    life: int
    """The number of this life; the first is 1."""

    @property
    def chance(self) -> random.Random:
        """A source of random numbers, drawn from the seed."""
        return self.seams.chance

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time; a frozen node sleeps on."""
        await self.seams.clock.sleep(seconds)

    def producer(self, **config: Any) -> Producer[Any, Any]:
        """Return a producer of this node, to be opened with `async with`."""
        return Producer(self.bootstrap_servers, seams=self.seams, **config)

    def consumer(self, *topics: str, **config: Any) -> Consumer:
        """Return a consumer of this node, to be opened with `async with`."""
        return Consumer(
            *topics, bootstrap_servers=self.bootstrap_servers, seams=self.seams, **config
        )

    def admin(self, **config: Any) -> Admin:
        """Return an admin client of this node, to be opened with `async with`."""
        return Admin(self.bootstrap_servers, seams=self.seams, **config)


Service: TypeAlias = Callable[[ServiceNode], Awaitable[None]]
Check: TypeAlias = Callable[[Records], object]


@attrs.frozen(kw_only=True)
class Simulation:
    """The result of one run."""

    seed: int
    happened: tuple[str, ...]
    """The faults, each with its virtual time."""
    records: Records
    failure: Exception | None
    """What the program, the check or an invariant of the cluster raised; None if all is well."""
    journal: str
    """Every event, with its virtual time."""
    trace_hash: str
    """Equal for equal seeds, in any process."""
    virtual_seconds: float
    _record: Callable[[Recording], object] = attrs.field(repr=False)

    def check(self) -> None:
        """Raise the failure, with the seed and the faults as a note."""
        if self.failure is not None:
            self.failure.add_note(f"seed {self.seed}: {', '.join(self.happened) or 'no faults'}")
            raise self.failure

    def write_report(self, path: str | Path) -> None:
        """Repeat the run, and write it as one page (docs/simulation.md)."""
        recording = Recording()
        self._record(recording)
        wrong = "" if self.failure is None else str(self.failure)
        scene = scene_of(recording, title=f"Seed {self.seed}", passages=[], wrong=wrong)
        Path(path).write_text(page(scene), encoding="utf-8")


@attrs.define(eq=False, kw_only=True)
class _ServiceProgram(Program):
    service: Service
    life: int

    async def work(self, seams: Seams) -> None:
        node = ServiceNode(bootstrap_servers=self.servers, seams=seams, life=self.life)
        self.life += 1
        try:
            await self.service(node)
        except BaseExceptionGroup as group:
            if group.split(KafkaError)[1] is not None:
                raise
            raise _first(group) from group
        self.ending = True


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def simulate(
    service: Service,
    *,
    seed: int,
    topics: Mapping[str, int],
    inputs: Mapping[str, Sequence[bytes]] | None = None,
    check: Check | None = None,
    brokers: int = 3,
    faults: int = 8,
    settle_seconds: float = SETTLE_SECONDS,
    recording: Recording | None = None,
) -> Simulation:
    """Run a program in a world grown from `seed`, under so many faults.

    `topics` has the number of partitions of each topic. `inputs` are values for topics, sent in
    order, a few in each second. `check` raises if the records are wrong; the failure is noted in
    the result, and nothing is raised here.
    """
    world = World(seed)
    run = _Run(
        world=world,
        service=service,
        topics=topics,
        inputs=inputs or {},
        faults=faults,
        settle_seconds=settle_seconds,
        recording=recording,
    )
    failure: Exception | None = None
    try:
        world.run(lambda _: run.play(brokers))
        if check is not None:
            check(run.records)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        failure = error
    return Simulation(
        seed=seed,
        happened=tuple(run.happened),
        records=run.records,
        failure=run.checkers.violation or failure,
        journal=str(world.trace),
        trace_hash=world.trace_hash(),
        virtual_seconds=world.time.now,
        record=lambda recording: simulate(
            service,
            seed=seed,
            topics=topics,
            inputs=inputs,
            brokers=brokers,
            faults=faults,
            settle_seconds=settle_seconds,
            recording=recording,
        ),
    )


@attrs.define(eq=False, kw_only=True)
class _Run:
    world: World
    service: Service
    topics: Mapping[str, int]
    inputs: Mapping[str, Sequence[bytes]]
    faults: int
    settle_seconds: float
    recording: Recording | None
    checkers: Checkers = attrs.field(factory=Checkers)
    happened: list[str] = attrs.field(factory=list)
    records: dict[str, list[ConsumerRecord]] = attrs.field(factory=dict)
    _servers: list[str] = attrs.field(factory=list, init=False)

    async def play(self, brokers: int) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(raising_only_one())
            stage = Stage(
                world=self.world, stack=stack, checkers=self.checkers, recording=self.recording
            )
            await run_command(stage, f"cluster brokers={brokers} min.insync.replicas=2")
            chance = self.world.chance("faults of a service")
            names = stage.cluster.broker_names
            for topic, partitions in self.topics.items():
                replicas = "/".join(
                    ",".join(chance.sample(names, min(REPLICAS, brokers)))
                    for _ in range(partitions)
                )
                await run_command(stage, f"topic {topic} replicas={replicas}")
            self._start(stage)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_inputs, stage)
                for _ in range(self.faults):
                    await stage.cluster.clock.sleep(chance.uniform(0.2, 3.0))
                    await self._strike(stage, chance)
                    self.checkers.look()
                await run_command(stage, "recover")
            await self._settle(stage)
            if SERVICE in stage.programs.running:
                await stage.programs.kill(SERVICE)
            await self._read(stage)
            self.checkers.look()

    def _start(self, stage: Stage) -> None:
        lives = stage.programs.lives(SERVICE)
        stage.programs.start(
            _ServiceProgram(
                name=SERVICE,
                world=self.world,
                servers=stage.programs.servers,
                config={},
                service=self.service,
                life=lives + 1,
            )
        )

    async def _strike(self, stage: Stage, chance: random.Random) -> None:
        """Let one thing go wrong for a while, and mend it."""
        broker = chance.choice(stage.cluster.broker_names)
        has_service = SERVICE in stage.programs.running
        victim = SERVICE if has_service and chance.random() < 0.6 else broker
        begin, end = chance.choice(
            [
                (f"kill {victim}", "" if victim == SERVICE else f"start {victim}"),
                (f"pause {victim}", f"resume {victim}"),
                *([(f"cut {SERVICE} {broker}", f"heal {SERVICE} {broker}")] * has_service),
            ]
        )
        await self._carry_out(stage, begin)
        await stage.cluster.clock.sleep(chance.uniform(0.1, 3.0))
        if end:
            # A program may have ended meanwhile.
            if SERVICE not in end or SERVICE in stage.programs.running:
                await self._carry_out(stage, end)
        else:
            self.happened.append(f"{self.world.time.now:.1f} s: start {SERVICE}")
            self._start(stage)

    async def _carry_out(self, stage: Stage, line: str) -> None:
        self.happened.append(f"{self.world.time.now:.1f} s: {line}")
        await run_command(stage, line)

    async def _send_inputs(self, stage: Stage) -> None:
        seams = self.world.node("inputs")
        producer: Producer[Any, Any] = Producer(stage.programs.servers, seams=seams)
        async with producer:
            for topic, values in self.inputs.items():
                for value in values:
                    await producer.send(topic, value)
                    await seams.clock.sleep(seams.chance.uniform(0.0, 0.5))

    @property
    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic, count in self.topics.items()
            for number in range(count)
        ]

    async def _settle(self, stage: Stage) -> None:
        """Wait until the program has caught up, or until `settle_seconds` have passed."""
        clock = stage.cluster.clock
        with clock.move_on_after(self.settle_seconds):
            async with Admin(stage.programs.servers, seams=self.world.node("settle")) as admin:
                before: Mapping[TopicPartition, int] = {}
                while True:
                    await clock.sleep(QUIET_SECONDS)
                    listed = await admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
                    ends = {partition: each.offset for partition, each in listed.items()}
                    if ends == before and await self._is_consumed(admin, ends):
                        return
                    before = ends

    async def _is_consumed(self, admin: Admin, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether every group has committed all inputs that it reads, and each is read."""
        groups = [
            await admin.list_group_offsets(each.group_id) for each in await admin.list_groups()
        ]
        inputs = [each for each in self._partitions if each.topic in self.inputs]
        return bool(inputs) and all(
            any(each in committed for committed in groups)
            and all(
                committed[each].offset == ends[each] for committed in groups if each in committed
            )
            for each in inputs
            if ends[each] > 0
        )

    async def _read(self, stage: Stage) -> None:
        partitions = self._partitions
        found: list[ConsumerRecord] = []
        consumer = Consumer(
            bootstrap_servers=stage.programs.servers,
            seams=self.world.node("check"),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    found += await consumer.poll(POLL_MS)
        found.sort(key=lambda each: (each.topic_partition, each.offset))
        for topic in self.topics:
            self.records[topic] = [each for each in found if each.topic == topic]
