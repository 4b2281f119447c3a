"""Whose turn it is on a connection.

`trio.Lock` gives way to other tasks even where nobody holds it. Whoever takes a turn is about
to wait for the network, which does so anyway; a round of the loop for nothing is a tenth of
what a small request costs.
"""

from types import TracebackType

import attrs
import trio


@attrs.define(eq=False)
class Turns:
    """One at a time, first come, first served; at once where it is free."""

    _lock: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    @property
    def taken(self) -> bool:
        return self._lock.locked()

    async def __aenter__(self) -> None:
        if self.taken:
            await self._lock.acquire()
        else:
            self._lock.acquire_nowait()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()
