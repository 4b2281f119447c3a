"""`understudy scenario museum`: famous bugs of Apache Kafka, each with a switch that restores it.

    understudy scenario museum                  the list
    understudy scenario museum KIP-101          its story, with the bug and without it
    understudy scenario museum --all            all of them, as a table

A story that does not fail by the recorded damage with the bug, or fails without it, is an error.
"""

import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from replication.cli import completion
from replication.cli.output import JSON, OUTPUT, CommandError, show_answer, show_json, show_table
from replication.cli.progress import progress

if TYPE_CHECKING:
    from scenarios.museum.exhibit import Exhibit
    from scenarios.museum.visit import StoryOutcome, Visit

_WIDTH = 100


@click.command(name="museum")
@click.argument("name", required=False, shell_complete=completion.exhibits)
@click.option("--all", "everything", is_flag=True, help="Run every exhibit, and print a table.")
@OUTPUT
def command(name: str | None, output: str, *, everything: bool) -> None:
    """Show famous replication bugs of Apache Kafka, each in a story that fails with the bug.

    NAME is a ticket or a proposal, such as KIP-101. Without NAME the command lists the exhibits.
    """
    from scenarios.museum.catalogue import EXHIBITS, find_exhibit

    if name is not None and everything:
        raise CommandError("give a NAME or --all, not both")
    chosen = list(EXHIBITS.values()) if name is None else [find_exhibit(name)]
    if name is None and not everything:
        found = [_described(each) for each in chosen]
        show_answer(output, found, map(_line, chosen))
        return
    visits = _visit(chosen)
    if output == JSON:
        show_json([_as_json(each) for each in visits])
    elif everything:
        show_table(("exhibit", "with the bug", "without it", "seconds"), [*map(_row, visits)])
    else:
        show_answer(output, None, _told(visits[0]))
    sys.exit(0 if all(each.as_recorded for each in visits) else 1)


def _visit(chosen: "Sequence[Exhibit]") -> "list[Visit]":
    from scenarios.museum.visit import visit

    visits = []
    with progress("exhibits") as bar:
        for done, exhibit in enumerate(chosen, start=1):
            visits.append(visit(exhibit, now=time.monotonic))
            bar.update(done, len(chosen))
    return visits


def _line(exhibit: "Exhibit") -> str:
    return f"{exhibit.name:<18}  {exhibit.year}  {exhibit.title}"


def _described(exhibit: "Exhibit") -> dict[str, object]:
    return {
        "name": exhibit.name,
        "also": exhibit.also,
        "title": exhibit.title,
        "year": exhibit.year,
        "versions": exhibit.versions,
        "happened": exhibit.happened,
        "missing": exhibit.missing,
        "fixed": exhibit.fixed,
        "story": exhibit.story,
        "damage": exhibit.damage,
    }


def _as_json(visit: "Visit") -> dict[str, object]:
    return {
        **_described(visit.exhibit),
        "as_recorded": visit.as_recorded,
        "with_bug": _outcome(visit.with_bug),
        "without_bug": _outcome(visit.without_bug),
    }


def _outcome(outcome: "StoryOutcome") -> dict[str, object]:
    return {
        "failure": outcome.failure or None,
        "rule": outcome.rule or None,
        "seconds": round(outcome.seconds, 3),
    }


def _row(visit: "Visit") -> tuple[str, str, str, str]:
    return (
        visit.exhibit.name,
        f"fails: {visit.damage}" if visit.with_bug.failure else "passes",
        "fails" if visit.without_bug.failure else "passes",
        f"{visit.with_bug.seconds + visit.without_bug.seconds:.2f}",
    )


def _told(visit: "Visit") -> Iterator[str]:
    exhibit = visit.exhibit
    names = ", ".join((exhibit.name, *exhibit.also))
    yield f"{exhibit.title} ({names}, {exhibit.year})"
    yield f"Apache Kafka {exhibit.versions}"
    for head, text in (
        ("What happened", exhibit.happened),
        ("Which rule was missing", exhibit.missing),
        ("What fixed it", exhibit.fixed),
    ):
        yield ""
        yield head
        yield textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    yield ""
    yield f"The story: {exhibit.story}"
    yield f"    with the bug   {visit.with_bug.seconds:.2f} s   {_end(visit.with_bug)}"
    yield f"    without it     {visit.without_bug.seconds:.2f} s   {_end(visit.without_bug)}"
    yield f"    understudy scenario run {exhibit.story}"


def _end(outcome: "StoryOutcome") -> str:
    if not outcome.failure:
        return "passes"
    said = f"{outcome.rule}:\n{outcome.failure}" if outcome.rule else outcome.failure
    return f"fails:\n{textwrap.indent(said, ' ' * 8)}"
