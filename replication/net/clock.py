"""A node's time in production: trio's monotonic clock, and the wall clock for timestamps.

Rule 1: a task waits with its `NodeClock`. A raw `trio.sleep` would be on time for a node that the
simulator has paused.

Rule 2: `now` has an arbitrary start; only differences mean something. `wall_ms` may jump.

Rule 3: a time that has passed means now. A peer may send any timeout, and the rest of one is
negative once it is over; trio refuses both.
"""

import time
from collections.abc import Callable

import trio

from replication.net.alarms import SetAlarm, alarms_of_this_run


class TrioClock:
    """`NodeClock` over whatever clock this trio run has."""

    def now(self) -> float:
        return trio.current_time()

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(max(seconds, 0))

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(max(seconds, 0))

    def alarm(self, moment: float, act: Callable[[], object]) -> SetAlarm:
        return alarms_of_this_run().put(moment, act)
