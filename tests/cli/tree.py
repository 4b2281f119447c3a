"""Every command and group, by the words that one types."""

from collections.abc import Iterator

import click

from replication.cli import group


def commands(
    command: click.Command = group, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command and group with its name, such as `topic create`."""
    yield " ".join(words), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from commands(found, (*words, name))


COMMANDS = dict(commands())
LEAVES = {name: each for name, each in COMMANDS.items() if not isinstance(each, click.Group)}
