"""What `understudy top` shows: a row for each partition, and below it why a replica is not in sync.

    2 of 3 brokers up (1: down) · 6 partitions, 1 under-replicated, 0 without a leader
    PARTITION  LEADER  EPOCH     LEO      HW  LAG  ISR     REPLICAS
    orders-0        2      1   1,204   1,204   14  2 of 3  2* 3 !1
                                                           1: left the ISR: it lacked ...
    orders-1        3      0     980     980    0  3 of 3  3* 1 2

    2*   leads           !1   out of the ISR          ?   unknown

Those in trouble stand first; a screen holds no more than it is high.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replication.cli.topics.choosing import Only
from replication.observe.cluster_state import ClusterState, PartitionState, ReplicaState, Status
from replication.visible import visible_line

COLUMNS = ("PARTITION", "LEADER", "EPOCH", "LEO", "HW", "LAG", "ISR", "REPLICAS")
_RIGHT = frozenset({"LEADER", "EPOCH", "LEO", "HW", "LAG"})


def is_shown(partition: PartitionState, only: Only) -> bool:
    return (
        not only.some_partitions
        or (only.under_replicated and partition.is_under_replicated)
        or (only.unavailable and partition.is_offline)
        or (only.under_min_isr and (partition.is_offline or partition.is_under_min_isr))
        or (only.at_min_isr and partition.is_at_min_isr)
    )


def of_interest(state: ClusterState, only: Only) -> ClusterState:
    """Without the partitions that `only` leaves out, those in trouble first."""
    shown = [each for each in state.partitions if is_shown(each, only)]
    shown.sort(key=lambda each: (not each.is_in_trouble, each.topic_partition))
    return attrs.evolve(state, partitions=tuple(shown))


def summary(state: ClusterState) -> str:
    up = sum(each.status is Status.UP for each in state.brokers)
    brokers = f"{up} of {len(state.brokers)} brokers up"
    troubled = [each for each in state.brokers if each.status is not Status.UP]
    told = "".join(f" ({each.id}: {each.why or each.status})" for each in troubled)
    under = sum(each.is_under_replicated for each in state.partitions)
    offline = sum(each.is_offline for each in state.partitions)
    shown = len(state.partitions)
    count = f"{shown:,}" if shown == state.number_of_partitions else (
        f"{shown:,} of {state.number_of_partitions:,}"
    )  # fmt: skip
    return (
        f"{brokers}{told} · {count} partitions, {under:,} under-replicated,"
        f" {offline:,} without a leader"
    )


def plain_rows(state: ClusterState) -> list[tuple[str, ...]]:
    """For a pipe: a row for each partition, with why at its end."""
    return [(*_cells(each), "; ".join(_whys(each)) or "-") for each in state.partitions]


def screen(state: ClusterState, *, height: int) -> RenderableType:
    """For a person: at most `height` lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    room = height - 3
    shown = 0
    for partition in state.partitions:
        lines = 1 + len(_whys(partition))
        if lines > room and shown:
            break
        room -= lines
        shown += 1
        _add(table, partition)
    left = len(state.partitions) - shown
    more = [Text(f"{left:,} more", style="dim")] if left else []
    return Group(Text(visible_line(summary(state)), style="bold"), table, *more)


def _add(table: Table, partition: PartitionState) -> None:
    style = "red" if partition.is_offline or partition.is_under_min_isr else (
        "yellow" if partition.is_under_replicated else ""
    )  # fmt: skip
    table.add_row(*map(Text, _cells(partition)), style=style)
    for why in _whys(partition):
        table.add_row(*[""] * (len(COLUMNS) - 1), Text(why, style="dim"))


def _cells(partition: PartitionState) -> tuple[str, ...]:
    leads = partition.replica(partition.leader)
    return (
        visible_line(str(partition.topic_partition)),
        "none" if partition.leader is None else str(partition.leader),
        _number(partition.leader_epoch),
        _number(None if leads is None else leads.log_end_offset),
        _number(None if leads is None else leads.high_watermark),
        _number(partition.lag),
        f"{len(partition.isr)} of {len(partition.replicas)}",
        " ".join(_name(partition, each) for each in partition.replicas),
    )


def _name(partition: PartitionState, replica: ReplicaState) -> str:
    leads = "*" if replica.broker == partition.leader else ""
    return f"{'' if replica.in_isr else '!'}{replica.broker}{leads}"


def _whys(partition: PartitionState) -> list[str]:
    """Of each replica that is out, or in and behind."""
    return list(_told(each for each in partition.replicas if not each.in_isr or each.lag))


def _told(replicas: Iterable[ReplicaState]) -> Iterator[str]:
    for each in replicas:
        lag = "" if not each.lag else f" {each.lag:,} behind,"
        yield visible_line(f"{each.broker}:{lag} {each.why}")


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def columns() -> Sequence[str]:
    """Of `plain_rows`."""
    return (*COLUMNS, "WHY")
