"""Whose turn it is on a connection.

`trio.Lock` gives way to other tasks even where nobody holds it, and remembers who does. Whoever
takes a turn is about to wait for the network, which gives way anyway; a round of the loop for
nothing is a tenth of what a small request costs.
"""

from types import TracebackType

import attrs
import trio


@attrs.define(eq=False)
class Turns:
    """One at a time, first come, first served; at once where it is free."""

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
