"""`make mutants`: every mutant is caught by the swarm, and the tree as it is by nobody.

    python -m tests.mutants                            all of the brokers', 200 seeds each
    python -m tests.mutants --of clients               those of our clients
    python -m tests.mutants --only "a fetch" --seeds 60 --jobs 1

Each is hunted in a process of its own, from the first seed until one fails, or by the test that
it names. At the end the tree as it is runs all seeds that were used. Exit code 1 where a mutant survives, or where the tree
as it is fails.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator

import attrs
import click
import trio

from tests.mutants.catalogue import MUTANTS, OF, hunted
from tests.mutants.hunt import UNMUTATED, Verdict, verdict_of

CHUNK = 25  # seeds of the tree as it is, for one process


@attrs.define
class Hunts:
    """What is under way, and what came of it."""

    first: int
    attempts: int
    jobs: trio.CapacityLimiter
    verdicts: list[Verdict] = attrs.field(factory=list)

    async def hunt(self, name: str, seeds: range) -> None:
        command = [sys.executable, "-m", "tests.mutants.hunt", name]
        command += ["--from", str(seeds.start), "--seeds", str(len(seeds))]
        command += ["--attempts", str(self.attempts)]
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


def as_table(verdicts: Iterable[Verdict], first: int) -> Iterator[str]:
    """In the order of the catalogue."""
    found = {verdict.name: verdict for verdict in verdicts}
    yield "| the check | caught by seed | which broke | story |"
    yield "|---|---|---|---|"
    for name in MUTANTS:
        if name in found:
            verdict = found[name]
            count = "-" if verdict.seed is None else verdict.seed - first + 1
            rule = verdict.rule.partition(": ")[2] or verdict.rule
            yield f"| {name} | {count} | {rule} | {len(verdict.shortest) or '-'} |"


async def hunt_all(hunts: Hunts, names: Iterable[str], seeds: range) -> None:
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(hunts.hunt, name, seeds)
    ends = [each.seed for each in hunts.verdicts if not MUTANTS[each.name].caught_by]
    used = max((seeds.stop if end is None else end + 1 for end in ends), default=seeds.start)
    async with trio.open_nursery() as nursery:
        for start in range(seeds.start, used, CHUNK):
            chunk = range(start, min(start + CHUNK, used))
            nursery.start_soon(hunts.hunt, UNMUTATED, chunk)


@click.command()
@click.option("--of", "whose", type=click.Choice(list(OF)), default="brokers", show_default=True)
@click.option("--only", default="", help="Those whose names begin so.")
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--from", "first", default=1, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, type=click.IntRange(min=1))
@click.option("--attempts", default=60, show_default=True, help="To make each story shorter.")
@click.option("--table", is_flag=True, help="Also as Markdown.")
def main(
    *, whose: str, only: str, seeds: int, first: int, jobs: int, attempts: int, table: bool
) -> None:
    """Take out one safety check after the other, and let the swarm find out."""
    names = [name for name in hunted(whose) if name.startswith(only)]
    if not names:
        raise click.BadParameter(f"no mutant's name begins with {only!r}")
    hunts = Hunts(first, attempts, trio.CapacityLimiter(jobs))
    trio.run(hunt_all, hunts, names, range(first, first + seeds))
    alive = [each.name for each in hunts.verdicts if each.name != UNMUTATED and not each.rule]
    failed = [each for each in hunts.verdicts if each.name == UNMUTATED and each.seed is not None]
    if table:
        print("\n".join(as_table(hunts.verdicts, first)))
    print(
        f"{len(names) - len(alive)} of {len(names)} mutants caught within {seeds} seeds, or by tests"
    )
    sys.exit(1 if alive or failed else 0)


if __name__ == "__main__":
    main()
