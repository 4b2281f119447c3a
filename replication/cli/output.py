r"""The output of all commands: tables for people, JSON for programs.

    --output table      columns as wide as their contents; drawn by rich on a terminal
    --output json       one document; an object in each line if the output may be endless

Rule 1: standard output is the answer, standard error is everything about it. So
`understudy ... | jq` works despite warnings.

Rule 2: names in JSON are in snake_case. Bytes are text if they are UTF-8; otherwise the name ends in
`_base64`. A null is null under the plain name.

Rule 3: control characters in foreign names and data are shown as \u001b (`replication.visible`), so
that they have no effect on a terminal.

Rule 4: an empty cell is `-` in a table and null in JSON.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from replication.visible import visible, visible_line

F = TypeVar("F", bound=Callable[..., Any])

TABLE, JSON = "table", "json"
NOTHING_DONE = "Nothing was changed; add --execute to do it."


def output_option(*, also: Sequence[str] = ()) -> Callable[[F], F]:
    """Return the option `--output`; `also` are further forms of one command."""
    return click.option(
        "--output",
        type=click.Choice([TABLE, JSON, *also]),
        default=TABLE,
        show_default=True,
        help="The form of the output: text for people, JSON for programs.",
    )


OUTPUT = output_option()
EXECUTE = click.option(
    "--execute/--dry-run",
    default=False,
    show_default="dry-run",
    help="Do it, or only show what would be done.",
)


class CommandError(click.ClickException):
    """The failure of a command, in one line; the exit code is 1."""

    def show(self, file: Any = None) -> None:
        click.echo(f"understudy: {visible(self.format_message())}", err=True, file=file)


def show_line(text: str) -> None:
    if sys.stdout is None:
        raise CommandError("standard output is closed")
    click.echo(visible(text))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; None becomes `-`."""
    cells = [["-" if cell is None else visible_line(str(cell)) for cell in row] for row in rows]
    if sys.stdout is not None and sys.stdout.isatty():
        _show_drawn(columns, cells)
        return
    table = [list(columns), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        show_line("  ".join(map(str.ljust, row, widths)).rstrip())


def _show_drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # Importing rich takes longer than most requests, and a pipe does not need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numbers = rows and all(row[index].lstrip("-").isdecimal() for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def json_text(found: object) -> str:
    """Return `found` as a JSON document."""
    return visible(json.dumps(found, indent=2, ensure_ascii=False))


def show_json(found: object) -> None:
    show_line(json_text(found))


def show_answer(output: str, found: object, lines: Iterable[str]) -> None:
    """Print an answer in the form of `--output`: `found` as JSON, or `lines` as text."""
    if output == JSON:
        show_json(found)
        return
    for line in lines:
        show_line(line)


def json_line(found: object) -> str:
    """Return `found` as one line of JSON."""
    return visible(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def tell(text: str) -> None:
    """Write a line to standard error."""
    click.echo(visible(text), err=True)


def tell_unless_executed(*, execute: bool) -> None:
    if not execute:
        tell(NOTHING_DONE)
