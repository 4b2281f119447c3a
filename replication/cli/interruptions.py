"""Ctrl-C and SIGTERM for a command that has to clean up before it ends.

async with interruptible() as interruption:
    with interruption.scope:
        ...                            the first signal cancels this; the second ends the process
    ...                                clean up: commit, abort, print totals
interruption.end_if_interrupted()      end by the same signal, so that a shell sees it
"""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from replication.cli import end_by_signal
from replication.net.raising import raising_only_one
from storage.attributes import define

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@define(eq=False)
class Interruption:
    """An interruption, if there is one: it cancels `scope`, and `signal` is its number."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    signal: int | None = None

    def end_if_interrupted(self) -> None:
        if self.signal is not None:
            end_by_signal(self.signal)


@asynccontextmanager
async def interruptible() -> AsyncIterator[Interruption]:
    interruption = Interruption()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_for_signals, signals, interruption)
            yield interruption
            nursery.cancel_scope.cancel()


async def _wait_for_signals(signals: AsyncIterator[int], interruption: Interruption) -> None:
    interruption.signal = await anext(signals)
    interruption.scope.cancel()
    end_by_signal(await anext(signals))
