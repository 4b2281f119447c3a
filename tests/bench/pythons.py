"""One table of benchmarks: this Python beside the newest one that is found.

    python -m tests.bench.pythons [--rounds N] [BENCHMARK]...

Each round runs every benchmark on one Python and then on the other, in a process of its own. A cell
is the median of the rounds, with the ratio to the floor that the same process measured; the last
column is the newest Python's figure divided by this one's. Bytecode is compiled once, as an
installed package has it.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from tests import other_pythons
from tests.bench.figures import Figure
from tests.bench.start_up import with_bytecode_in

BENCHMARKS = ("acks", "record_calls", "catch_up", "append", "start_up", "cleaner", "swarm_speed")
RUN = """
import attrs, importlib, json, sys
figures = importlib.import_module("tests.bench." + sys.argv[1]).run()
print(json.dumps([attrs.asdict(each) for each in figures]))
"""


def newest() -> Path:
    """Return the interpreter of an environment for the newest Python that is found."""
    for version in reversed(other_pythons.SUPPORTED):
        if version > sys.version_info[:2] and (python := other_pythons.find(version)):
            environment = other_pythons.ROOT / f".venv-{version[0]}.{version[1]}"
            return other_pythons.make_environment(python, environment)
    raise click.ClickException("no newer Python is on PATH or among pyenv's versions")


def version_of(python: Path) -> str:
    command = [str(python), "-c", "import platform; print(platform.python_version())"]
    return subprocess.check_output(command, text=True).strip()


def measure(python: Path, benchmark: str, environment: Mapping[str, str]) -> list[Figure]:
    command = [str(python), "-c", RUN, benchmark]
    said = subprocess.check_output(command, text=True, cwd=other_pythons.ROOT, env=environment)
    return [Figure(**each) for each in json.loads(said.splitlines()[-1])]


def table(measured: dict[str, list[list[Figure]]]) -> list[str]:
    """Return the rows of the table; `measured` has a list of each figure's rounds by version."""
    versions = list(measured)
    lines = [
        "| | unit | " + " | ".join(f"CPython {each}" for each in versions) + " | newest / this |",
        "|---|---|" + "---|" * (len(versions) + 1),
    ]
    for rounds in zip(*measured.values(), strict=True):
        ours = [statistics.median(each.ours for each in figures) for figures in rounds]
        ratios = [statistics.median(each.ratio for each in figures) for figures in rounds]
        cells = [f"{each:,.1f} ({ratio:.2f})" for each, ratio in zip(ours, ratios, strict=True)]
        cells.append(f"{ours[1] / ours[0]:.2f}")
        first = rounds[0][0]
        lines.append(f"| {first.name} | {first.unit} | " + " | ".join(cells) + " |")
    return lines


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.argument("names", nargs=-1, metavar="[BENCHMARK]...", type=click.Choice(BENCHMARKS))
def main(rounds: int, names: tuple[str, ...]) -> None:
    pythons = {version_of(python): python for python in (Path(sys.executable), newest())}
    measured: dict[str, list[list[Figure]]] = {version: [] for version in pythons}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as bytecode:
        environment = with_bytecode_in(bytecode)
        try:
            for name in names or BENCHMARKS:
                found: dict[str, list[list[Figure]]] = {version: [] for version in pythons}
                for number in range(rounds):
                    for version, python in pythons.items():
                        click.echo(f"round {number + 1} of {name} on CPython {version}", err=True)
                        found[version].append(measure(python, name, environment))
                for version, of_rounds in found.items():
                    measured[version] += map(list, zip(*of_rounds, strict=True))
        finally:  # what was measured stays so, whatever comes after it
            click.echo("\n".join(table(measured)))


if __name__ == "__main__":
    main()
