"""Every command there is, as one would type it."""

from collections.abc import Iterator

import click

from replication.cli import group


def leaves(
    command: click.Command = group, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """`topic create` and the command that it is, by name."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from leaves(found, (*words, name))


LEAVES = dict(leaves())
