"""Runs the swarm's seeds on one mutant until one of them fails; in a process of its own.

    python -m tests.mutants.hunt NAME --from 1 --seeds 200 --attempts 60

On its last line of output it says, as JSON, which seed has failed, and by which rule. The name
`none` is the tree as it is. A run that has no end counts as one that failed: the process ends
with it, and the seeds that it has named tell which.
"""

import argparse
import faulthandler
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import is_planted, plant

UNMUTATED = "none"
PATIENCE_SECONDS = 300
"""For one run, which takes a second; on a machine with other things to do, some."""


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


def hunt(name: str, seeds: range, *, attempts: int) -> Verdict:
    if name != UNMUTATED:
        plant(MUTANTS[name])
    from scenarios.shrinking import shrink
    from scenarios.swarm import run_seed

    assert name == UNMUTATED or is_planted(MUTANTS[name]), "the swarm imports what is mutated"
    for seed in seeds:
        with _an_end(seed):
            run = run_seed(seed)
        if run.wrong:
            faulthandler.dump_traceback_later(PATIENCE_SECONDS + 10 * attempts, exit=True)
            shortest = shrink(run, attempts=attempts)
            return Verdict(
                name=name,
                seed=seed,
                rule=run.rule,
                wrong=run.wrong,
                lines=len(run.lines),
                shortest=shortest.lines,
            )
    return Verdict(name=name, seed=None)


@contextmanager
def _an_end(seed: int) -> Iterator[None]:
    print(seed, flush=True)
    faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt")
    parser.add_argument("name", choices=[UNMUTATED, *MUTANTS])
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=60)
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    verdict = hunt(asked.name, seeds, attempts=asked.attempts)
    print(json.dumps(attrs.asdict(verdict)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
