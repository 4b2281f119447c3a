"""Requests that wait: a produce for its followers, a fetch for its bytes (Kafka's purgatory).

Rule 1: whoever waits is a task inside `Purgatory.wait`. It leaves exactly once, because a
task returns once: satisfied, out of time or cancelled, whichever comes first.

Rule 2: nobody polls. A change to a partition calls `check` with its key, and every
operation watched under that key is asked about that key alone. An operation over a
thousand partitions is then not asked a thousand questions because one has moved.

Rule 3: asking never changes anything that others see. What the operation then does with
its answer happens in its own task, after whoever called `check` has gone on.

    handler task                       partition
      wait(operation, keys) ─┐
                             │ <─ check(key)    operation.satisfied_by(key)? no
                             │ <─ check(key)    yes: wake
      answer  <──────────────┘    or the timeout, by the node's clock

Rule 4: a task that wants to know how long it has waited here puts a `Waited` in its context:
a request's remote time is what its handler spent in purgatories, however deep below it.

Between the question at the door and the watch there is no checkpoint, so no change falls
between them (DelayedOperationPurgatory asks twice for want of that).
"""

from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from replication.net.seams import NodeClock

Key = TypeVar("Key", bound=Hashable)
Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


@attrs.define
class Waited:
    """How long, all waits together; whoever put it there begins again at 0 when it likes."""

    seconds: float = 0.0


WAITED: ContextVar[Waited | None] = ContextVar("WAITED", default=None)


class DelayedOperation(Protocol[Key_contra]):
    """What waits: it knows when it has waited enough."""

    def satisfied(self) -> bool:
        """Asked once on arrival, with everything in view."""

    def satisfied_by(self, key: Key_contra, /) -> bool:
        """Asked when something about `key` has changed."""


@attrs.define(eq=False)
class _Watch(Generic[Key]):
    operation: DelayedOperation[Key]
    keys: dict[Key, None]
    task: trio.lowlevel.Task = attrs.Factory(trio.lowlevel.current_task)
    leaves: bool = False
    """Woken, or cancelled: whatever comes now comes too late."""
    out_of_time: bool = False

    async def until_woken(self) -> None:
        # A `trio.Event`, which is for any number of tasks, takes twice the steps.
        def cancelled(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self.leaves = True
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(cancelled)

    def wake(self) -> None:
        self.leaves = True
        trio.lowlevel.reschedule(self.task)

    def run_out(self) -> None:
        if not self.leaves:
            self.out_of_time = True
            self.wake()


class Purgatory(Generic[Key]):
    """The waiting operations of one kind, by the keys that may complete them."""

    def __init__(
        self, *, clock: NodeClock, on_bug: Callable[[BaseException], None] | None = None
    ) -> None:
        self._clock = clock
        self._on_bug = on_bug
        # Dictionaries for sets: woken in order of arrival, the same in every run.
        self._watches: dict[Key, dict[_Watch[Key], None]] = {}
        self._waiting: dict[DelayedOperation[Key], _Watch[Key]] = {}
        self.expired = 0
        """How many have run out of time (ExpiresPerSec counts these)."""

    @property
    def waiting(self) -> int:
        """How many operations wait (NumDelayedOperations)."""
        return len(self._waiting)

    @property
    def watched(self) -> int:
        """How many watches there are, over all keys (PurgatorySize)."""
        return sum(map(len, self._watches.values()))

    async def wait(
        self, operation: DelayedOperation[Key], keys: Iterable[Key], *, timeout_ms: int
    ) -> bool:
        """Until `operation` is satisfied or `timeout_ms` have passed; whether it was satisfied."""
        if operation.satisfied():
            await trio.lowlevel.checkpoint()
            return True
        watch = _Watch(operation, dict.fromkeys(keys))
        for key in watch.keys:
            self._watches.setdefault(key, {})[watch] = None
        self._waiting[operation] = watch
        began = self._clock.now()
        alarm = self._clock.alarm(began + timeout_ms / 1000, watch.run_out)
        try:
            await watch.until_woken()
        finally:
            alarm.call_off()
            del self._waiting[operation]
            self._forget(watch)
            if (waited := WAITED.get()) is not None:
                waited.seconds += self._clock.now() - began
        if watch.out_of_time:
            self.expired += 1
        return not watch.out_of_time

    def watch(self, operation: DelayedOperation[Key], key: Key) -> None:
        """Ask `operation`, which waits, about `key` too from now on."""
        watch = self._waiting[operation]
        watch.keys[key] = None
        self._watches.setdefault(key, {})[watch] = None

    def check(self, key: Key) -> int:
        """Something about `key` has changed: wake whom that satisfies; how many."""
        watches = self._watches.get(key)
        if not watches:
            return 0
        woken = 0
        for watch in list(watches):
            if not watch.leaves and self._satisfied(watch, key):
                watch.wake()
                woken += 1
        return woken

    def _satisfied(self, watch: _Watch[Key], key: Key) -> bool:
        try:
            return watch.operation.satisfied_by(key)
        except Exception as error:
            # One operation's bug must not keep the others waiting: it is answered with
            # what there is, and they are asked in their turn.
            if self._on_bug is None:
                raise
            self._on_bug(error)
            return True

    def _forget(self, watch: _Watch[Key]) -> None:
        for key in watch.keys:
            watches = self._watches[key]
            watches.pop(watch, None)
            if not watches:
                del self._watches[key]
