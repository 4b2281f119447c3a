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
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import trio


@contextmanager
def deterministic_scheduling(seed: str) -> Iterator[None]:
    """Runs of trio inside order their tasks by `seed`."""
    scheduler = _scheduler()
    before = (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())  # noqa: SLF001
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]  # noqa: SLF001
    scheduler._r.seed(seed)  # noqa: SLF001
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before[0]  # type: ignore[attr-defined]  # noqa: SLF001
        scheduler._r.setstate(before[1])  # noqa: SLF001


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
