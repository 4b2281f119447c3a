"""The longest time for which one hostile request holds the loop of a broker.

Each request of `tests/replication/server/hostile.py`, and one for each list that a request can
have (`long_lists.py`), goes to a broker and its controller in this
process, which answer a neighbour meanwhile. What is measured is the longest turn of the loop, in
processor time; beside it the longest that the neighbour waited, which other work on the machine
makes longer.
"""

import gc
from collections.abc import Iterator
from functools import partial

import attrs
import trio

from tests.replication.server.hostile import ACCEPTED, HOSTILE, Cost, Hostile, attacked, timed
from tests.replication.server.long_lists import long_lists

MOST_MS = 50.0


@attrs.frozen
class Stall:
    """One request's longest stall."""

    name: str
    cost: Cost

    def __str__(self) -> str:
        stall_ms = self.cost.seconds * 1000
        return (
            f"{self.name:<48} {self.cost.frame_bytes:>10,} bytes  stall {stall_ms:>8.1f} ms"
            f"  neighbour waited {self.cost.neighbours_wait * 1000:>8.1f} ms"
            f"{'' if stall_ms <= MOST_MS else '  TOO LONG'}"
        )


def run() -> Iterator[Stall]:
    for name, hostile in (HOSTILE | ACCEPTED | dict(long_lists())).items():
        yield Stall(name, trio.run(partial(measure, hostile)))


async def measure(hostile: Hostile) -> Cost:
    async with attacked(unauthorised=hostile.unauthorised) as stage:
        await stage.prepare(hostile, hostile.measured)
        gc.collect()
        gc.freeze()  # the tests' own modules: collecting them again is no work of a request
        return await stage.send(hostile.frame(hostile.measured), timed())
