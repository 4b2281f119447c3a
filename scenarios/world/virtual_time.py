"""Virtual time, and what is to happen at which moment of it.

    agenda   0.5012 bytes arrive at b2   0.7500 b1 wakes   30.0000 a call runs out of time
    now      ──────^ nobody can run any more: on to 0.7500

Rule 1: time stands still while anybody can run, and jumps to the next moment when nobody
can. trio asks its clock how long it may sleep exactly then, so that is where it jumps.

Rule 2: what falls due at one moment happens in the order in which it was put down. Tasks
that it wakes run in an order that trio draws.

Rule 3: an alarm is a function call, and no task. Whoever waits for a moment is woken once,
when it has come, which is what makes an hour cheap.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

import attrs
import trio

from scenarios.world.determinism import somebody_waits_for_quiet


@attrs.define(eq=False)
class Alarm:
    """What is to happen, unless it is called off."""

    act: Callable[[], object] | None

    def ring(self) -> None:
        if self.act is not None:
            self.act()

    def call_off(self) -> None:
        self.act = None


class Alarms(Protocol):
    """Virtual time itself, or a node's own."""

    def alarm(self, moment: float, act: Callable[[], object]) -> Alarm: ...


async def sleep_until(alarms: Alarms, moment: float, *, shielded: bool = False) -> None:
    """Until the alarm rings that is set for then; `shielded`: also where it is cancelled."""
    task = trio.lowlevel.current_task()
    alarm = alarms.alarm(moment, lambda: trio.lowlevel.reschedule(task))

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if shielded:
            return trio.lowlevel.Abort.FAILED
        alarm.call_off()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


def _nothing() -> None:
    """Nothing is bounded."""


@attrs.define(eq=False)
class VirtualTime(trio.abc.Clock):
    """The clock of one run of trio. No thread and no socket is waited for while there is
    anything on the agenda.
    """

    now: float = attrs.field(default=0.0, init=False)
    rung: int = attrs.field(default=0, init=False)
    """How much has happened: bytes that arrived, timers that fell due."""
    passes: int = attrs.field(default=0, init=False)
    """How often trio's scheduler has looked for tasks that can run."""
    _most_passes: float = attrs.field(default=math.inf, init=False)
    _when_passed: Callable[[], object] = attrs.field(default=_nothing, init=False)
    _agenda: list[tuple[float, int, Alarm]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)

    def alarm(self, moment: float, act: Callable[[], object]) -> Alarm:
        """Call `act` then; at the end of this moment where it has come already."""
        return self.put(moment, Alarm(act))

    def put(self, moment: float, alarm: Alarm) -> Alarm:
        number = self._number = self._number + 1
        now = self.now
        heappush(self._agenda, (max(now, moment), number, alarm))
        return alarm

    def bound(self, passes: int, act: Callable[[], object]) -> None:
        """Call `act` once, in the first pass of the scheduler after so many."""
        self._most_passes, self._when_passed = passes, act

    # trio's side.

    def start_clock(self) -> None:
        assert not self._number, "a virtual time is one run's"

    def current_time(self) -> float:
        self.passes += 1  # the scheduler asks once in each, also where time stands still
        if self.passes > self._most_passes:
            self._most_passes = math.inf
            self._when_passed()
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Nobody can run, and `deadline` is the next of trio's own."""
        if somebody_waits_for_quiet():
            return math.inf
        moment = min(deadline, self.next_moment())
        if moment == math.inf:
            return math.inf
        self.now = max(self.now, moment)
        self._ring()
        return 0

    def next_moment(self) -> float:
        """For which anything is on the agenda."""
        agenda = self._agenda
        while agenda and agenda[0][2].act is None:
            heappop(agenda)
        return agenda[0][0] if agenda else math.inf

    def _ring(self) -> None:
        """What is due, but not what is put down meanwhile."""
        agenda, last, now = self._agenda, self._number, self.now
        while agenda and agenda[0][0] <= now and agenda[0][1] <= last:
            alarm = heappop(agenda)[2]
            if alarm.act is not None:
                self.rung += 1
                alarm.ring()
