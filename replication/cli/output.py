r"""What commands write, and the one place that writes it: tables for people, JSON for programs.

    --output table      columns, as wide as what is in them; drawn by rich where a person looks
    --output json       one document, or where there may be no end of it one object a line

Rule 1: standard output is the answer, standard error is everything said about it. So
`understudy ... | jq` works, whatever there is to warn of.

Rule 2: in JSON, names are in snake_case; bytes are text where they are UTF-8, and where not the
name ends in `_base64`. A null is null under the plain name.

Rule 3: what others have named or written is shown, and never obeyed: control characters come out
as \u001b (`replication.visible`).

Rule 4: what nothing stands in is `-` in a table and null in JSON.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from replication.visible import visible, visible_line

F = TypeVar("F", bound=Callable[..., Any])

TABLE, JSON = "table", "json"
NOTHING_DONE = "Nothing was changed; --execute does it."


def output_option(*, also: Sequence[str] = ()) -> Callable[[F], F]:
    """`--output`: for people or for programs; `also` for what else a command can write."""
    return click.option(
        "--output",
        type=click.Choice([TABLE, JSON, *also]),
        default=TABLE,
        show_default=True,
        help="The form of the output: text for people, JSON for programs.",
    )


OUTPUT = output_option()
EXECUTE = click.option(
    "--execute/--dry-run", default=False, show_default="dry-run", help="Do it, or only show it."
)


class CommandError(click.ClickException):
    """What cannot be done, in one line; the exit code is 1."""

    def show(self, file: Any = None) -> None:
        click.echo(f"understudy: {visible(self.format_message())}", err=True, file=file)


def show_line(text: str) -> None:
    if sys.stdout is None:
        raise CommandError("standard output is closed")
    click.echo(visible(text))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """`-` where there is nothing."""
    cells = [["-" if cell is None else visible_line(str(cell)) for cell in row] for row in rows]
    if sys.stdout is not None and sys.stdout.isatty():
        _show_drawn(columns, cells)
        return
    table = [list(columns), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        show_line("  ".join(map(str.ljust, row, widths)).rstrip())


def _show_drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # Importing rich takes longer than most questions do, and a pipe needs none of it.
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
    """One document."""
    return visible(json.dumps(found, indent=2, ensure_ascii=False))


def show_json(found: object) -> None:
    show_line(json_text(found))


def json_line(found: object) -> str:
    """One of many objects, a line each."""
    return visible(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def tell(text: str) -> None:
    """What is said about an answer and is none of it."""
    click.echo(visible(text), err=True)


def tell_unless_executed(*, execute: bool) -> None:
    if not execute:
        tell(NOTHING_DONE)
