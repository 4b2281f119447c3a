"""Cyclic garbage, collected rarely while a simulation runs.

A run of some seconds leaves little of it, and each collection of the oldest generation passes
over all that has been imported: a twentieth of a run's time went there.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000
"""As many more than were let go, and the youngest are looked at; Python's own number is 700."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    youngest, *older = gc.get_threshold()
    gc.set_threshold(max(youngest, YOUNG_OBJECTS) if youngest else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)
