"""The choice of groups: by name, or all of them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import click

from replication.cli import completion
from replication.client.admin import Admin

T = TypeVar("T")

READING = ("consumer", "")
"""The protocol types of consumer groups; a group that only commits offsets has none."""


@attrs.frozen
class ChosenGroups:
    """A choice of groups; `names` is None for all of them."""

    names: Sequence[str] | None

    async def found(self, admin: Admin) -> list[str]:
        if self.names is not None:
            return list(self.names)
        listed = await admin.list_groups()
        return [each.group_id for each in listed if each.protocol_type in READING]


def groups_named(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that choose groups, which the command gets as one `chosen`."""

    @functools.wraps(command)
    def with_chosen(
        *arguments: Any,
        names: Sequence[str],
        more_names: Sequence[str],
        all_groups: bool,
        **others: Any,
    ) -> T:
        named = tuple(dict.fromkeys((*names, *more_names)))
        if bool(named) == all_groups:
            raise click.UsageError("give either GROUP or --all-groups")
        return command(*arguments, chosen=ChosenGroups(None if all_groups else named), **others)

    options = [
        click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=completion.groups),
        click.option(
            "--group",
            "more_names",
            multiple=True,
            metavar="GROUP",
            shell_complete=completion.groups,
            help="A group, as the argument GROUP; may be repeated.",
        ),
        click.option("--all-groups", is_flag=True, help="Choose all consumer groups."),
    ]
    for option in reversed(options):
        with_chosen = option(with_chosen)
    return with_chosen
