"""Slow work in a simulation: done at once, paid for in the node's time.

`fn` runs on the loop, between two checkpoints, so no other task sees it half done. Then its caller
waits for as long as the disk says it took; the other tasks of the node run on, as beside a worker
thread. Like a thread's, its result is not lost if a cancellation comes during the wait.
"""

from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

from replication.net import DEFAULT_THREADS
from scenarios.world.clock import SimulatedClock
from storage.filesystem import FileSystem

T = TypeVar("T")


@attrs.define
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
