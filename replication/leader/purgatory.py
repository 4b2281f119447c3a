"""Requests that wait: a produce for its followers, a fetch for its bytes (Kafka's purgatory).

Rule 1: a task waits inside `Purgatory.wait`. It leaves exactly once, because a task returns
once: satisfied, out of time or cancelled, whichever comes first.

Rule 2: nothing polls. A change to a partition calls `check` with its key, and every operation
watched under that key looks at that key alone, even if it waits for a thousand partitions.

Rule 3: `satisfied_by` never changes anything that others see. What the operation does next
happens in its own task, after the caller of `check` has gone on.

    handler task                       partition
      wait(operation, keys) ─┐
                             │ <─ check(key)    operation.satisfied_by(key)? no
                             │ <─ check(key)    yes: wake
      answer  <──────────────┘    or the timeout, by the node's clock

An operation that is called back instead (`call_when_done`) has no task: what it does next, such as
to send a short answer, happens inside of `check`. It changes no partition, and it does not fail.

Rule 4: a task that measures how long it waits here puts a `Waited` in its context: a request's
remote time is what its handler spent in purgatories, at any depth of calls.

There is no checkpoint between the first `satisfied` and the watch, so no change is missed
(DelayedOperationPurgatory checks twice instead). An operation that looks at many keys with pauses
in between is watched from its first look on (`watching`), and waits after its last.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from replication.net.seams import Alarm, NodeClock
from storage.attributes import define

Key = TypeVar("Key", bound=Hashable)
Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


@define
class Waited:
    """The time that a task has spent in purgatories; its owner may set it back to 0."""

    seconds: float = 0.0


WAITED: ContextVar[Waited | None] = ContextVar("WAITED", default=None)


class DelayedOperation(Protocol[Key_contra]):
    """An operation that waits until it is satisfied."""

    def satisfied(self) -> bool:
        """Return whether it need not wait at all; called once on arrival."""

    def satisfied_by(self, key: Key_contra, /) -> bool:
        """Return whether it is satisfied now; called when something about `key` has changed."""


@define(eq=False)
class _Watch(Generic[Key]):
    operation: DelayedOperation[Key]
    keys: dict[Key, None]
    go_on: Callable[[], object] | None = None
    """Wakes the task that waits, or calls back; None as long as neither is to be done."""
    alarm: Alarm | None = None
    """Rings when the time of one that is called back is up."""
    leaves: bool = False
    """Whether it was woken or cancelled; later changes do not matter."""
    out_of_time: bool = False

    def cancelled(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.leaves = True
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        self.leaves = True
        if (go_on := self.go_on) is not None:
            self.go_on = None  # it refers to this watch: a cycle for the garbage collector
            go_on()

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
        # Dictionaries instead of sets: the order of waking is that of arrival in every run.
        self._watches: dict[Key, dict[_Watch[Key], None]] = {}
        self._waiting: dict[DelayedOperation[Key], _Watch[Key]] = {}
        self.expired = 0
        """The number of operations that ran out of time (ExpiresPerSec)."""

    @property
    def waiting(self) -> int:
        """The number of operations that wait, or are watched already (NumDelayedOperations)."""
        return len(self._waiting)

    @property
    def watched(self) -> int:
        """The number of watches over all keys (PurgatorySize)."""
        return sum(map(len, self._watches.values()))

    async def wait(
        self, operation: DelayedOperation[Key], keys: Iterable[Key], *, timeout_ms: int
    ) -> bool:
        """Wait until `operation` is satisfied or the time is up; return whether it was satisfied."""
        if operation.satisfied():
            await trio.lowlevel.checkpoint()
            return True
        watch = self._watch(operation, keys)
        try:
            return await self._sleep(watch, timeout_ms)
        finally:
            self._forget(watch)

    def call_when_done(
        self,
        operation: DelayedOperation[Key],
        keys: Iterable[Key],
        *,
        timeout_ms: int,
        done: Callable[[], object],
    ) -> None:
        """Call `done` once, when `operation` is satisfied or the time is up: at once, if it is now.

        `give_up` ends the wait before that.
        """
        if operation.satisfied():
            done()
            return
        watch = self._watch(operation, keys)
        watch.alarm = self._clock.alarm(self._clock.now() + timeout_ms / 1000, watch.run_out)

        def go_on() -> None:
            if watch.alarm is not None:
                watch.alarm.call_off()
            self._forget(watch)
            self.expired += watch.out_of_time
            done()

        watch.go_on = go_on

    def give_up(self, operation: DelayedOperation[Key]) -> bool:
        """End the wait of an operation that is called back; return whether it waited."""
        watch = self._waiting.get(operation)
        if watch is None or watch.alarm is None:
            return False
        watch.leaves, watch.go_on = True, None
        watch.alarm.call_off()
        self._forget(watch)
        return True

    def _watch(self, operation: DelayedOperation[Key], keys: Iterable[Key]) -> _Watch[Key]:
        watch = self._waiting[operation] = _Watch(operation, dict.fromkeys(keys))
        for key in watch.keys:
            self._watches.setdefault(key, {})[watch] = None
        return watch

    @contextmanager
    def watching(self, operation: DelayedOperation[Key]) -> Iterator[None]:
        """Let `operation` be watched inside of the block, before it waits with `wait_watched`."""
        watch = self._waiting[operation] = _Watch(operation, {})
        try:
            yield
        finally:
            self._forget(watch)

    async def wait_watched(self, operation: DelayedOperation[Key], *, timeout_ms: int) -> bool:
        """Wait as `wait` does, without a first look: a change since it was watched counts."""
        return await self._sleep(self._waiting[operation], timeout_ms)

    async def _sleep(self, watch: _Watch[Key], timeout_ms: int) -> bool:
        began = self._clock.now()
        alarm = self._clock.alarm(began + timeout_ms / 1000, watch.run_out)
        try:
            if watch.leaves:  # satisfied before it waits
                await trio.lowlevel.checkpoint()
            else:
                # A `trio.Event`, which serves any number of tasks, takes twice the steps.
                watch.go_on = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
                await trio.lowlevel.wait_task_rescheduled(watch.cancelled)
        finally:
            alarm.call_off()
            if (waited := WAITED.get()) is not None:
                waited.seconds += self._clock.now() - began
        if watch.out_of_time:
            self.expired += 1
        return not watch.out_of_time

    def watch(self, operation: DelayedOperation[Key], key: Key) -> None:
        """Watch `key` too for `operation`, which waits or is `watching`."""
        watch = self._waiting[operation]
        watch.keys[key] = None
        self._watches.setdefault(key, {})[watch] = None

    def check(self, key: Key) -> int:
        """Wake the operations that a change of `key` satisfies; return how many."""
        watches = self._watches.get(key)
        if not watches:
            return 0
        woken = 0
        for watch in list(watches):
            if watch.leaves:
                continue
            try:
                satisfied = watch.operation.satisfied_by(key)
            except Exception as error:
                # A bug in one operation must not keep the others waiting: it ends its own wait.
                if self._on_bug is None:
                    raise
                self._on_bug(error)
                satisfied = True
            if satisfied:
                watch.wake()
                woken += 1
        return woken

    def _forget(self, watch: _Watch[Key]) -> None:
        del self._waiting[watch.operation]
        for key in watch.keys:
            watches = self._watches[key]
            watches.pop(watch, None)
            if not watches:
                del self._watches[key]
