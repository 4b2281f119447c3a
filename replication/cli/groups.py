"""`understudy group`: consumer groups of any Kafka cluster, as in kafka-consumer-groups.sh.

    --offsets    a row for each partition: the group's offset and lag
    --members    a row for each member
    --state      a row for each group: its coordinator and its assignment strategy

There is a row of offsets for each partition with a committed offset or an assigned member, and one
for each member without partitions. --verbose adds columns: the epochs, assignments and targets of a
consumer group (KIP-848), which a classic group does not have.
"""

import enum
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import assert_never

import attrs
import click

from replication.cli import CommandGroup
from replication.cli.choosing import ChosenGroups, groups_named
from replication.cli.connection import ClusterConnection, connected, wait_until_groups_gone
from replication.cli.group_offsets import delete_offsets, reset_offsets
from replication.cli.output import (
    EXECUTE,
    JSON,
    show_json,
    show_line,
    show_table,
    tell,
    tell_unless_executed,
)
from replication.client.admin import Admin
from replication.client.admin.values import GroupDescription, GroupMember
from replication.client.offsets import OffsetAndMetadata
from replication.errors import KafkaError
from replication.wire.list_groups import CLASSIC, CONSUMER
from replication.wire.list_offsets import LATEST
from storage.attributes import frozen
from storage.types import NO_LEADER_EPOCH, TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@frozen(kw_only=True)
class GroupPosition:
    """The position of a group in one partition; None means unknown or absent."""

    group: str
    topic: str | None = None
    partition: int | None = None
    leader_epoch: int | None = None
    """The leader epoch of the record before the offset, if the committer knew it."""
    current_offset: int | None = None
    log_end_offset: int | None = None
    reader: GroupMember | None = None

    @property
    def lag(self) -> int | None:
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset


@frozen
class GroupPositions:
    """A group, and its position in each partition."""

    group: GroupDescription
    positions: tuple[GroupPosition, ...]


async def describe(admin: Admin, group_id: str) -> GroupPositions:
    """Return a group and its positions; raise KafkaError if there is no such group."""
    group = (await admin.describe_groups([group_id]))[group_id]
    committed = await admin.list_group_offsets(group_id)
    readers = {partition: member for member in group.members for partition in member.partitions}
    partitions = sorted({*committed, *readers})
    ends = await log_ends(admin, partitions)
    positions = [
        GroupPosition(
            group=group_id,
            topic=each.topic,
            partition=each.partition,
            leader_epoch=_epoch(committed.get(each)),
            current_offset=committed[each].offset if each in committed else None,
            log_end_offset=ends.get(each),
            reader=readers.get(each),
        )
        for each in partitions
    ]
    idle = [member for member in group.members if member not in readers.values()]
    positions += [GroupPosition(group=group_id, reader=member) for member in idle]
    return GroupPositions(group, tuple(positions))


def _epoch(committed: OffsetAndMetadata | None) -> int | None:
    if committed is None or committed.leader_epoch == NO_LEADER_EPOCH:
        return None
    return committed.leader_epoch


async def log_ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets of the partitions that exist and have a leader."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    found: dict[TopicPartition, int] = {}
    for wanted in by_topic.values():
        try:
            listed = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
        except KafkaError:
            continue  # a deleted topic must not hide the others
        found |= {partition: each.offset for partition, each in listed.items()}
    return found


class About(enum.Enum):
    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"


def remark(group: GroupDescription) -> str:
    """Return a remark for above the rows of a group; often empty."""
    if not group.members:
        return f"Consumer group '{group.group_id}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return ""


def show(described: GroupPositions, about: About, *, verbose: bool) -> None:
    match about:
        case About.OFFSETS:
            _show_offsets(described.positions, verbose=verbose)
        case About.MEMBERS:
            _show_members(described.group, verbose=verbose)
        case About.STATE:
            _show_state(described.group, verbose=verbose)
        case other:
            assert_never(other)


def _show_offsets(positions: Sequence[GroupPosition], *, verbose: bool) -> None:
    epoch = ("LEADER-EPOCH",) if verbose else ()
    columns = ("GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    rows = [
        (
            each.group,
            each.topic,
            each.partition,
            *((each.leader_epoch,) if verbose else ()),
            each.current_offset,
            each.log_end_offset,
            each.lag,
            *_reader(each.reader),
        )
        for each in positions
    ]
    show_table((*columns, "CONSUMER-ID", "HOST", "CLIENT-ID"), rows)


def _reader(member: GroupMember | None) -> tuple[str | None, str | None, str | None]:
    return (member.member_id, member.host, member.client_id) if member else (None, None, None)


