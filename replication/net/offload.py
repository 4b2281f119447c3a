"""Slow work in worker threads, a few at a time.

Rule 1: a call that is cancelled while it waits for a thread never runs. A call that is cancelled
after that still waits for `fn` and returns its result, because work that no task waits for would
touch files that their owner has closed.

Rule 2: each node has a limit of its own, so that one node's recovery cannot keep another
node in the same process from syncing.
"""

from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

T = TypeVar("T")

DEFAULT_THREADS = 4


@attrs.define
class ThreadOffload:
    """`Offload` with at most `threads` calls at once."""

    threads: int = DEFAULT_THREADS
    _limiter: trio.CapacityLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limiter = trio.CapacityLimiter(self.threads)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        return await trio.to_thread.run_sync(fn, limiter=self._limiter)
