"""The same order of tasks for the same seed.

trio runs the tasks that are ready together in an order it draws afresh in every process,
so that nobody comes to rely on one. A simulation draws it from its seed. trio does the
same for Hypothesis, with two private names, and both are needed: one sorts the tasks that
are ready before they are shuffled, the other is what shuffles them. They are touched here
and nowhere else; where they are gone, a simulation says so and does not run.

What else must not leak into a simulation: the order of a set whose members hash by address
or by a string, `id`, wall time, `uuid4`, threads. tests/scenarios/test_world.py compares
trace hashes between processes with different hash seeds to find out who let it.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import trio


class _ChanceByThread(random.Random):
    """What shuffles trio's tasks: a simulation's own in its thread, the usual one elsewhere.

    trio has one for the whole process, and a real cluster may run in a thread beside us.
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
        self._source().shuffle(x)


_INSTALLING = threading.Lock()


@contextmanager
def deterministic_scheduling(seed: str) -> Iterator[None]:
    """Runs of trio inside, in this thread, order their tasks by `seed`."""
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
    """With the last simulation trio is as it was."""
    with _INSTALLING:
        chance.users -= 1
        if chance.users == 0:
            scheduler._r = chance.usual  # type: ignore[attr-defined]  # noqa: SLF001
            scheduler._ALLOW_DETERMINISTIC_SCHEDULING = chance.sorted_before  # type: ignore[attr-defined]  # noqa: SLF001


def somebody_waits_for_quiet() -> bool:
    """Whether `wait_all_tasks_blocked` is under way, which is over before time goes on."""
    return bool(trio._core._run.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle)  # noqa: SLF001


def _scheduler() -> ModuleType:
    scheduler = trio._core._run  # noqa: SLF001
    if not hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING") or not isinstance(
        getattr(scheduler, "_r", None), random.Random
    ):
        raise RuntimeError(f"trio {trio.__version__} cannot be seeded: no simulation with it")
    return scheduler
