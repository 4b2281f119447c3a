"""One hunt, in a process of its own: a simulator runs its seeds on a mutant until one fails.

    python -m tests.mutants.hunt NAME --from 1 --seeds 200 --attempts 60

Each line of output is either a seed that begins, or the verdict as JSON: first with the story as
it was, then, after some attempts, with a shorter one. The name `none` is the tree as it is.

A mutant that names the test which catches it is hunted by that test, and by no seeds.

A run without an end counts as one that failed: the swarm gives it up (`scenarios.world.endless`).
"""

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator

import attrs

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import QUORUM, SWARM, Mutant
from tests.mutants.planting import is_planted, plant

UNMUTATED = "none"


@attrs.frozen(kw_only=True)
class Verdict:
    """The result of hunting one mutant, or of running the tree as it is."""

    name: str
    seed: int | None
    """The first seed that failed; None where all passed, or where a test was run."""
    rule: str = ""
    """The rule that was broken, or the test that failed; empty where the mutant survives."""
    wrong: str = ""
    lines: int = 0
    shortest: tuple[str, ...] = ()
    """The lines of the shortest story that was found to break the same rule."""


def hunt(name: str, seeds: range, *, attempts: int, simulator: str = SWARM) -> Iterator[Verdict]:
    if name != UNMUTATED:
        simulator = MUTANTS[name].simulator
        plant(MUTANTS[name])
        if MUTANTS[name].caught_by:
            yield _by_its_test(MUTANTS[name])
            return
    run_seed = importlib.import_module(simulator).run_seed
    for seed in seeds:
        print(seed, flush=True)
        run = run_seed(seed)
        if run.wrong:
            verdict = Verdict(
                name=name,
                seed=seed,
                rule=run.rule,
                wrong=run.wrong,
                lines=len(run.lines),
                shortest=run.lines,
            )
            yield verdict
            if attempts and simulator == SWARM:
                from scenarios.swarm.shrinking import shrink

                yield attrs.evolve(verdict, shortest=shrink(run, attempts=attempts).lines)
            return
    # Some modules are imported only when they are needed.
    assert name == UNMUTATED or is_planted(MUTANTS[name]), "the simulator imports it"
    yield Verdict(name=name, seed=None)


def _by_its_test(mutant: Mutant) -> Verdict:
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", mutant.caught_by])
    assert is_planted(mutant), "the test imports what is mutated"
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant.caught_by} was not run")
    failed = code == pytest.ExitCode.TESTS_FAILED
    return Verdict(name=mutant.name, seed=None, rule=mutant.caught_by if failed else "")


def verdict_of(name: str, ended: "subprocess.CompletedProcess[bytes]") -> Verdict:
    """Return the last verdict that the hunt printed."""
    lines = ended.stdout.decode().splitlines()
    if ended.returncode or not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"the hunt for {name!r} has failed:\n{ended.stderr.decode()}")
    return Verdict(**json.loads(lines[-1]))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt")
    parser.add_argument("name", choices=[UNMUTATED, *MUTANTS])
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=0)
    parser.add_argument("--simulator", choices=[SWARM, QUORUM], default=SWARM)
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    hunted = hunt(asked.name, seeds, attempts=asked.attempts, simulator=asked.simulator)
    for verdict in hunted:
        print(json.dumps(attrs.asdict(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
