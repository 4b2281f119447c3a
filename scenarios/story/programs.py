"""Our own clients in a story: their programs, their machines, and what they did and received.

A name is that of a machine too. A program that was killed or has ended may be started again under
its name; that is another life of it.
"""

from collections.abc import Callable, Sequence

import attrs
import trio

from scenarios.story.script import ScriptError
from scenarios.world.clients.copying import Copier
from scenarios.world.clients.machine import Program
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.sending import Finish, SendingClient
from scenarios.world.clients.witness import Witness
from scenarios.world.cluster import BROKER_PORT
from scenarios.world.world import World
from storage.types import TopicPartition


@attrs.define(eq=False, kw_only=True, repr=False)
class Programs:
    world: World
    running: dict[str, Program] = attrs.field(factory=dict, init=False)
    all: list[Program] = attrs.field(factory=list, init=False)
    """All programs, past ones too."""
    drained: set[Program] = attrs.field(factory=set, init=False)
    """The programs that ran when everything had been read and copied."""
    witness: Witness = attrs.field(factory=Witness, init=False)
    servers: list[str] = attrs.field(factory=list, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _finish: Finish | None = attrs.field(default=None, init=False)
    _reserved: set[str] = attrs.field(factory=set, init=False)

    def begin(self, brokers: Sequence[str], nursery: trio.Nursery, finish: Finish) -> None:
        """Begin once there is a cluster."""
        self.servers = [f"{name}:{BROKER_PORT}" for name in brokers]
        self._nursery, self._finish = nursery, finish
        self._reserved = {*brokers, "c", "client"}

    def sender(self, name: str, config: dict[str, str]) -> None:
        assert self._finish is not None, "there is a cluster"
        self.start(
            SendingClient(
                name=name,
                world=self.world,
                servers=self.servers,
                config=config,
                finish=self._finish,
            )
        )

    def reader(
        self,
        name: str,
        config: dict[str, str],
        *,
        partitions: Sequence[TopicPartition] = (),
        group: str | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        self.start(
            Reader(
                name=name,
                world=self.world,
                servers=self.servers,
                config=config,
                witness=self.witness,
                chance=self.world.chance(f"reader {name} {self.lives(name)}"),
                partitions=partitions,
                group=group,
                topics=topics,
                returns=self.lives(name) > 0,
            )
        )

    def copier(
        self, name: str, config: dict[str, str], *, group: str, source: str, target: TopicPartition
    ) -> None:
        self.start(
            Copier(
                name=name,
                world=self.world,
                servers=self.servers,
                config={"transactional.id": name, **config},
                witness=self.witness,
                group=group,
                source=source,
                target=target,
            )
        )

    def start(self, program: Program) -> None:
        assert self._nursery is not None, "there is a cluster"
        if program.name in self.running:
            raise ScriptError(f"{program.name} runs already")
        if program.name in self._reserved:
            raise ScriptError(f"{program.name} is a machine of another's")
        self.world.node(program.name)  # its machine, before a fault can hit it
        self.running[program.name] = program
        self.all.append(program)

        async def live() -> None:
            try:
                await program.run()
            finally:
                if self.running.get(program.name) is program:
                    del self.running[program.name]

        self._nursery.start_soon(live)

    def cancel(self) -> None:
        """Cancel those that run; a frozen one goes on first, since it would never leave its group."""
        assert self._nursery is not None, "there is a cluster"
        for name in self.running:
            if self.world.clock(name).paused:
                self.world.resume(name)
        self._nursery.cancel_scope.cancel()

    def lives(self, name: str) -> int:
        return sum(program.name == name for program in self.all)

    # Running programs.

    def named(self, name: str, kind: Callable[[Program], bool] = lambda _: True) -> Program:
        program = self.running.get(name)
        if program is None or not kind(program):
            raise ScriptError(f"no such client runs as {name!r}")
        return program

    async def kill(self, name: str) -> None:
        program = self.running.pop(name)
        program.kill()
        await program.ended.wait()

    @property
    def senders(self) -> list[SendingClient]:
        return [each for each in self.running.values() if isinstance(each, SendingClient)]

    @property
    def of_transactions(self) -> list[Program]:
        """Return all programs with a transactional id, past ones too."""
        return [each for each in self.all if "transactional.id" in each.config]

    @property
    def readers(self) -> list[Reader]:
        """All readers, past ones too."""
        return [each for each in self.all if isinstance(each, Reader)]

    @property
    def copiers(self) -> list[Copier]:
        """All copiers, past ones too."""
        return [each for each in self.all if isinstance(each, Copier)]
