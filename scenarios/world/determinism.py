"""The same order of tasks for the same seed.

trio runs the tasks that are ready together in a random order, so that no program relies on one. A
simulation draws that order from its seed. trio does the same for Hypothesis, with two private
names, and both are needed: one sorts the ready tasks before they are shuffled, the other shuffles
them. They are used here and nowhere else; if they are gone, a simulation says so and does not run.

These must not leak into a simulation either: the order of a set whose members hash by address or
by a string, `id`, wall time, `uuid4`, threads. tests/scenarios/test_world.py compares trace hashes
between processes with different hash seeds to find such a leak.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import trio


class _ChanceByThread(random.Random):
    """The shuffler of trio's tasks: a simulation's own in its thread, the usual one elsewhere.

    trio has one for the whole process, and a real cluster may run in another thread.
    """

    def __init__(self, usual: random.Random, *, sorted_before: bool) -> None:
        super().__init__()
        self.usual = usual
        self.sorted_before = sorted_before
        self.users = 0
        self.here = threading.local()

    def _source(self) -> random.Random:
        return getattr(self.here, "drawn", self.usual)

    def random(self) -> float:
        return self._source().random()

    def shuffle(self, x: Any) -> None:
        if len(x) > 1:  # most batches of tasks are one, for which nothing is drawn
            self._source().shuffle(x)


_INSTALLING = threading.Lock()


@contextmanager
def deterministic_scheduling(seed: str) -> Iterator[None]:
    """Let runs of trio in this thread order their tasks by `seed` during the block."""
    chance = _install(_scheduler())
    before = getattr(chance.here, "drawn", chance.usual)
    chance.here.drawn = random.Random(seed)
    try:
        yield
    finally:
        chance.here.drawn = before
        _uninstall(_scheduler(), chance)


def _install(scheduler: ModuleType) -> _ChanceByThread:
    with _INSTALLING:
        chance = scheduler._r  # noqa: SLF001
        if not isinstance(chance, _ChanceByThread):
            sorts = scheduler._ALLOW_DETERMINISTIC_SCHEDULING  # noqa: SLF001
            chance = _ChanceByThread(chance, sorted_before=sorts)
            scheduler._r = chance  # type: ignore[attr-defined]  # noqa: SLF001
            scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]  # noqa: SLF001
        chance.users += 1
        return chance


def _uninstall(scheduler: ModuleType, chance: _ChanceByThread) -> None:
    """Restore trio when the last simulation ends."""
    with _INSTALLING:
        chance.users -= 1
        if chance.users == 0:
            scheduler._r = chance.usual  # type: ignore[attr-defined]  # noqa: SLF001
            scheduler._ALLOW_DETERMINISTIC_SCHEDULING = chance.sorted_before  # type: ignore[attr-defined]  # noqa: SLF001


def is_waiting_for_idle() -> bool:
    """Return whether a task is in `wait_all_tasks_blocked`, which ends before time goes on."""
    return bool(trio._core._run.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle)  # noqa: SLF001


def _scheduler() -> ModuleType:
    scheduler = trio._core._run  # noqa: SLF001
    if not hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING") or not isinstance(
        getattr(scheduler, "_r", None), random.Random
    ):
        raise RuntimeError(f"trio {trio.__version__} cannot be seeded: no simulation with it")
    return scheduler
