"""A node's time in a simulation: virtual, and the node's own.

All nodes share one monotonic time, that of trio's MockClock, which jumps to the next
deadline whenever nobody can run. Two things are a node's own:

    paused    its wake-ups are withheld, and fall due together when it resumes, as after
              SIGSTOP, a stalled virtual machine or a long collection of garbage
    wall      its wall clock, which may jump and drift; lag, sessions and retries must not
              notice

A pause holds back timers here and bytes in the network. Tasks that are in the middle of
something run on to their next wait.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z


@attrs.define(eq=False)
class SimulatedClock:
    """`NodeClock` over the virtual time of the present trio run."""

    wall_offset_ms: int = EPOCH_MS
    wall_drift: float = 0.0  # seconds gained in a second
    paused: bool = attrs.field(init=False, default=False)
    # What is waiting, and the deadline each scope would have if this node were not paused.
    _deadlines: dict[trio.CancelScope, float] = attrs.field(init=False, factory=dict)
    _when_resumed: list[Callable[[], None]] = attrs.field(init=False, factory=list)

    def now(self) -> float:
        return trio.current_time()

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(trio.current_time() * 1000 * (1 + self.wall_drift))

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        if deadline <= self.now() and not self.paused:
            await trio.lowlevel.checkpoint()
            return
        with self._scope(deadline):
            await trio.sleep_forever()

    @contextmanager
    def move_on_after(self, seconds: float) -> Iterator[trio.CancelScope]:
        with self._scope(self.now() + seconds) as scope:
            yield scope

    def jump_wall(self, milliseconds: int) -> None:
        self.wall_offset_ms += milliseconds

    def drift_wall(self, gained: float) -> None:
        """From now on it gains so many seconds in a second; what it shows now, it shows still."""
        shown = self.wall_ms()
        self.wall_drift = gained
        self.wall_offset_ms += shown - self.wall_ms()

    def pause(self) -> None:
        self.paused = True
        for scope in self._deadlines:
            self._deadlines[scope] = scope.deadline
            scope.deadline = math.inf

    def resume(self) -> None:
        self.paused = False
        for scope, deadline in self._deadlines.items():
            scope.deadline = deadline
        for wake in self._when_resumed:
            wake()

    def when_resumed(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the end of each pause."""
        self._when_resumed.append(wake)

    @contextmanager
    def _scope(self, deadline: float) -> Iterator[trio.CancelScope]:
        scope = trio.CancelScope(deadline=math.inf if self.paused else deadline)
        self._deadlines[scope] = deadline
        try:
            with scope:
                yield scope
        finally:
            del self._deadlines[scope]