def _show_members(group: GroupDescription, *, verbose: bool) -> None:
    is_static = any(each.group_instance_id for each in group.members)
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if is_static:
        columns.insert(2, "GROUP-INSTANCE-ID")
    if verbose:
        columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    is_migrating = {True, False} <= {each.upgraded for each in group.members}
    if verbose and is_migrating:
        columns.append("UPGRADED")
    rows: list[list[object]] = []
    for each in group.members:
        instance = [each.group_instance_id or None] if is_static else []
        row: list[object] = [group.group_id, each.member_id, *instance, each.host, each.client_id]
        row.append(len(each.partitions))
        if verbose:
            row += [each.member_epoch, listed(each.partitions)]
            row += [group.target_assignment_epoch, listed(each.target_partitions or ())]
            row += [str(each.upgraded).lower()] if is_migrating else []
        rows.append(row)
    show_table(columns, rows)


def listed(partitions: Sequence[TopicPartition]) -> str | None:
    """Return the partitions as `orders:0,1;payments:2`; None if there are none."""
    by_topic = groupby(sorted(partitions), key=lambda each: each.topic)
    return (
        ";".join(
            f"{topic}:{','.join(str(each.partition) for each in own)}" for topic, own in by_topic
        )
        or None
    )


def _show_state(group: GroupDescription, *, verbose: bool) -> None:
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    columns += ["#MEMBERS", "TYPE"] if verbose else ["#MEMBERS"]
    by = group.coordinator
    row: list[object] = [
        group.group_id,
        None if by is None else f"{by.host}:{by.port}  ({by.id})",
        group.protocol or None,
        group.state,
    ]
    row += [group.group_epoch, group.target_assignment_epoch] if verbose else []
    row += [len(group.members), group.type.capitalize()] if verbose else [len(group.members)]
    show_table(columns, [row])


def as_json(described: GroupPositions) -> dict[str, object]:
    """Return everything about a group, as JSON."""
    group, by = described.group, described.group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.target_assignment_epoch,
        "coordinator": None if by is None else {"id": by.id, "host": by.host, "port": by.port},
        "assignment_strategy": group.protocol,
        "members": [
            {
                "consumer_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "host": each.host,
                "client_id": each.client_id,
                "member_epoch": each.member_epoch,
                "upgraded": each.upgraded,
                "partitions": _as_lists(each.partitions),
                "target_partitions": _as_lists(each.target_partitions),
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "leader_epoch": each.leader_epoch,
                "current_offset": each.current_offset,
                "log_end_offset": each.log_end_offset,
                "lag": each.lag,
                "consumer_id": each.reader.member_id if each.reader else None,
            }
            for each in described.positions
        ],
    }


def _as_lists(partitions: Sequence[TopicPartition] | None) -> list[list[str | int]] | None:
    return None if partitions is None else [list(each) for each in partitions]


@click.group(name="group", cls=CommandGroup)
def command() -> None:
    """List, describe, reset and delete consumer groups of any Kafka cluster."""


def separated(texts: Iterable[str]) -> list[str]:
    """Return the words of options that take several, separated by commas."""
    return [word.strip() for each in texts for word in each.split(",")]


def group_types(_: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[str]:
    """Return the types of groups that are named; they are case-insensitive, as in Kafka."""
    types = [each.lower() for each in separated(texts)]
    if unknown := [each for each in types if each not in (CLASSIC, CONSUMER)]:
        raise click.BadParameter(f"{unknown[0]}: expected classic or consumer", param=option)
    return types


@command.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    help="List only groups in these states, such as Empty,Stable.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    callback=group_types,
    metavar="TYPE",
    help="List only groups of these types: classic, consumer, or both with a comma.",
)
@connected()
def list_groups(
    states: Sequence[str], types: Sequence[str], connection: ClusterConnection, output: str
) -> None:
    """List the groups, with their types, protocol types and states."""
    wanted = separated(states)
    found = connection.ask(lambda admin: admin.list_groups(states=wanted, types=types))
    if output == JSON:
        show_json([attrs.asdict(each) for each in found])
    else:
        show_table(
            ("GROUP", "TYPE", "PROTOCOL", "STATE"),
            [
                (e.group_id, e.type.capitalize() or None, e.protocol_type or None, e.state)
                for e in found
            ],
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
        if note := remark(each.group):
            tell(note)
        show(each, asked[0], verbose=verbose)


@command.command(name="delete")
@groups_named
@EXECUTE
@connected()
def delete_groups(
    chosen: ChosenGroups, *, execute: bool, connection: ClusterConnection, output: str
) -> None:
    """Delete each GROUP and its offsets. It must have no members. Without --execute, only show it."""

    async def deleted(admin: Admin) -> dict[str, str]:
        groups = await chosen.found(admin)
        found = await admin.describe_groups(groups)
        if execute:
            await admin.delete_groups(groups)
            await wait_until_groups_gone(admin, groups, timeout_ms=connection.timeout_ms)
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
command.add_command(delete_offsets)
