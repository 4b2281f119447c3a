"""A node's time in a simulation: virtual, and the node's own.

All nodes share one monotonic time, which jumps to the next moment whenever no task can run
(`scenarios.world.virtual_time`). Two things are a node's own:

    paused    its wake-ups are withheld, and fall due together when it resumes, as after
              SIGSTOP, a stalled virtual machine or a long garbage collection
    wall      its wall clock, which may jump and drift; lag, sessions and retries must not
              notice

A pause holds back timers here and bytes in the network. A task that is running goes on to its
next wait.
"""

from collections.abc import Callable
from types import TracebackType

import attrs
import trio

from scenarios.world.virtual_time import VirtualAlarm, VirtualTime, sleep_until

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z


@attrs.define(eq=False)
class SimulatedClock:
    """`NodeClock` over the virtual time of a world."""

    time: VirtualTime
    wall_offset_ms: int = EPOCH_MS
    wall_drift: float = 0.0  # seconds gained in a second
    paused: bool = attrs.field(init=False, default=False)
    withheld: list[VirtualAlarm] = attrs.field(init=False, factory=list)
    """The alarms that fell due during this pause."""
    _when_resumed: list[Callable[[], None]] = attrs.field(init=False, factory=list)

    def now(self) -> float:
        return self.time.now

    def now_ms(self) -> int:
        return int(self.time.now * 1000)

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.time.now * 1000 * (1 + self.wall_drift))

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.time.now + seconds)

    async def sleep_until(self, deadline: float) -> None:
        if deadline <= self.time.now and not self.paused:
            await trio.lowlevel.checkpoint()
        else:
            await sleep_until(self, deadline)

    async def sleep_through(self, seconds: float) -> None:
        """Sleep in a shielded scope, at less cost: a cancellation waits."""
        if seconds <= 0 and not self.paused:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await sleep_until(self, self.time.now + seconds, shielded=True)

    def move_on_after(self, seconds: float) -> "_Scope":
        return _Scope(self, self.time.now + seconds)

    def alarm(self, moment: float, act: Callable[[], object]) -> VirtualAlarm:
        """Call `act` at `moment`, or at the end of the pause in which that falls."""
        return self.time.put(moment, _NodeAlarm(act, self))

    def jump_wall(self, milliseconds: int) -> None:
        self.wall_offset_ms += milliseconds

    def drift_wall(self, gained: float) -> None:
        """Let the wall clock gain so many seconds in a second from now on, without a jump."""
        shown = self.wall_ms()
        self.wall_drift = gained
        self.wall_offset_ms += shown - self.wall_ms()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        due, self.withheld = self.withheld, []
        for alarm in due:
            alarm.ring()
        for wake in self._when_resumed:
            wake()

    def when_resumed(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the end of each pause."""
        self._when_resumed.append(wake)


@attrs.define(eq=False)
class _NodeAlarm(VirtualAlarm):
    """An alarm of one node."""

    clock: SimulatedClock

    def ring(self) -> None:
        if self.clock.paused:
            self.clock.withheld.append(self)
        else:
            super().ring()


class _Scope:
    """A cancel scope that an alarm of the node cancels."""

    __slots__ = ("_alarm", "_scope", "clock", "deadline")

    def __init__(self, clock: SimulatedClock, deadline: float) -> None:
        self.clock, self.deadline = clock, deadline
        self._scope = trio.CancelScope()
        self._alarm: VirtualAlarm | None = None

    def __enter__(self) -> trio.CancelScope:
        clock, scope = self.clock, self._scope
        if self.deadline <= clock.time.now and not clock.paused:
            scope.cancel()
        else:
            self._alarm = clock.time.put(self.deadline, _NodeAlarm(scope.cancel, clock))
        return scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if self._alarm is not None:
            self._alarm.act = None
        return self._scope.__exit__(kind, error, traceback)
