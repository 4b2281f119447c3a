"""Turns of the tasks that use one connection.

`trio.Lock` lets other tasks run even if it is free, and remembers its holder. A task that takes a
turn here is about to wait for the network, which lets others run anyway; an extra round of the loop
is a tenth of what a small request costs.
"""

from types import TracebackType

import attrs
import trio


@attrs.define(eq=False)
class Turns:
    """A lock: one task at a time, first come, first served, without a wait if it is free."""

    taken: bool = attrs.field(default=False, init=False)
    _waiting: trio.lowlevel.ParkingLot = attrs.field(init=False, factory=trio.lowlevel.ParkingLot)

    async def __aenter__(self) -> None:
        if self.taken:
            await self._waiting.park()  # until it is handed on
        else:
            self.taken = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._waiting:
            self._waiting.unpark()
        else:
            self.taken = False
