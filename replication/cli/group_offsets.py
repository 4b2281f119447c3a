"""`understudy group reset-offsets`: the new offsets of groups without members, and setting them.

`understudy group delete-offsets` deletes the offsets in topics that no member reads.

    earliest  latest          the ends of the log
    offset N                  N
    shift N                   the committed offset plus N
    datetime                  the first record from that time on; the end if there is none
    current                   the committed offset; the end if there is none
    file                      the offset that is given for the partition

An offset outside the log becomes the nearer end of the log. (Kafka: ConsumerGroupCommand.)

    topic,partition,offset           a line of --export and --from-file, for one group
    group,topic,partition,offset     a line for several groups

Rule: the new offsets of all groups are computed before the first group is changed. If one group
cannot be reset, none is.
"""

import csv
import enum
import io
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import attrs
import click

from replication.cli import completion
from replication.cli.choosing import ChosenGroups, groups_named
from replication.cli.connection import ClusterConnection, connected
from replication.cli.options import AT_LEAST_ZERO, FILE
from replication.cli.output import (
    EXECUTE,
    JSON,
    show_json,
    show_line,
    show_table,
    tell_unless_executed,
)
from replication.client.admin import Admin
from replication.client.offsets import OffsetAndMetadata
from replication.errors import ErrorCode, KafkaError
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.attributes import frozen
from storage.types import TopicPartition

WITHOUT_MEMBERS = ("Empty", "Dead")

