"""The applications on the conformance card: run, and written as rows of a table.

Each application runs in a process of its own (`python -m tests.interop.card.applications`). A card
that is written again keeps the rows of the applications that were not run this time, each with its
day.
"""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import click

from tests.interop.card.applications.application import APPLICATIONS, Application

Key = tuple[str, str]
"""An application's title, and one of its promises."""

LIMIT_SECONDS: Final = 1800
END_SECONDS: Final = 60
HEADING: Final = "## Applications"
KEPT: Final = "yes"
BROKEN: Final = "**no**"
NOT_HERE: Final = "-"
INTRODUCTION: Final = f"""\
Each ran against three brokers of understudy, in an environment of its own that `make card` made.
`tests/interop/card/applications` has the programs and the versions that they ask for.
While lines were sent, the broker that led a partition was killed (SIGKILL) and came back.
Then the application was killed, where the row says so, and started anew.
Librdkafka read the result, committed records only.

`{KEPT}`: at least once, nothing that was sent is missing; exactly once, nothing is there twice either.
`{BROKEN}`: the last words say why. `{NOT_HERE}`: it could not be installed."""
NOT_TO_BE_HAD: Final = (
    "Looked for in vain on 28 November 2026, as packages of PyPI, npm and Maven Central:"
    " Confluent's schema registry and its Java serializers, Karapace, and the web pages Kafdrop,"
    " AKHQ and Kafka UI; and connect-file and connect-mirror 4.4.0, instead of which 4.3.1 ran."
)

AT_KAFKA_TOO: Final = (
    "faust counts words twice at Apache Kafka 4.4.0 too, with exactly once and the same kills:"
    " tried on 29 November 2026 with `python -m tests.interop.card.applications faust --at-kafka`."
)


@attrs.frozen
class Row:
    """One run of an application, as a line of the table."""

    title: str
    promise: str
    version: str
    what: str
    result: str
    found: str
    day: str

    @property
    def line(self) -> str:
        cells = (self.title, self.version, self.promise, self.what)
        return f"| {' | '.join((*cells, self.result, in_a_cell(self.found), self.day))} |"


def application(name: str) -> Application[Any]:
    found: Application[Any] = importlib.import_module(APPLICATIONS[name]).APPLICATION
    return found


def keys() -> list[Key]:
    """Return the rows that the card must have, in its order."""
    every = [application(name) for name in APPLICATIONS]
    return [(each.title, promise) for each in every for promise in each.runs]


def run_applications(names: Iterable[str]) -> dict[Key, str]:
    rows = [row for name in names for row in run_application(name)]
    return {(row.title, row.promise): row.line for row in rows}


def run_application(name: str) -> Iterator[Row]:
    """Run it, and yield a row for each of its promises."""
    listed = application(name)
    said = [json.loads(line) for line in output_of(name) if line.startswith("{")]
    version = next((each["version"] for each in said if "version" in each), "")
    missing = next((each["not_here"] for each in said if "not_here" in each), None)
    results = {each["promise"]: each for each in said if "promise" in each}
    day = datetime.now(tz=UTC).date().isoformat()
    for promise, run in listed.runs.items():
        mark, found = judged(results.get(promise, {}), missing)
        if mark == BROKEN and promise in listed.known:
            found = f"{found} {listed.known[promise]}"
        click.echo(f"{name:14}{promise:24}{mark:10}{found}")
        yield Row(listed.title, promise, version, run.what, mark, found, day)


def judged(result: Mapping[str, str], missing: str | None) -> tuple[str, str]:
    """Return the mark of a run, and the words beside it."""
    if missing is not None:
        return NOT_HERE, in_a_cell(missing)
    if "found" in result:
        return KEPT, in_a_cell(result["found"])
    failed = result.get(
        "failed", f"no result: the process ended, or took more than {LIMIT_SECONDS} s"
    )
    return BROKEN, f"`{in_a_cell(failed)}`"


def in_a_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "/").replace("`", "")[:300]


def output_of(name: str) -> list[str]:
    """Return what the application's process printed, up to its end or the time limit."""
    command = [sys.executable, "-m", "tests.interop.card.applications", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            output, _ = running.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            running.terminate()  # it ends what it has started
            try:
                output, _ = running.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                output, _ = running.communicate()
    return output.splitlines()


def section(lines: Mapping[Key, str]) -> list[str]:
    """Return the section of the card, with these rows in the order of the list."""
    columns = ("application", "version", "promise", "what was done", "kept", "found", "day")
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    rows = [lines[key] for key in keys() if key in lines]
    return ["", HEADING, "", INTRODUCTION, "", *head, *rows, "", AT_KAFKA_TOO, "", NOT_TO_BE_HAD]


def rows_in(page: str) -> dict[Key, str]:
    """Return the rows of a card, by application and promise."""
    table = page.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], row[2]): line for row, line in zip(cells, lines, strict=True)}


def with_section(page: str, lines: Mapping[Key, str]) -> str:
    """Return the card with another section of applications, and the rest as it was."""
    before, found, rest = page.partition(f"\n{HEADING}\n")
    if not found:
        before, found, rest = page.partition("\n## What our brokers do not serve\n")
        after = f"{found}{rest}"
    else:
        _, head, after = rest.partition("\n## ")
        after = f"{head}{after}"
    return before.rstrip("\n") + "\n" + "\n".join(section(lines)) + "\n" + after
