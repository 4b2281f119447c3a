"""Runs the swarm's seeds on one mutant until one of them fails; in a process of its own.

    python -m tests.mutants.hunt NAME --from 1 --seeds 200 --attempts 60

Each line of output is what is known by then: a seed that is begun, or, as JSON, the verdict,
first with the story as it was and then with a shorter one. The name `none` is the tree as it is.

A run that has no end counts as one that failed. Its process ends with it, and the last seed
that was begun tells which.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import attrs

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import is_planted, plant

UNMUTATED = "none"
PATIENCE_SECONDS = 60.0
"""Of the processor's time, for one run; most take less than one."""
ENDLESS = "a run has an end"
GAVE_UP = 3  # how its process ends


@attrs.frozen(kw_only=True)
class Verdict:
    """What came of one mutant, or of the tree as it is."""

    name: str
    seed: int | None
    """The first that failed; None where all passed."""
    rule: str = ""
    wrong: str = ""
    lines: int = 0
    shortest: tuple[str, ...] = ()
    """The lines of the shortest story that was found to break the same rule."""


def hunt(name: str, seeds: range, *, attempts: int) -> Iterator[Verdict]:
    if name != UNMUTATED:
        plant(MUTANTS[name])
    from scenarios.shrinking import shrink
    from scenarios.swarm import run_seed

    for seed in seeds:
        print(seed, flush=True)
        with _at_most(PATIENCE_SECONDS):
            run = run_seed(seed)
        if run.wrong:
            verdict = Verdict(
                name=name, seed=seed, rule=run.rule, wrong=run.wrong, lines=len(run.lines)
            )
            yield attrs.evolve(verdict, shortest=run.lines)
            with _at_most(PATIENCE_SECONDS + attempts):
                yield attrs.evolve(verdict, shortest=shrink(run, attempts=attempts).lines)
            return
    # Some modules are imported by the first who needs them.
    assert name == UNMUTATED or is_planted(MUTANTS[name]), "the swarm imports what is mutated"
    yield Verdict(name=name, seed=None)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Of the processor's time; then this process ends, wherever it is."""

    def give_up(_signal: int, frame: FrameType | None) -> None:
        traceback.print_stack(frame)
        sys.stderr.flush()
        os._exit(GAVE_UP)

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def verdict_of(name: str, ended: "subprocess.CompletedProcess[bytes]") -> Verdict:
    """What the hunt has said last, or which seed it did not come back from."""
    lines = ended.stdout.decode().splitlines()
    if lines and lines[-1].startswith("{"):
        return Verdict(**json.loads(lines[-1]))
    if ended.returncode != GAVE_UP or not lines:
        raise RuntimeError(f"the hunt for {name!r} has failed:\n{ended.stderr.decode()}")
    return Verdict(name=name, seed=int(lines[-1]), rule=ENDLESS, wrong=ENDLESS)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt")
    parser.add_argument("name", choices=[UNMUTATED, *MUTANTS])
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=60)
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    for verdict in hunt(asked.name, seeds, attempts=asked.attempts):
        print(json.dumps(attrs.asdict(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
