"""Virtual time, and the agenda of what happens at which moment.

    agenda   0.5012 bytes arrive at b2   0.7500 b1 wakes   30.0000 a call runs out of time
    now      ──────^ no task can run: on to 0.7500

Rule 1: time stands still while any task can run, and jumps to the next moment when none can. trio
asks its clock exactly then how long it may sleep, so that is where it jumps.

Rule 2: alarms that fall due at one moment ring in the order in which they were set. Tasks that
they wake run in an order that trio draws.

Rule 3: an alarm is a function call and no task. A task that waits for a moment is woken once, when
it has come, which makes an hour cheap.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

import attrs
import trio

from scenarios.world.determinism import is_waiting_for_idle


@attrs.define(eq=False)
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
    alarm = alarms.alarm(moment, lambda: trio.lowlevel.reschedule(task))

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if shielded:
            return trio.lowlevel.Abort.FAILED
        alarm.call_off()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


def _nothing() -> None:
    """Do nothing: the default without a bound."""


@attrs.define(eq=False)
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
