"""Turns of tasks: at a connection, and between the steps of long work (`replication.steps`).

    large request   ▆▆   ▆▆        ▆▆          at most one step in a turn of the loop,
    another           ▆▆      ▆▆        ▆▆     however many requests are large
    the others      . . . . .  .  . . . .

Rule 1: work that is short goes through without a pause, as if it were an ordinary call.

Rule 2: while a request with long work is answered, garbage is not collected: a full collection
looks at every object while nothing else runs, a tenth of a second for 300,000 names. The objects
of the request are freed by reference counts when it is answered. (Metadata of 100,000 unknown
names: 395 ms of processor time, and 805 ms with collections; medians of 7, in turn.)

Rule 3: nor is it while a cluster starts in a test's process: what a start makes stays, and a full
collection takes as long as a start. (The p99 of 1,002 starts of three brokers: 64 ms, and 107 ms
with collections.)
"""

import gc
import threading  # noqa: TID251 - clusters are started in threads of tests
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

import attrs
import trio

from replication.steps import STEP, Steps, T
from storage.attributes import define

LONG = 8
"""The pauses after which the work for a request is long: at about 2,000 items."""

MOST_PAUSES = 100_000
"""The pauses after which garbage is collected again, even if long work never ends."""


@define(eq=False)
class Turns:
    """A lock: one task at a time, first come, first served, without a wait if it is free.

    `trio.Lock` lets other tasks run even if it is free, and remembers its holder. A task that takes
    a turn here is about to wait for the network, which lets others run anyway; an extra round of
    the loop is a tenth of what a small request costs.
    """

    taken: bool = attrs.field(default=False, init=False)
    _waiting: deque[trio.lowlevel.Task] = attrs.field(init=False, factory=deque)

    async def __aenter__(self) -> None:
        if not self.taken:
            self.taken = True
            return
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def cancelled(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(cancelled)  # until it is handed on

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.popleft())
        else:
            self.taken = False


@define(eq=False)
class Collections:
    """Whether this process collects garbage: not while some request has long work, in any thread."""

    holders: int = 0
    pauses: int = 0
    _were_on: bool = False
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def hold(self) -> None:
        with self._lock:
            if self.holders == 0:
                self._were_on = gc.isenabled()
                gc.disable()
            self.holders += 1

    def paused(self) -> None:
        self.pauses += 1
        if self.pauses >= MOST_PAUSES:
            self.pauses = 0
            gc.collect()

    def let_go(self) -> None:
        with self._lock:
            self.holders -= 1
            if self.holders == 0:
                self.pauses = 0
                if self._were_on:
                    gc.enable()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Collect nothing in the block, and then the young objects, so that nothing is due."""
        self.hold()
        try:
            yield
        finally:
            gc.collect(0)
            self.let_go()


COLLECTIONS = Collections()


@define(eq=False)
class RequestWork:
    """The work for one request at a time, in the context of a connection's task."""

    pauses: int = 0

    def paused(self) -> None:
        self.pauses += 1
        if self.pauses == LONG:
            COLLECTIONS.hold()
        elif self.pauses > LONG:
            COLLECTIONS.paused()

    def ended(self) -> None:
        """End the work for a request, to which nothing refers any more."""
        if self.pauses >= LONG:
            COLLECTIONS.let_go()
        self.pauses = 0


WORK: ContextVar[RequestWork | None] = ContextVar("WORK", default=None)
_TURNS: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("turns of long work")


async def in_steps(steps: Steps[T]) -> T:
    """Return the result of `steps`; after each `STEP` of work other tasks have a turn."""
    done = 0
    try:
        while done < STEP:
            done += next(steps)
        turns, work = _turns(), WORK.get()
        while True:
            if work is not None:
                work.paused()
            async with turns:
                await trio.lowlevel.checkpoint()
                done = 0
                while done < STEP:
                    done += next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


def _turns() -> Turns:
    try:
        return _TURNS.get()
    except LookupError:
        turns = Turns()
        _TURNS.set(turns)
        return turns
