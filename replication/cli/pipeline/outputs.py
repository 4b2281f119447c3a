"""Where a job's answer goes: to standard output, or into files by how their names end."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from replication.cli.output import JSON, TABLE, json_text, show_json, show_line, tell
from replication.extras import extra

SHOWN = (TABLE, JSON)
ENDINGS = (".json", ".parquet", ".html")


METAVAR = f"[{'|'.join((*SHOWN, *(f'FILE{ending}' for ending in ENDINGS)))}]"


def checked(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """A callback of `--output`: each is `table`, `json`, or a file whose ending says what goes in."""
    for text in given:
        if text not in SHOWN and not text.endswith(ENDINGS):
            known = ", ".join((*SHOWN, *(f"a file *{ending}" for ending in ENDINGS)))
            raise click.BadParameter(f"{text} is none of: {known}", ctx, param)
    if any(text.endswith(".html") for text in given):
        # Before the job runs, not after.
        with extra("spark", "a report as HTML"):
            import plotly.io  # noqa: F401
    return given


output_option = click.option(
    "--output",
    "outputs",
    multiple=True,
    default=["table"],
    metavar=METAVAR,
    callback=checked,
    help="Print the result, or write it to a file; may be repeated.  [default: table]",
)


@attrs.frozen(kw_only=True)
class Answer:
    """What a job found, in every form; each is made when it is asked for."""

    lines: Callable[[], Iterable[str]]
    facts: Callable[[], Any]
    page: Callable[[], str]
    write_parquet: Callable[[str], None]

    def deliver(self, outputs: Sequence[str]) -> None:
        """Hand it out: by `table`, `json`, or how a file's name ends."""
        for output in outputs:
            match output if output in SHOWN else Path(output).suffix:
                case "table":
                    show_line("\n".join(self.lines()))
                case "json":
                    show_json(self.facts())
                case ".json":
                    Path(output).write_text(f"{json_text(self.facts())}\n")
                case ".html":
                    Path(output).write_text(self.page())
                case _:
                    self.write_parquet(output)
            if output not in SHOWN:
                tell(f"written: {output}")
