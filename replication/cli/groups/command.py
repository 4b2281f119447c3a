"""The commands, and the tables and JSON that they print."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import attrs
import click
import trio

from replication.cli.groups.positions import Position, assigned, describe
from replication.cli.groups.reset import Target, To, planned, put
from replication.client.admin import Admin
from replication.client.admin.values import GroupDescription

T = TypeVar("T")

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
SERVERS = click.option(
    "--bootstrap-server",
    "servers",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
)
TIMEOUT = click.option(
    "--timeout", "timeout_ms", type=click.IntRange(min=1), default=10_000, show_default=True,
    help="Milliseconds that an answer may take.",
)  # fmt: skip
OUTPUT = click.option("--output", type=click.Choice(["table", "json"]), default="table")
GROUPS = click.argument("groups", nargs=-1, required=True, metavar="GROUP...")


@click.group(name="group")
def command() -> None:
    """Consumer groups, of understudy and of any Kafka cluster."""


@command.command(name="list")
@click.option("--state", "states", multiple=True, help="Only groups in this state, as in Empty.")
@SERVERS
@TIMEOUT
@OUTPUT
def list_groups(states: Sequence[str], servers: str, timeout_ms: int, output: str) -> None:
    """The groups that there are, and what they are at."""
    found = ask(servers, timeout_ms, lambda admin: admin.list_groups(states=states))
    if output == "json":
        show_json([attrs.asdict(each) for each in found])
    else:
        show(("GROUP", "TYPE", "STATE"), [(e.group_id, e.protocol_type, e.state) for e in found])


@command.command(name="describe")
@GROUPS
@click.option("--members", is_flag=True, help="Who is in the group, instead of how far it is.")
@SERVERS
@TIMEOUT
@OUTPUT
def describe_groups(
    groups: Sequence[str], *, members: bool, servers: str, timeout_ms: int, output: str
) -> None:
    """How far each GROUP has read, and who reads."""

    async def all_of_them(admin: Admin) -> list[Any]:
        return [await describe(admin, group_id) for group_id in groups]

    found = ask(servers, timeout_ms, all_of_them)
    if output == "json":
        show_json([as_json(each.group, each.positions) for each in found])
        return
    for each in found:
        if not each.group.members:
            click.echo(f"Consumer group '{each.group.group_id}' has no active members.", err=True)
        if members:
            show(
                ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
                member_rows(each.group),
            )
        else:
            show(POSITION_COLUMNS, [position_row(position) for position in each.positions])


@command.command(name="delete")
@GROUPS
@SERVERS
@TIMEOUT
def delete_groups(groups: Sequence[str], servers: str, timeout_ms: int) -> None:
    """Delete each GROUP and its offsets; nobody may be in it."""
    ask(servers, timeout_ms, lambda admin: admin.delete_groups(groups))
    click.echo(
        f"Deletion of requested consumer groups ({', '.join(map(repr, groups))}) was successful."
    )


@command.command(name="reset-offsets")
@click.argument("group")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="All of it, or some partitions."
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
@click.option(
    "--execute/--dry-run", default=False, show_default="dry-run", help="Do it, or only show it."
)
@SERVERS
@TIMEOUT
@OUTPUT
def reset_offsets(
    group: str,
    topics: Sequence[str],
    *,
    all_topics: bool,
    execute: bool,
    servers: str,
    timeout_ms: int,
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
        return offsets

    offsets = ask(servers, timeout_ms, reset)
    rows = [(group, at.topic, at.partition, offset) for at, offset in offsets.items()]
    if output == "json":
        names = ("group", "topic", "partition", "new_offset")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    if not execute:
        click.echo("Nothing was changed; --execute does it.", err=True)


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


def ask(servers: str, timeout_ms: int, question: Callable[[Admin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Admin(servers, default_api_timeout_ms=timeout_ms) as admin:
            return await question(admin)

    return trio.run(run)


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


def show(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """As wide as what is in them; `-` where there is nothing."""
    table = [columns, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def show_json(found: object) -> None:
    click.echo(json.dumps(found, indent=2))
