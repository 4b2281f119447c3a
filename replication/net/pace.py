"""Steps of long work on the loop, with everybody else's turn between them (`replication.steps`).

    large request   ▆▆   ▆▆        ▆▆          at most one step in a turn of the loop,
    another           ▆▆      ▆▆        ▆▆     however many requests are large
    the others      . . . . .  .  . . . .

Work that is short goes through without a pause, as if it were an ordinary call.
"""

import trio

from replication.net.turns import Turns
from replication.steps import STEP, Steps, T

_TURNS: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("turns of long work")


async def in_steps(steps: Steps[T]) -> T:
    """Return what `steps` come to; after each `STEP` of work everybody else has a turn."""
    done = 0
    try:
        while done < STEP:
            done += next(steps)
        turns = _turns()
        while True:
            async with turns:
                await trio.lowlevel.checkpoint()
                done = 0
                while done < STEP:
                    done += next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


def _turns() -> Turns:
    try:
        return _TURNS.get()
    except LookupError:
        turns = Turns()
        _TURNS.set(turns)
        return turns
