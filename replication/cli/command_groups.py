"""Groups of commands: `--help` shows whole sentences, and a command is imported when it runs."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class CommandGroup(click.Group):
    """A group whose --help shows the whole first sentence of each command, which click shortens."""

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the name of each command and its sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, each.get_short_help_str(limit=200)) for name, each in found if each]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.sentences(ctx))


class LazyGroup(CommandGroup):
    """A group that imports only the command that runs.

    `table` has the module and the sentence of each name; the module's `command` is the command.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        command = importlib.import_module(self._table[cmd_name][0]).command
        assert isinstance(command, click.Command), f"{cmd_name} names a click command"
        return command

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(name, text) for name, (_, text) in sorted(self._table.items())]
