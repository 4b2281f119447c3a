"""When to look at which group: a heap of deadlines, and one task that waits for the next.

A heartbeat only ever moves a deadline back, so it costs nothing here: the group is looked
at when it was first meant to be, and put down again for when it is really due.
"""

import heapq
from collections.abc import Callable
from itertools import count

import attrs
import trio

from replication.groups.shard import HostedGroup
from replication.net.seams import NodeClock


@attrs.define(eq=False)
class GroupTimers:
    clock: NodeClock
    _due: list[tuple[int, int, HostedGroup]] = attrs.field(factory=list, init=False)
    _order: "count[int]" = attrs.field(factory=count, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)

    def watch(self, hosted: HostedGroup) -> None:
        """Look at it when it is next due, if nobody does before."""
        due_ms = hosted.machine.next_deadline_ms
        if due_ms is None or (hosted.timer_ms is not None and hosted.timer_ms <= due_ms):
            return
        hosted.timer_ms = due_ms
        heapq.heappush(self._due, (due_ms, next(self._order), hosted))
        if self._due[0][2] is hosted:
            self._sooner.set()

    async def run(self, look: Callable[[HostedGroup], None]) -> None:
        """Call `look` for every group that is due; it is watched again after."""
        while True:
            self._sooner = trio.Event()
            now_ms = self.clock.now_ms()
            for hosted in self._take(now_ms):
                look(hosted)
                self.watch(hosted)
            if self._due:
                # A group that is due again at once is not asked faster than time passes.
                wait_ms = max(self._due[0][0] - now_ms, 1)
                with self.clock.move_on_after(wait_ms / 1000):
                    await self._sooner.wait()
            else:
                await self._sooner.wait()

    def _take(self, now_ms: int) -> list[HostedGroup]:
        """Return the groups that are due."""
        taken = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, hosted = heapq.heappop(self._due)
            if hosted.timer_ms == due_ms:
                hosted.timer_ms = None
                taken.append(hosted)
        return taken
