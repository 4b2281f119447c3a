"""Virtual time, the clocks of nodes, and the time that slow work takes.

    agenda   0.5012 bytes arrive at b2   0.7500 b1 wakes   30.0000 a call runs out of time
    now      ──────^ no task can run: on to 0.7500

Rule 1: time stands still while any task can run, and jumps to the next moment when none can. trio
asks its clock exactly then how long it may sleep, so that is where it jumps.

Rule 2: alarms that fall due at one moment ring in the order in which they were set. Tasks that
they wake run in an order that trio draws.

Rule 3: an alarm is a function call and no task. A task that waits for a moment is woken once, when
it has come, which makes an hour cheap.

All nodes share this monotonic time. Two things are a node's own:

    paused    its wake-ups are withheld, and fall due together when it resumes, as after
              SIGSTOP, a stalled virtual machine or a long garbage collection
    wall      its wall clock, which may jump and drift; lag, sessions and retries must not
              notice

A pause holds back timers here and bytes in the network. A task that is running goes on to its
next wait.

Slow work is done at once, and paid for in the node's time: `fn` runs on the loop, between two
checkpoints, so no other task sees it half done. Then its caller waits for as long as the disk says
it took; the other tasks of the node run on, as beside a worker thread. Like a thread's, its result
is not lost if a cancellation comes during the wait.
"""

import math
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from types import TracebackType
from typing import Protocol, TypeVar

import attrs
import trio

from replication.net import DEFAULT_THREADS
from scenarios.world.determinism import is_waiting_for_idle
from storage.filesystem import FileSystem


@attrs.define(eq=False, repr=False)
class VirtualAlarm:
    """A call at a moment, unless it is called off."""

    act: Callable[[], object] | None

    def ring(self) -> None:
        if self.act is not None:
            self.act()

    def call_off(self) -> None:
        self.act = None


class VirtualAlarms(Protocol):
    """A source of alarms: virtual time itself, or the clock of a node."""

    def alarm(self, moment: float, act: Callable[[], object]) -> VirtualAlarm: ...


async def sleep_until(alarms: VirtualAlarms, moment: float, *, shielded: bool = False) -> None:
    """Sleep until the alarm for `moment` rings, even when cancelled if `shielded`."""
    task = trio.lowlevel.current_task()
    alarm = alarms.alarm(moment, partial(trio.lowlevel.reschedule, task))

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if shielded:
            return trio.lowlevel.Abort.FAILED
        alarm.call_off()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


def _nothing() -> None:
    """Do nothing: the default without a bound."""


@attrs.define(eq=False, repr=False)
class VirtualTime(trio.abc.Clock):
    """The clock of one run of trio. While the agenda has an entry, no thread or socket is waited
    for.
    """

    now: float = attrs.field(default=0.0, init=False)
    rung: int = attrs.field(default=0, init=False)
    """The number of alarms that have rung: bytes that arrived, timers that fell due."""
    passes: int = attrs.field(default=0, init=False)
    """The number of times that trio's scheduler has looked for tasks that can run."""
    _most_passes: float = attrs.field(default=math.inf, init=False)
    _when_passed: Callable[[], object] = attrs.field(default=_nothing, init=False)
    _agenda: list[tuple[float, int, VirtualAlarm]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)

    def alarm(self, moment: float, act: Callable[[], object]) -> VirtualAlarm:
        """Call `act` at `moment`; if that has passed, at the end of the present one."""
        return self.put(moment, VirtualAlarm(act))

    def put(self, moment: float, alarm: VirtualAlarm) -> VirtualAlarm:
        number = self._number = self._number + 1
        now = self.now
        heappush(self._agenda, (max(now, moment), number, alarm))
        return alarm

    def bound(self, passes: int, act: Callable[[], object]) -> None:
        """Call `act` once, in the scheduler's first pass after so many."""
        self._most_passes, self._when_passed = passes, act

    # trio's side.

    def start_clock(self) -> None:
        assert not self._number, "a virtual time is one run's"

    def current_time(self) -> float:
        self.passes += 1  # the scheduler asks once in each pass
        if self.passes > self._most_passes:
            self._most_passes = math.inf
            self._when_passed()
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Move on to the next moment, since no task can run; `deadline` is trio's own next one."""
        if is_waiting_for_idle():
            return math.inf
        moment = min(deadline, self.next_moment())
        if moment == math.inf:
            return math.inf
        self.now = max(self.now, moment)
        self._ring()
        return 0

    def next_moment(self) -> float:
        """Return the next moment on the agenda; infinity if there is none."""
        agenda = self._agenda
        while agenda and agenda[0][2].act is None:
            heappop(agenda)
        return agenda[0][0] if agenda else math.inf

    def _ring(self) -> None:
        """Ring the alarms that are due, without those that are set meanwhile."""
        agenda, last, now = self._agenda, self._number, self.now
        while agenda and agenda[0][0] <= now and agenda[0][1] <= last:
            alarm = heappop(agenda)[2]
            if alarm.act is not None:
                self.rung += 1
                alarm.ring()


EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z


@attrs.define(eq=False, repr=False)
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


@attrs.define(eq=False, repr=False)
class _NodeAlarm(VirtualAlarm):
    """An alarm of one node."""

    clock: SimulatedClock

    def ring(self) -> None:
        if self.clock.paused:
            self.clock.withheld.append(self)
        elif self.act is not None:
            self.act()


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


T = TypeVar("T")


@attrs.define(repr=False)
class SimulatedOffload:
    """`Offload` that charges the costs of `file_system` to `clock`."""

    clock: SimulatedClock
    file_system: FileSystem
    threads: int = DEFAULT_THREADS
    _limiter: trio.CapacityLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limiter = trio.CapacityLimiter(self.threads)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        await self._take_thread()
        try:
            return fn()
        finally:
            await self.clock.sleep_through(self.file_system.take_cost())
            self._limiter.release()

    async def _take_thread(self) -> None:
        try:
            self._limiter.acquire_nowait()
        except trio.WouldBlock:
            await self._limiter.acquire()
