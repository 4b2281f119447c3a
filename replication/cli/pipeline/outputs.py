"""Where a job's answer goes: to standard output, or into files by how their names end."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

SHOWN = ("table", "json")


class OutputType(click.ParamType[str]):
    """`table`, `json`, or a file whose ending says what goes in."""

    name = "output"

    def __init__(self, endings: Sequence[str]) -> None:
        self.endings = tuple(endings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text in SHOWN or text.endswith(self.endings):
            return text
        known = ", ".join((*SHOWN, *(f"a file *{ending}" for ending in self.endings)))
        raise click.BadParameter(f"{text} is none of: {known}", ctx, param)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"[{'|'.join((*SHOWN, *(f'FILE{ending}' for ending in self.endings)))}]"


def deliver(outputs: Sequence[str], makers: Mapping[str, Callable[[str], None]]) -> None:
    """Hand the answer out; a maker is known by `table`, `json` or a file's ending."""
    for output in outputs:
        kind = output if output in SHOWN else Path(output).suffix
        makers[kind](output)
        if output not in SHOWN:
            click.echo(f"written: {output}", err=True)


def write_text(make: Callable[[], str]) -> Callable[[str], None]:
    """A maker that writes what `make` returns."""

    def write(path: str) -> None:
        Path(path).write_text(make())

    return write


def need_spark(error: ImportError) -> click.ClickException:
    """What to say where the pipeline's packages are not installed."""
    return click.ClickException(f"install the Spark extra: understudy[spark] ({error})")
