"""One life of a program on a machine of its own.

    run ──> work until it is asked to end ──> ended in good order
        └─> killed: its network is gone first, then its task is cancelled

Rule: what a program stumbles over after it was killed is the kill, and no news. Anything else
that is not Kafka's error is a mistake of ours, and ends the run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs
import trio

from replication.errors import KafkaError
from replication.net.seams import Seams
from scenarios.world.world import World

RETRY_SECONDS = 0.3


@attrs.define(eq=False, kw_only=True)
class Program(ABC):
    """What runs there. It is started once."""

    name: str
    world: World
    servers: list[str]
    config: Mapping[str, str]
    errors: list[str] = attrs.field(factory=list, init=False)
    """Kafka's errors that it has met, in order: names of their classes and codes."""
    ending: bool = attrs.field(default=False, init=False)
    """It was asked to come to its end."""
    killed: bool = attrs.field(default=False, init=False)
    when_ended: list[Callable[[], None]] = attrs.field(factory=list, init=False)
    """Whatever it has under way then has no outcome any more."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @abstractmethod
    async def work(self, seams: Seams) -> None:
        """Until `ending`; KafkaError where it cannot go on, and is to begin anew."""

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
        """Its configuration as a client takes it: that of these keys, or all `but` some."""
        chosen = names or [key for key in self.config if key not in but]
        return {key.replace(".", "_"): self.config[key] for key in chosen if key in self.config}

    def note(self, error: KafkaError) -> None:
        self.errors.append(f"{type(error).__name__} {error.code.name}")

    # What others ask of it.

    def end(self) -> None:
        """In good order, as soon as it can; `ended` says when."""
        self.ending = True
        self.wake()

    def kill(self) -> None:
        """SIGKILL: nothing is said any more."""
        self.killed = True
        self.world.kill(self.name)
        self._scope.cancel()

    def wake(self) -> None:
        self._changed.set()

    async def changed(self) -> None:
        """Until somebody has called `wake` since this was last waited for."""
        await self._changed.wait()
        self._changed = trio.Event()
