"""A node's time in production: trio's monotonic clock, the wall clock for timestamps, and alarms.

Rule 1: a task waits with its `NodeClock`. A raw `trio.sleep` would be on time for a node that the
simulator has paused.

Rule 2: `now` has an arbitrary start; only differences mean something. `wall_ms` may jump.

Rule 3: a time that has passed means now. A peer may send any timeout, and the rest of one is
negative once it is over; trio refuses both.

An alarm is a call at a moment, for what nearly always ends before it: a request that waits, a peer
that says nothing.

    agenda   1.4 s  wake a fetch that waits     called off: its bytes came
             1.5 s  wake another      <──────── the one task sleeps until here
           601.0 s  close a connection that has not asked again

A cancel scope of trio can be cancelled in the middle of anything, and costs more. A task that only
has to be woken sets an alarm: a record that is sent alone with acks=all takes 2.28 ms of processor
time, of its client and three brokers together, and 2.67 ms with scopes (medians of 7, in turn).

Rule 4: an alarm wakes or closes something. It does not wait, and it does not fail.

Rule 5: an alarm that was called off stays on the agenda until its moment, or until half of all
alarms on it were called off.

Rule 6: one task rings the alarms of all clocks in a run of trio; the first clock or alarm starts
it.

Rule 7: a clock that was made in a run of trio belongs to that run. A small request reads it a dozen
times, so it finds the run's clock and agenda once, and not on each call.
"""

import math
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import attrs
import trio

from storage.attributes import define

_FEW = 1000


@define(eq=False)
class SetAlarm:
    """`Alarm` on an agenda."""

    act: Callable[[], object] | None
    _alarms: "Alarms"

    def call_off(self) -> None:
        if self.act is not None:
            self.act = None
            alarms = self._alarms
            alarms.called_off += 1
            if alarms.called_off > _FEW:
                alarms.clear_up()


@define(eq=False)
class Alarms:
    """The agenda of one run of trio: calls, each at a moment of its clock."""

    _agenda: list[tuple[float, int, SetAlarm]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)
    called_off: int = attrs.field(default=0, init=False)
    """The number of alarms on the agenda that were called off."""
    _next: float = attrs.field(default=math.inf, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def size(self) -> int:
        """The number of alarms on the agenda, those that were called off included."""
        return len(self._agenda)

    def set(self, moment: float, act: Callable[[], object]) -> SetAlarm:
        alarm = SetAlarm(act, self)
        self._number += 1  # those of one moment ring in the order in which they were set
        heappush(self._agenda, (moment, self._number, alarm))
        if moment < self._next:
            self._sooner.set()
        return alarm

    def clear_up(self) -> None:
        """Remove the alarms that were called off from the agenda, if they are half of it."""
        if self.called_off > len(self._agenda) // 2:
            self._agenda[:] = [each for each in self._agenda if each[2].act is not None]
            heapify(self._agenda)
            self.called_off = 0

    async def ring(self) -> None:
        while True:
            self._ring_due(trio.current_time())
            self._next = self._agenda[0][0] if self._agenda else math.inf
            self._sooner = trio.Event()
            with trio.CancelScope(deadline=self._next):
                await self._sooner.wait()

    def _ring_due(self, now: float) -> None:
        agenda = self._agenda
        while agenda and (agenda[0][0] <= now or agenda[0][2].act is None):
            alarm = heappop(agenda)[2]
            act, alarm.act = alarm.act, None
            if act is None:
                self.called_off -= 1
            else:
                act()


_OF_THIS_RUN: trio.lowlevel.RunVar[Alarms] = trio.lowlevel.RunVar("alarms")


def alarms_of_this_run() -> Alarms:
    try:
        return _OF_THIS_RUN.get()
    except LookupError:
        alarms = Alarms()
        _OF_THIS_RUN.set(alarms)
        trio.lowlevel.spawn_system_task(alarms.ring)
        return alarms


def _set_in_this_run(moment: float, act: Callable[[], object]) -> SetAlarm:
    return alarms_of_this_run().set(moment, act)


class LoopClock(trio.abc.Clock):
    """The clock of a run of trio that takes no function of Python's to read.

    A record with acks=all reads the time 33 times, in trio's loops and in ours.
    """

    current_time = staticmethod(time.perf_counter)

    def start_clock(self) -> None:
        """Do nothing: it always runs."""

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


@define(eq=False, init=False)
class TrioClock:
    """`NodeClock` over the clock of a run of trio; made outside of one, it serves every run."""

    now: Callable[[], float]
    alarm: Callable[[float, Callable[[], object]], SetAlarm]

    def __init__(self) -> None:
        if trio.lowlevel.in_trio_run():
            self.now = trio.lowlevel.current_clock().current_time
            self.alarm = alarms_of_this_run().set
        else:
            self.now, self.alarm = trio.current_time, _set_in_this_run

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(max(seconds, 0))

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(max(seconds, 0))
