"""The commands, and the tables and JSON that they print."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import click

from replication.cli import completion
from replication.cli.connection import Connection, connected
from replication.cli.groups.positions import Position, assigned, describe
from replication.cli.groups.reset import Target, To, check_put, planned, put
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
from replication.client.admin.values import GroupDescription

POSITION_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
GROUPS = click.argument(
    "groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=completion.groups
)


@click.group(name="group")
def command() -> None:
    """Consumer groups, of understudy and of any Kafka cluster."""


@command.command(name="list")
@click.option("--state", "states", multiple=True, help="Only groups in this state, as in Empty.")
@connected()
@OUTPUT
def list_groups(states: Sequence[str], connection: Connection, output: str) -> None:
    """The groups that there are, and what they are at."""
    found = connection.ask(lambda admin: admin.list_groups(states=states))
    if output == JSON:
        show_json([attrs.asdict(each) for each in found])
    else:
        show_table(
            ("GROUP", "TYPE", "STATE"), [(e.group_id, e.protocol_type, e.state) for e in found]
        )


@command.command(name="describe")
@GROUPS
@click.option("--members", is_flag=True, help="Who is in the group, instead of how far it is.")
@connected()
@OUTPUT
def describe_groups(
    groups: Sequence[str], *, members: bool, connection: Connection, output: str
) -> None:
    """How far each GROUP has read, and who reads."""

    async def all_of_them(admin: Admin) -> list[Any]:
        return [await describe(admin, group_id) for group_id in groups]

    found = connection.ask(all_of_them)
    if output == JSON:
        show_json([as_json(each.group, each.positions) for each in found])
        return
    for each in found:
        if not each.group.members:
            tell(f"Consumer group '{each.group.group_id}' has no active members.")
        if members:
            show_table(
                ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
                member_rows(each.group),
            )
        else:
            show_table(POSITION_COLUMNS, [position_row(position) for position in each.positions])


@command.command(name="delete")
@GROUPS
@EXECUTE
@connected()
@OUTPUT
def delete_groups(
    groups: Sequence[str], *, execute: bool, connection: Connection, output: str
) -> None:
    """Delete each GROUP and its offsets; nobody may be in it. Done with --execute."""

    async def deleted(admin: Admin) -> list[str]:
        """Their states before."""
        found = await admin.describe_groups(groups)
        if execute:
            await admin.delete_groups(groups)
            await groups_gone(admin, groups, timeout_ms=connection.timeout_ms)
        return [found[group_id].state for group_id in groups]

    states = connection.ask(deleted)
    if output == JSON:
        show_json(
            [
                {"group": group_id, "state": state, "deleted": execute}
                for group_id, state in zip(groups, states, strict=True)
            ]
        )
    elif execute:
        names = ", ".join(map(repr, groups))
        show_line(f"Deletion of requested consumer groups ({names}) was successful.")
    else:
        show_table(("GROUP", "STATE"), list(zip(groups, states, strict=True)))
    tell_unless_executed(execute=execute)


@command.command(name="reset-offsets")
@click.argument("group", shell_complete=completion.groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=completion.topics,
    metavar="TOPIC[:0,1]",
    help="All of it, or some partitions.",
)
@click.option("--all-topics", is_flag=True, help="All partitions that the group has an offset of.")
@click.option("--to-earliest", is_flag=True, help="To the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="To its end.")
@click.option("--to-current", is_flag=True, help="To where the group is, or the end.")
@click.option("--to-offset", type=click.IntRange(min=0))
@click.option("--shift-by", type=int, help="So many records on, or back where it is below 0.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss.sss",
    help="To the first record from then on; UTC where no zone is given.",
)
@EXECUTE
@connected()
@OUTPUT
def reset_offsets(
    group: str,
    topics: Sequence[str],
    *,
    all_topics: bool,
    execute: bool,
    connection: Connection,
    output: str,
    **where: Any,
) -> None:
    """Where GROUP begins to read anew; nobody may be in it."""
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    for each in topics:
        check_topic(each)
    target = target_of(where)

    async def reset(admin: Admin) -> dict[Any, int]:
        offsets = await planned(admin, group, topics or None, target)
        if execute:
            await put(admin, group, offsets)
            await check_put(admin, group, offsets)
        return offsets

    offsets = connection.ask(reset)
    rows = [(group, at.topic, at.partition, offset) for at, offset in offsets.items()]
    if output == JSON:
        names = ("group", "topic", "partition", "new_offset")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    tell_unless_executed(execute=execute)


def check_topic(text: str) -> None:
    _, colon, numbers = text.rpartition(":")
    if colon and not all(number.isdecimal() for number in numbers.split(",")):
        raise click.UsageError(f"--topic {text}: partitions are numbers, as in orders:0,1")


def target_of(where: dict[str, Any]) -> Target:
    """The one that was given."""
    given = {
        name: value for name, value in where.items() if value is not None and value is not False
    }
    if len(given) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by and"
            " --to-datetime"
        )
    ((name, value),) = given.items()
    to = To(name.removeprefix("to_").removesuffix("_by"))
    if to is To.DATETIME:
        value = milliseconds(value)
    return Target(to, 0 if value is True else value)


def milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--to-datetime {text}: {error}") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def position_row(position: Position) -> tuple[object, ...]:
    reader = position.reader
    return (
        position.group,
        position.topic,
        position.partition,
        position.current_offset,
        position.log_end_offset,
        position.lag,
        *((reader.member_id, reader.host, reader.client_id) if reader else (None, None, None)),
    )


def member_rows(group: GroupDescription) -> list[tuple[object, ...]]:
    return [
        (group.group_id, each.member_id, each.host, each.client_id, len(assigned(group, each)))
        for each in group.members
    ]


def as_json(group: GroupDescription, positions: Sequence[Position]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "assignment_strategy": group.protocol,
        "members": [
            {
                "consumer_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "host": each.host,
                "client_id": each.client_id,
                "partitions": [list(partition) for partition in assigned(group, each)],
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "current_offset": each.current_offset,
                "log_end_offset": each.log_end_offset,
                "lag": each.lag,
                "consumer_id": each.reader.member_id if each.reader else None,
            }
            for each in positions
        ],
    }
