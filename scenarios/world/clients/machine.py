"""One life of a program on a machine of its own.

    run ──> work until it is asked to end ──> ended in good order
        └─> killed: its network is detached first, then its task is cancelled

Rule: an error after the kill is a consequence of the kill, and is dropped. Any other error that is
not Kafka's is a mistake of ours, and ends the run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import attrs
import trio

from replication.errors import KafkaError
from replication.events import EventSink
from replication.net.seams import Seams

RETRY_SECONDS = 0.3


class Time(Protocol):
    @property
    def now(self) -> float:
        """The time in seconds, by which what happened is ordered."""


class Machines(Protocol):
    """Where programs run: a simulated world, or the machine of a test with real brokers."""

    @property
    def time(self) -> Time: ...

    def node(self, name: str, /) -> Seams:
        """Return what a program of this name runs on; begin its life."""

    def sink(self, name: str, /) -> EventSink: ...

    def kill(self, name: str, /) -> None:
        """Detach a program that is about to be cancelled from its network."""

    def stopped(self, name: str, /) -> None:
        """Note that a program has ended in good order."""


@attrs.define(eq=False, kw_only=True)
class Program(ABC):
    """A program on a machine. It is started once."""

    name: str
    world: Machines
    servers: list[str]
    config: Mapping[str, str]
    errors: list[str] = attrs.field(factory=list, init=False)
    """The Kafka errors that it has met, in order, as names of classes and codes."""
    ending: bool = attrs.field(default=False, init=False)
    """Whether it was asked to end."""
    killed: bool = attrs.field(default=False, init=False)
    when_ended: list[Callable[[], None]] = attrs.field(factory=list, init=False)
    """A call at its end; work that is unfinished then has no outcome."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @abstractmethod
    async def work(self, seams: Seams) -> None:
        """Work until `ending`; raise KafkaError if it cannot go on and must begin again."""

    async def run(self) -> None:
        seams = self.world.node(self.name)
        try:
            with self._scope:
                await self._until_ended(seams)
        except Exception:
            if not self.killed:
                raise
        finally:
            if not self.killed:
                self.world.stopped(self.name)
            for tell in self.when_ended:
                tell()
            self.ended.set()

    async def _until_ended(self, seams: Seams) -> None:
        while not self.ending:
            try:
                await self.work(seams)
            except KafkaError as error:
                self.note(error)
                await seams.clock.sleep(RETRY_SECONDS)

    def keywords(self, *names: str, but: Collection[str] = ()) -> dict[str, Any]:
        """Return its configuration as a client takes it: these keys, or all except `but`."""
        chosen = names or [key for key in self.config if key not in but]
        return {key.replace(".", "_"): self.config[key] for key in chosen if key in self.config}

    def note(self, error: KafkaError) -> None:
        self.errors.append(f"{type(error).__name__} {error.code.name}")

    # Calls from outside.

    def end(self) -> None:
        """Ask it to end in good order; `ended` says when it has."""
        self.ending = True
        self.wake()

    def kill(self) -> None:
        """End it as SIGKILL would: it sends nothing more."""
        self.killed = True
        self.world.kill(self.name)
        self._scope.cancel()

    def wake(self) -> None:
        self._changed.set()

    async def changed(self) -> None:
        """Wait until `wake` has been called since the last wait."""
        await self._changed.wait()
        self._changed = trio.Event()
