"""Calls at a moment, for what nearly always ends before it: a request that waits, a quiet peer.

    agenda   1.4 s  wake a fetch that waits     called off: its bytes came
             1.5 s  wake another      <──────── the one task sleeps until here
           601.0 s  close a connection that has not asked again

A scope of trio's can be cancelled in the middle of anything, and costs a twentieth of all that
a broker does for a small request. A task that only has to be woken sets an alarm.

Rule 1: an alarm wakes or closes something. It does not wait, and it does not fail.

Rule 2: an alarm that was called off stays on the agenda until its moment, or until half of all
alarms on it were called off.

Rule 3: one task rings the alarms of all clocks in a run of trio; the first alarm starts it.
"""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import attrs
import trio

_FEW = 1000


@attrs.define(eq=False)
class SetAlarm:
    """`Alarm` on an agenda."""

    act: Callable[[], object] | None
    _alarms: "Alarms"

    def call_off(self) -> None:
        if self.act is not None:
            self.act = None
            self._alarms.called_off()


@attrs.define(eq=False)
class Alarms:
    """What is to be called in one run of trio, by its clock."""

    _agenda: list[tuple[float, int, SetAlarm]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)
    _called_off: int = attrs.field(default=0, init=False)
    _next: float = attrs.field(default=math.inf, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def size(self) -> int:
        """How many are on the agenda, those that were called off among them."""
        return len(self._agenda)

    def put(self, moment: float, act: Callable[[], object]) -> SetAlarm:
        alarm = SetAlarm(act, self)
        self._number += 1  # those of one moment ring in the order in which they were set
        heappush(self._agenda, (moment, self._number, alarm))
        if moment < self._next:
            self._sooner.set()
        return alarm

    def called_off(self) -> None:
        self._called_off += 1
        if self._called_off > _FEW and self._called_off > len(self._agenda) // 2:
            self._agenda[:] = [each for each in self._agenda if each[2].act is not None]
            heapify(self._agenda)
            self._called_off = 0

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
                self._called_off -= 1
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