Offsets: TypeAlias = Mapping[TopicPartition, int]
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class To(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    DATETIME = "datetime"
    CURRENT = "current"
    FILE = "file"


@frozen
class ResetTarget:
    """The rule for the new offsets."""

    to: To
    number: int = 0
    """The offset, the shift, or the time in milliseconds since 1970."""
    offsets: Offsets = attrs.field(factory=dict)
    """The offset of each partition, if it comes from a file."""


async def partitions_named(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `topic` (all) or of `topic:0,2` (these)."""
    found: set[TopicPartition] = set()
    for text in topics:
        topic, colon, numbers = text.rpartition(":")
        if not colon:
            described = (await admin.describe_topics([text]))[text]
            found |= {TopicPartition(text, each.partition) for each in described.partitions}
            continue
        found |= {TopicPartition(topic, int(number)) for number in numbers.split(",")}
    return sorted(found)


async def planned(
    admin: Admin, group_id: str, topics: Sequence[str] | None, target: ResetTarget
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition of `topics`, or of all with a committed offset.

    Raise KafkaError if the group has members.
    """
    await _check_has_no_members(admin, group_id)
    committed = await admin.list_group_offsets(group_id)
    wanted = sorted(target.offsets or committed)
    if topics is not None:
        wanted = await partitions_named(admin, topics)
    first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
    last = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
    at: Mapping[TopicPartition, int] = {}
    if target.to is To.DATETIME:
        listed = await admin.list_offsets(dict.fromkeys(wanted, target.number))
        at = {partition: each.offset for partition, each in listed.items() if each.offset >= 0}
    return {
        each: new_offset(
            each,
            target,
            begin=first[each].offset,
            end=last[each].offset,
            current=committed[each].offset if each in committed else None,
            at_time=at.get(each),
        )
        for each in wanted
    }


def new_offset(
    partition: TopicPartition,
    target: ResetTarget,
    *,
    begin: int,
    end: int,
    current: int | None,
    at_time: int | None,
) -> int:
    match target.to:
        case To.EARLIEST:
            return begin
        case To.LATEST:
            return end
        case To.OFFSET:
            wanted = target.number
        case To.SHIFT:
            if current is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{partition} has no committed offset to shift"
                )
            wanted = current + target.number
        case To.DATETIME:
            wanted = end if at_time is None else at_time
        case To.CURRENT:
            wanted = end if current is None else current
        case To.FILE:
            wanted = target.offsets[partition]
        case other:
            assert_never(other)
    return min(max(wanted, begin), end)


async def set_offsets(admin: Admin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    await admin.alter_group_offsets(
        group_id, {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    )


async def check_offsets(admin: Admin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Read the committed offsets back; raise KafkaError if they are not `offsets`."""
    committed = await admin.list_group_offsets(group_id, offsets)
    for partition, offset in offsets.items():
        found = committed.get(partition)
        if found is None or found.offset != offset:
            there = "nothing" if found is None else found.offset
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{group_id} was set to {offset} of {partition}, but {there} is committed",
            )


async def _check_has_no_members(admin: Admin, group_id: str) -> None:
    try:
        state = (await admin.describe_groups([group_id]))[group_id].state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # these offsets create the group
    if state not in WITHOUT_MEMBERS:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"offsets can only be reset while group {group_id} has no members; it is {state}",
        )


@click.command(name="reset-offsets")
@groups_named
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=completion.topics,
    metavar="TOPIC[:0,1]",
    help="Reset a topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Reset all partitions with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="Reset to the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="Reset to the end of the log.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Reset to the committed offset, or to the end if there is none.",
)
@click.option("--to-offset", type=AT_LEAST_ZERO, help="Reset to this offset.")
@click.option(
    "--shift-by", type=int, help="Move by this many offsets forward; backward if negative."
)
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss.sss",
    help="Reset to the first record from this time on; without a zone it is UTC.",
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="Reset to the first record of the last PnDTnHnMnS, such as PT1H30M.",
)
@click.option(
    "--from-file", type=FILE, help="Reset to the offsets in this file, which --export has written."
)
@click.option("--export", is_flag=True, help="Print the new offsets as CSV, for --from-file.")
@EXECUTE
@connected()
def reset_offsets(
    chosen: ChosenGroups,
    topics: Sequence[str],
    *,
    all_topics: bool,
    from_file: Path | None,
    export: bool,
    execute: bool,
    connection: ClusterConnection,
    output: str,
    **where: Any,
) -> None:
    """Reset the offsets of each GROUP, which must have no members."""
    if export and output == JSON:
        raise click.UsageError("--export and --output json exclude each other")
    if from_file is not None and (topics or all_topics):
        raise click.UsageError("--from-file excludes --topic and --all-topics")
    if from_file is None and bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    for each in topics:
        check_topic(each)
    target = target_of({**where, "from_file": from_file})
    text = None if from_file is None else from_file.read_text(encoding="utf-8")

    async def reset(admin: Admin) -> dict[str, Offsets]:
        groups = await chosen.found(admin)
        targets = dict.fromkeys(groups, target)
        if text is not None:
            given = from_csv(text, groups)
            targets = {each: ResetTarget(To.FILE, offsets=given[each]) for each in groups}
        plans: dict[str, Offsets] = {}
        for each in groups:
            plans[each] = await planned(admin, each, topics or None, targets[each])
        if execute:
            for group, offsets in plans.items():
                await set_offsets(admin, group, offsets)
                await check_offsets(admin, group, offsets)
        return plans

    _show(connection.ask(reset), output, export=export)
    tell_unless_executed(execute=execute)


@click.command(name="delete-offsets")
@groups_named
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    shell_complete=completion.topics,
    metavar="TOPIC[:0,1]",
    help="Delete the offsets in a topic, or in some of its partitions; may be repeated.",
)
@EXECUTE
@connected()
def delete_offsets(
    chosen: ChosenGroups,
    topics: Sequence[str],
    *,
    execute: bool,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Delete the offsets of each GROUP in topics that no member subscribes to."""
    for each in topics:
        check_topic(each)

    async def deleted(admin: Admin) -> list[tuple[str, str, int, int | None]]:
        groups = await chosen.found(admin)
        await admin.describe_groups(groups)  # for the error if a group does not exist
        partitions = await partitions_named(admin, topics)
        committed = {each: await admin.list_group_offsets(each, partitions) for each in groups}
        if execute:
            for each in groups:
                await admin.delete_group_offsets(each, partitions)
        return [
            (group, *at, offsets[at].offset if at in offsets else None)
            for group, offsets in committed.items()
            for at in partitions
        ]

    rows = connection.ask(deleted)
    if output == JSON:
        names = ("group", "topic", "partition", "current_offset")
        show_json([dict(zip(names, row, strict=True)) | {"deleted": execute} for row in rows])
    else:
        show_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"), rows)
    tell_unless_executed(execute=execute)


def _show(plans: Mapping[str, Offsets], output: str, *, export: bool) -> None:
    rows = [
        (group, at.topic, at.partition, offset)
        for group, offsets in plans.items()
        for at, offset in offsets.items()
    ]
    if export:
        for line in to_csv(rows, groups=len(plans)):
            show_line(line)
    elif output == JSON:
        names = ("group", "topic", "partition", "new_offset")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


def to_csv(rows: Sequence[tuple[str, str, int, int]], *, groups: int) -> list[str]:
    """Return the rows as CSV, without the group if there is only one."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(row[1:] if groups == 1 else row for row in rows)
    return text.getvalue().splitlines()


def from_csv(text: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the offsets of `groups` in a file of --export.

    Raise UsageError for a line that is not one of --export, and for a group without a line.
    """
    found: dict[str, dict[TopicPartition, int]] = {each: {} for each in groups}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        match row:
            case []:
                continue
            case [topic, partition, offset] if len(groups) == 1:
                group = groups[0]
            case [group, topic, partition, offset]:
                pass
            case _:
                raise click.UsageError(
                    f"--from-file, line {number}: {','.join(row)} is not an offset"
                )
        if not (partition.isdecimal() and offset.isdecimal()):
            raise click.UsageError(f"--from-file, line {number}: {','.join(row)} is not an offset")
        if group in found:
            found[group][TopicPartition(topic, int(partition))] = int(offset)
    if without := [each for each, offsets in found.items() if not offsets]:
        raise click.UsageError(f"--from-file: it has no offset of {', '.join(without)}")
    return dict(found)


def check_topic(text: str) -> None:
    _, colon, numbers = text.rpartition(":")
    if colon and not all(number.isdecimal() for number in numbers.split(",")):
        raise click.UsageError(f"--topic {text}: partitions are numbers, as in orders:0,1")


def target_of(where: dict[str, Any]) -> ResetTarget:
    """Return the target that the options give; raise UsageError unless there is exactly one."""
    given = {
        name: value for name, value in where.items() if value is not None and value is not False
    }
    if len(given) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by,"
            " --to-datetime, --by-duration and --from-file"
        )
    ((name, value),) = given.items()
    match name:
        case "from_file":
            return ResetTarget(To.FILE)
        case "by_duration":
            return ResetTarget(To.DATETIME, int(time.time() * 1000) - duration_ms(value))
        case "to_datetime":
            return ResetTarget(To.DATETIME, milliseconds(value))
        case "shift_by":
            return ResetTarget(To.SHIFT, value)
        case _:
            return ResetTarget(To(name.removeprefix("to_")), 0 if value is True else value)


def milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--to-datetime {text}: {error}") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration of days and smaller units."""
    form = _DURATION.fullmatch(text)
    if form is None or not any(form[unit] for unit in _MS):
        raise click.UsageError(f"--by-duration {text}: expected one like P2DT3H4M5S")
    total = sum(float(form[unit] or 0) * each for unit, each in _MS.items())
    return int(-total if form["sign"] == "-" else total)
