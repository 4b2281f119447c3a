"""`make mutants`: simulators catch every mutant, and find nothing wrong with the tree as it is.

    python -m tests.mutants                            all of them, 200 seeds each
    python -m tests.mutants --only "a fetch" --seeds 60 --jobs 1

Each mutant is hunted in a process of its own, from the first seed until one fails, or by the test
that it names. The hunts that docs/mutants.md has measured as the longest begin first. At the end
the tree as it is runs all seeds that were used, and the verdicts are printed as the table of that
page. The exit code is 1 if a mutant survives, or if the tree as it is fails.

`--attempts 60` also makes the story of each catch shorter, which takes several times as long.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator

import attrs
import click
import trio

from tests.mutants.catalogue import HUNTED, MUTANTS
from tests.mutants.hunt import UNMUTATED, Verdict, verdict_of
from tests.mutants.mutant import QUORUM, SWARM
from tests.mutants.power import PAGE, measured

CHUNK = 25
"""The number of seeds of the tree as it is that one process runs."""


@attrs.define
class Hunts:
    """The hunts that are under way, and their verdicts."""

    first: int
    attempts: int
    jobs: trio.CapacityLimiter
    verdicts: list[Verdict] = attrs.field(factory=list)

    async def hunt(self, name: str, seeds: range, simulator: str = SWARM) -> None:
        command = [sys.executable, "-m", "tests.mutants.hunt", name]
        command += ["--from", str(seeds.start), "--seeds", str(len(seeds))]
        command += ["--attempts", str(self.attempts), "--simulator", simulator]
        async with self.jobs:
            began = time.monotonic()
            ended = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False
            )
        verdict = verdict_of(name, ended)
        self.verdicts.append(verdict)
        print(f"{in_a_line(verdict, seeds)}  ({time.monotonic() - began:.0f} s)", flush=True)


def in_a_line(verdict: Verdict, seeds: range) -> str:
    if verdict.name == UNMUTATED:
        passed = f"as it is: seeds {seeds.start} to {seeds.stop - 1} pass"
        return passed if verdict.seed is None else f"AS IT IS: seed {verdict.seed}: {verdict.wrong}"
    if not verdict.rule:
        return f"SURVIVES {len(seeds)} seeds, or its test: {verdict.name}"
    if verdict.seed is None:
        return f"test  {verdict.name}: {verdict.rule}"
    count = verdict.seed - seeds.start + 1
    story = f", a story of {len(verdict.shortest)} lines" if verdict.shortest else ""
    return f"{count:>4}  {verdict.name}: {verdict.rule}{story}"


def longest_first(names: Iterable[str], page: str) -> list[str]:
    """Sort the names by the seeds that were measured; those that were not measured come first."""
    seeds = measured(page)

    def length(name: str) -> float:
        return 0 if MUTANTS[name].caught_by else seeds.get(name, float("inf"))

    return sorted(names, key=length, reverse=True)


def as_table(verdicts: Iterable[Verdict], first: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of docs/mutants.md, in the order of the catalogue."""
    found = {verdict.name: verdict for verdict in verdicts}
    yield "| the check | from | seed | which broke |"
    yield "|---|---|---|---|"
    for name, mutant in MUTANTS.items():
        if name in found and not mutant.caught_by:
            verdict = found[name]
            count = "survives" if verdict.seed is None else verdict.seed - first + 1
            rule = verdict.rule.partition(": ")[2] or verdict.rule
            yield f"| {name} | {mutant.source} | {count} | {rule} |"


async def hunt_all(hunts: Hunts, names: Iterable[str], seeds: range) -> None:
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(hunts.hunt, name, seeds)
            await trio.lowlevel.checkpoint()  # in this order they wait for a worker
    used = dict.fromkeys((SWARM, QUORUM), seeds.start)
    for each in hunts.verdicts:
        mutant = MUTANTS[each.name]
        if not mutant.caught_by:
            end = seeds.stop if each.seed is None else each.seed + 1
            used[mutant.simulator] = max(used[mutant.simulator], end)
    async with trio.open_nursery() as nursery:
        for simulator, end in used.items():
            for start in range(seeds.start, end, CHUNK):
                chunk = range(start, min(start + CHUNK, end))
                nursery.start_soon(hunts.hunt, UNMUTATED, chunk, simulator)


@click.command()
@click.option("--only", default="", help="Hunt only mutants whose names begin with this text.")
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--from", "first", default=1, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, type=click.IntRange(min=1))
@click.option(
    "--attempts",
    default=0,
    show_default=True,
    help="The number of times that each story is played to make it shorter.",
)
def main(*, only: str, seeds: int, first: int, jobs: int, attempts: int) -> None:
    """Remove one safety check after the other, and let the simulators catch each."""
    names = longest_first([name for name in HUNTED if name.startswith(only)], PAGE.read_text())
    if not names:
        raise click.BadParameter(f"no mutant's name begins with {only!r}")
    hunts = Hunts(first, attempts, trio.CapacityLimiter(jobs))
    trio.run(hunt_all, hunts, names, range(first, first + seeds))
    alive = [each.name for each in hunts.verdicts if each.name != UNMUTATED and not each.rule]
    failed = [each for each in hunts.verdicts if each.name == UNMUTATED and each.seed is not None]
    print("\n".join(as_table(hunts.verdicts, first)))
    caught = [each.seed - first + 1 for each in hunts.verdicts if each.rule and each.seed]
    print(
        f"{len(names) - len(alive)} of {len(names)} mutants caught within {seeds} seeds, or by tests;"
        f" half of the {len(caught)} by seeds within {statistics.median(caught or [0]):.0f}"
    )
    sys.exit(1 if alive or failed else 0)


if __name__ == "__main__":
    main()
