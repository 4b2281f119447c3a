"""Virtual time, the clocks of nodes, and the time that slow work takes.

    agenda   0.5012 bytes arrive at b2   0.7500 b1 wakes   30.0000 a call runs out of time
    now      ──────^ no task can run: on to 0.7500

Rule 1: time stands still while any task can run, and jumps to the next moment when none can. trio
asks its clock exactly then how long it may sleep, so that is where it jumps.

Rule 2: alarms that fall due at one moment ring in the order in which they were set. Tasks that
they wake run in an order that trio draws.

Rule 3: an alarm is a function call and no task. A task that waits for a moment is woken once, when
it has come, which makes an hour cheap.

All nodes share this monotonic time. Four things are a node's own:

    paused    its wake-ups are withheld, and fall due together when it resumes, as after
              SIGSTOP, a stalled virtual machine or a long garbage collection
    busy      the same for a moment: its processor works on what it has received
    speed     the seconds that pass on both its clocks in a second: no two oscillators agree
    wall      its wall clock, which may jump and drift; lag, sessions and retries must not
              notice

A pause holds back timers here and bytes in the network. A task that is running goes on to its
next wait. A node whose processor is slow receives one message at a time: the others queue.

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
_ROUNDING_SECONDS = 1e-9


@attrs.define(eq=False, repr=False)
class SimulatedClock:
    """`NodeClock` over the virtual time of a world."""

    time: VirtualTime
    wall_offset_ms: int = EPOCH_MS
    wall_drift: float = 0.0  # seconds gained in a second
    processor_seconds: float = 0.0
    """The time that the processor works on each piece of bytes that the node receives."""
    paused: bool = attrs.field(init=False, default=False)
    holds_back: bool = attrs.field(init=False, default=False)
    """Whether alarms and bytes wait: the node is paused, or its processor is busy."""
    withheld: list[VirtualAlarm] = attrs.field(init=False, factory=list)
    """The alarms that fell due meanwhile."""
    _when_resumed: list[Callable[[], None]] = attrs.field(init=False, factory=list)
    _work: VirtualAlarm | None = attrs.field(init=False, default=None)
    """The end of what the processor works on."""
    # From `_began` of virtual time on, which this clock showed as `_shown`, it runs at `_speed`.
    _speed: float = attrs.field(init=False, default=1.0)
    _began: float = attrs.field(init=False, default=0.0)
    _shown: float = attrs.field(init=False, default=0.0)
    _reached: float = attrs.field(init=False, default=0.0)
    """The moment of the last alarm that has rung: no clock goes back by a rounding."""
    _is_exact: bool = attrs.field(init=False, default=True)
    """Whether the clock shows virtual time itself."""

    def now(self) -> float:
        if self._is_exact:
            return self.time.now
        return max(self._reached, self._shown + (self.time.now - self._began) * self._speed)

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.now() * 1000 * (1 + self.wall_drift))

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        if deadline <= self.now() and not self.holds_back:
            await trio.lowlevel.checkpoint()
        else:
            await sleep_until(self, deadline)

    async def sleep_through(self, seconds: float) -> None:
        """Sleep in a shielded scope, at less cost: a cancellation waits."""
        if seconds <= 0 and not self.holds_back:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await sleep_until(self, self.now() + seconds, shielded=True)

    def move_on_after(self, seconds: float) -> "_Scope":
        return _Scope(self, self.now() + seconds)

    def alarm(self, moment: float, act: Callable[[], object]) -> VirtualAlarm:
        """Call `act` when this clock shows `moment`, or at the end of the pause in which that falls."""
        return self.time.put(self._virtual(moment), _NodeAlarm(act, self, moment))

    def put_again(self, alarm: "_NodeAlarm") -> None:
        """Let an alarm ring once this clock, which has become slower, shows its moment."""
        self.time.put(self._virtual(alarm.moment), alarm)

    def run_at(self, speed: float) -> None:
        """Let so many seconds pass on this clock in a second from now on, without a jump."""
        if speed != self._speed:
            self._shown, self._began = self.now(), self.time.now
            self._speed, self._is_exact = speed, False

    def has_reached(self, moment: float) -> bool:
        """Return whether it shows `moment`; where its speed has fallen since, it may not yet."""
        if self._is_exact:
            return True
        if self.now() < moment - _ROUNDING_SECONDS:
            return False
        self._reached = max(self._reached, moment)
        return True

    def _virtual(self, moment: float) -> float:
        """Return the virtual time at which this clock shows `moment`."""
        if self._is_exact:
            return moment
        return self._began + (moment - self._shown) / self._speed

    def jump_wall(self, milliseconds: int) -> None:
        self.wall_offset_ms += milliseconds

    def drift_wall(self, gained: float) -> None:
        """Let the wall clock gain so many seconds in a second from now on, without a jump."""
        shown = self.wall_ms()
        self.wall_drift = gained
        self.wall_offset_ms += shown - self.wall_ms()

    def pause(self) -> None:
        self.paused = self.holds_back = True

    def resume(self) -> None:
        self.paused = False
        if self._work is None:
            self._go_on()

    def work(self) -> None:
        """Let the processor work on what has just been received; until then all else waits."""
        if self.processor_seconds:
            self.holds_back = True
            assert self._work is None, "a node that works receives nothing"
            self._work = self.time.alarm(self.time.now + self.processor_seconds, self._worked)

    def stop_working(self) -> None:
        """Drop the work of a process that has ended."""
        if self._work is not None:
            self._work.call_off()
            self._worked()

    def _worked(self) -> None:
        self._work = None
        if not self.paused:
            self._go_on()

    def _go_on(self) -> None:
        self.holds_back = False
        due, self.withheld = self.withheld, []
        for alarm in due:
            alarm.ring()
        for wake in self._when_resumed:
            wake()

    def when_resumed(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the end of each pause, and of each piece of work."""
        self._when_resumed.append(wake)


@attrs.define(eq=False, repr=False)
class _NodeAlarm(VirtualAlarm):
    """An alarm of one node."""

    clock: SimulatedClock
    moment: float
    """The moment as the node's clock shows it."""

    def ring(self) -> None:
        if self.clock.holds_back:
            self.clock.withheld.append(self)
        elif self.act is None:
            pass
        elif self.clock.has_reached(self.moment):
            self.act()
        else:
            self.clock.put_again(self)


class _Scope:
    """A cancel scope that an alarm of the node cancels."""

    __slots__ = ("_alarm", "_scope", "clock", "deadline")

    def __init__(self, clock: SimulatedClock, deadline: float) -> None:
        self.clock, self.deadline = clock, deadline
        self._scope = trio.CancelScope()
        self._alarm: VirtualAlarm | None = None

    def __enter__(self) -> trio.CancelScope:
        clock, scope = self.clock, self._scope
        if self.deadline <= clock.now() and not clock.holds_back:
            scope.cancel()
        else:
            self._alarm = clock.alarm(self.deadline, scope.cancel)
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
