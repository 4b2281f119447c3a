"""Tables and JSON of groups: their offsets, their members or their states.

    --offsets    a row for each partition: the group's offset and lag
    --members    a row for each member
    --state      a row for each group: its coordinator and its assignment strategy

--verbose adds columns. The epochs of KIP-848 are empty, because there are no such groups here.
"""

import enum
from collections.abc import Sequence
from itertools import groupby
from typing import assert_never

from replication.cli.groups.positions import GroupPosition, GroupPositions, assigned
from replication.cli.output import show_table
from replication.client.admin.values import GroupDescription, GroupMember
from storage.types import TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance")


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
    rows = []
    for each in group.members:
        partitions = assigned(group, each)
        instance = [each.group_instance_id or None] if is_static else []
        row = [group.group_id, each.member_id, *instance, each.host, each.client_id]
        rows.append(
            [*row, len(partitions), *([None, listed(partitions), None, None] if verbose else [])]
        )
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
    by = group.coordinator
    row = [
        group.group_id,
        None if by is None else f"{by.host}:{by.port}  ({by.id})",
        group.protocol or None,
        group.state,
        *([None, None] if verbose else []),
    ]
    show_table([*columns, "#MEMBERS"], [[*row, len(group.members)]])


def as_json(described: GroupPositions) -> dict[str, object]:
    """Return everything about a group, as JSON."""
    group, by = described.group, described.group.coordinator
    return {
        "group": group.group_id,
        "state": group.state,
        "coordinator": None if by is None else {"id": by.id, "host": by.host, "port": by.port},
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
                "leader_epoch": each.leader_epoch,
                "current_offset": each.current_offset,
                "log_end_offset": each.log_end_offset,
                "lag": each.lag,
                "consumer_id": each.reader.member_id if each.reader else None,
            }
            for each in described.positions
        ],
    }
