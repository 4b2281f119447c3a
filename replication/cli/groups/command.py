"""The commands `list`, `describe` and `delete`."""

from collections.abc import Sequence

import attrs
import click

from replication.cli.command_groups import CommandGroup
from replication.cli.connection import ClusterConnection, connected
from replication.cli.groups.choosing import ChosenGroups, groups_named
from replication.cli.groups.describing import About, as_json, remark, show
from replication.cli.groups.positions import GroupPositions, describe
from replication.cli.groups.resetting import reset_offsets
from replication.cli.output import (
    EXECUTE,
    JSON,
    OUTPUT,
    show_json,
    show_line,
    show_table,
    tell,
    tell_unless_executed,
)
from replication.cli.patience import groups_gone
from replication.client.admin import Admin


@click.group(name="group", cls=CommandGroup)
def command() -> None:
    """List, describe, reset and delete consumer groups of any Kafka cluster."""


@command.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    help="List only groups in these states, such as Empty,Stable.",
)
@connected()
@OUTPUT
def list_groups(states: Sequence[str], connection: ClusterConnection, output: str) -> None:
    """List the groups, with their protocol types and states."""
    wanted = [state.strip() for each in states for state in each.split(",")]
    found = connection.ask(lambda admin: admin.list_groups(states=wanted))
    if output == JSON:
        show_json([attrs.asdict(each) for each in found])
    else:
        show_table(
            ("GROUP", "TYPE", "STATE"), [(e.group_id, e.protocol_type, e.state) for e in found]
        )


@command.command(name="describe")
@groups_named
@click.option("--offsets", is_flag=True, help="Show committed offsets and lag.  [default]")
@click.option("--members", is_flag=True, help="Show the members instead.")
@click.option("--state", is_flag=True, help="Show the state and the coordinator instead.")
@click.option(
    "--verbose", is_flag=True, help="Show more: epochs, and the partitions of each member."
)
@connected()
@OUTPUT
def describe_groups(
    chosen: ChosenGroups,
    *,
    verbose: bool,
    connection: ClusterConnection,
    output: str,
    **about: bool,
) -> None:
    """Describe how far each GROUP has read, and which members read."""
    asked = [each for each in About if about[each.value]] or [About.OFFSETS]
    if len(asked) > 1:
        raise click.UsageError("give one of --offsets, --members and --state")

    async def all_of_them(admin: Admin) -> list[GroupPositions]:
        return [await describe(admin, group_id) for group_id in await chosen.found(admin)]

    found = connection.ask(all_of_them)
    if output == JSON:
        show_json([as_json(each) for each in found])
        return
    for each in found:
        if said := remark(each.group):
            tell(said)
        show(each, asked[0], verbose=verbose)


@command.command(name="delete")
@groups_named
@EXECUTE
@connected()
@OUTPUT
def delete_groups(
    chosen: ChosenGroups, *, execute: bool, connection: ClusterConnection, output: str
) -> None:
    """Delete each GROUP, which must have no members, and its offsets. Needs --execute."""

    async def deleted(admin: Admin) -> dict[str, str]:
        groups = await chosen.found(admin)
        found = await admin.describe_groups(groups)
        if execute:
            await admin.delete_groups(groups)
            await groups_gone(admin, groups, timeout_ms=connection.timeout_ms)
        return {group_id: found[group_id].state for group_id in groups}

    states = connection.ask(deleted)
    if output == JSON:
        show_json(
            [
                {"group": group_id, "state": state, "deleted": execute}
                for group_id, state in states.items()
            ]
        )
    elif execute:
        names = ", ".join(map(repr, states))
        show_line(f"Deletion of requested consumer groups ({names}) was successful.")
    else:
        show_table(("GROUP", "STATE"), list(states.items()))
    tell_unless_executed(execute=execute)


command.add_command(reset_offsets)
