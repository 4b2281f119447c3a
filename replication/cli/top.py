"""`understudy top`: the state of every partition on the screen, again and again.

    understudy top                                   a live table, until Ctrl-C
    understudy top orders --under-replicated-partitions
    understudy top --once --output json | jq ...     the state once, with epochs and sizes

    2 of 3 brokers up (1: down) · 6 partitions, 1 under-replicated, 0 without a leader
    metadata: 3001 leads in epoch 4, HW 812 · voters 3001* 3002 3003 (-2) · observers 1 2 3
    metadata: 1 leads in epoch 4, HW 812 · voters 1* 2 3 · observers none · both roles 1 2 3
    PARTITION  LEADER  EPOCH     LEO      HW  LAG  ISR     REPLICAS
    orders-0        2      1   1,204   1,204   14  2 of 3  2* 3 !1
                                                           1: left the ISR: it lacked ...
    orders-1        3      0     980     980    0  3 of 3  3* 1 2

    2*   leads      !1   out of the ISR      (-2)   lacks two records      ?   unknown

It asks any Kafka cluster, over Kafka's protocol (`replication/observe/protocol_source.py`).

Rule 1: there is a row for each partition, and below it the reasons why replicas are not in sync.
Partitions in trouble come first; only as many are shown as fit on the screen. Without a terminal,
each state is written below the one before.

Rule 2: if the cluster does not answer, the last state stays on the screen with the reason. Only the
first read must succeed.
"""

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import click
import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replication.cli.choosing import INTERNAL, PATTERN, TOPICS, Only, WantedTopics, only_some
from replication.cli.connection import ClusterConnection, connected
from replication.cli.output import JSON, show_line, show_table
from replication.client.admin import Admin
from replication.client.errors import KafkaTimeoutError
from replication.errors import KafkaError
from replication.net.clock import TrioClock
from replication.observe.cluster_state import (
    ClusterState,
    ObservedPartition,
    ObservedQuorumNode,
    ObservedReplica,
    Status,
    to_json,
)
from replication.observe.protocol_source import ProtocolSource, QuorumSource
from replication.observe.state_reader import StateReader
from replication.visible import visible_line
from storage.attributes import define

COLUMNS = ("PARTITION", "LEADER", "EPOCH", "LEO", "HW", "LAG", "ISR", "REPLICAS")
_RIGHT = frozenset({"LEADER", "EPOCH", "LEO", "HW", "LAG"})
ANSWER_MS = 1000  # a frozen broker does not delay the others for longer


@click.command(name="top")
@TOPICS
@PATTERN
@only_some
@click.option("--internal", is_flag=True, help="Also show Kafka's own topics.")
@click.option("--once", is_flag=True, help="Show the state once, and end.")
@click.option(
    "--interval",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two reads of the state.",
)
@connected()
def command(
    names: Sequence[str],
    pattern: str | None,
    *,
    only: Only,
    internal: bool,
    once: bool,
    seconds: float,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Show the leader of each partition, how far its replicas are, and why one is not in sync."""
    top = Top(
        connection=connection,
        wanted=WantedTopics(names=tuple(names), pattern=pattern),
        internal=internal,
        only=only,
        seconds=seconds,
        once=once,
        as_json=output == JSON,
    )
    top.run()


@define(eq=False, kw_only=True)
class Top:
    """One run of the command."""

    connection: ClusterConnection
    wanted: WantedTopics
    internal: bool
    only: Only
    seconds: float
    once: bool
    as_json: bool
    _last: ClusterState | None = attrs.field(init=False, default=None)

    def run(self) -> None:
        self.connection.run(trio.run, self._run)

    async def _run(self) -> None:
        timeout_ms = self.connection.timeout_ms
        config = self.connection.config(
            default_api_timeout_ms=timeout_ms, request_timeout_ms=min(timeout_ms, 2 * ANSWER_MS)
        )
        async with Admin(**config) as admin, Admin(**config) as asker:
            source = ProtocolSource(
                admin=admin,
                quorum=QuorumSource(asker, timeout_ms=ANSWER_MS),
                now_ms=TrioClock().now_ms,
                wanted=self._is_wanted,
                in_detail=self.as_json,
                timeout_ms=ANSWER_MS,
            )
            if not self.wanted.all:  # an unknown name raises NotThereError
                await self.connection.unless_refused(lambda: self.wanted.found(admin))
            reader = StateReader(source=source)
            with self._screen() as live:
                await self.connection.unless_refused(lambda: self._read(reader, live))
                while not self.once:
                    await trio.sleep(self.seconds)
                    await self._read(reader, live)

    def _is_wanted(self, topic: str) -> bool:
        hidden = topic in INTERNAL and not self.internal and topic not in self.wanted.names
        return self.wanted.matches(topic) and not hidden

    async def _read(self, reader: StateReader, live: Live | None) -> None:
        trouble = ""
        try:
            self._last = filtered(await reader.read(), self.only)
        except (KafkaError, KafkaTimeoutError) as error:
            if self._last is None:
                raise
            trouble = f"the cluster does not answer: {error}"
        self._show(self._last, trouble, live)

    def _show(self, state: ClusterState, trouble: str, live: Live | None) -> None:
        if self.as_json:
            show_line(to_json(state, indent=2) if self.once else to_json(state))
        elif live is not None:
            drawn = screen(state, height=live.console.height - bool(trouble))
            parts = [Text(visible_line(trouble), style="bold red"), drawn] if trouble else [drawn]
            live.update(Group(*parts), refresh=True)
        else:
            show_line(trouble or summary(state))
            show_line(quorum_line(state))
            show_table((*COLUMNS, "WHY"), plain_rows(state))

    @contextlib.contextmanager
    def _screen(self) -> Iterator[Live | None]:
        console = Console()
        if self.once or self.as_json or not console.is_terminal:
            yield None
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            yield live


def is_shown(partition: ObservedPartition, only: Only) -> bool:
    return (
        not only.some_partitions
        or (only.under_replicated and partition.is_under_replicated)
        or (only.unavailable and partition.is_offline)
        or (only.under_min_isr and (partition.is_offline or partition.is_under_min_isr))
        or (only.at_min_isr and partition.is_at_min_isr)
    )


def filtered(state: ClusterState, only: Only) -> ClusterState:
    """Return `state` without the partitions that `only` leaves out, those in trouble first."""
    shown = [each for each in state.partitions if is_shown(each, only)]
    shown.sort(key=lambda each: (not each.is_in_trouble, each.topic_partition))
    return attrs.evolve(state, partitions=tuple(shown))


def summary(state: ClusterState) -> str:
    up = sum(each.status is Status.UP for each in state.brokers)
    brokers = f"{up} of {len(state.brokers)} brokers up"
    troubled = [each for each in state.brokers if each.status is not Status.UP]
    reasons = "".join(f" ({each.id}: {each.why or each.status})" for each in troubled)
    under = sum(each.is_under_replicated for each in state.partitions)
    offline = sum(each.is_offline for each in state.partitions)
    shown = len(state.partitions)
    count = f"{shown:,}" if shown == state.number_of_partitions else (
        f"{shown:,} of {state.number_of_partitions:,}"
    )  # fmt: skip
    return (
        f"{brokers}{reasons} · {count} partitions, {under:,} under-replicated,"
        f" {offline:,} without a leader"
    )


def quorum_line(state: ClusterState) -> str:
    """Return who leads the metadata log, how many of its records each other node lacks, and who has
    both roles.
    """
    quorum = state.quorum
    if quorum is None or quorum.leader is None or quorum.leader < 0:
        return "metadata: no controller is known to lead"

    def nodes(them: Sequence[ObservedQuorumNode]) -> str:
        return " ".join(map(shown, them)) or "none"

    def shown(node: ObservedQuorumNode) -> str:
        if node.id == quorum.leader:
            return f"{node.id}*"
        lag = quorum.lag(node.id)
        return f"{node.id}{' (?)' if lag is None else f' (-{lag:,})' if lag else ''}"

    both = [str(each) for each, roles in state.roles.items() if len(roles) > 1]
    return (
        f"metadata: {quorum.leader} leads in epoch {_number(quorum.leader_epoch)},"
        f" HW {_number(quorum.high_watermark)} · voters {nodes(quorum.voters)}"
        f" · observers {nodes(quorum.observers)}"
        + (f" · both roles {' '.join(both)}" if both else "")
    )


def plain_rows(state: ClusterState) -> list[tuple[str, ...]]:
    """Return a row for each partition, with its reasons at the end, for a pipe."""
    return [(*_cells(each), "; ".join(_reasons(each)) or "-") for each in state.partitions]


def screen(state: ClusterState, *, height: int) -> RenderableType:
    """Return the screen for a person, of at most `height` lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    room = height - 4
    shown = 0
    for partition in state.partitions:
        lines = 1 + len(_reasons(partition))
        if lines > room and shown:
            break
        room -= lines
        shown += 1
        _add(table, partition)
    left = len(state.partitions) - shown
    more = [Text(f"{left:,} more", style="dim")] if left else []
    return Group(
        Text(visible_line(summary(state)), style="bold"),
        Text(quorum_line(state), style="dim"),
        table,
        *more,
    )


def _add(table: Table, partition: ObservedPartition) -> None:
    style = "red" if partition.is_offline or partition.is_under_min_isr else (
        "yellow" if partition.is_under_replicated else ""
    )  # fmt: skip
    table.add_row(*map(Text, _cells(partition)), style=style)
    for why in _reasons(partition):
        table.add_row(*[""] * (len(COLUMNS) - 1), Text(why, style="dim"))


def _cells(partition: ObservedPartition) -> tuple[str, ...]:
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


def _name(partition: ObservedPartition, replica: ObservedReplica) -> str:
    leads = "*" if replica.broker == partition.leader else ""
    return f"{'' if replica.in_isr else '!'}{replica.broker}{leads}"


def _reasons(partition: ObservedPartition) -> list[str]:
    """Return a reason for each replica that is out of the ISR or behind."""
    troubled = [each for each in partition.replicas if not each.in_isr or each.lag]
    lags = [f" {each.lag:,} behind," if each.lag else "" for each in troubled]
    return [
        visible_line(f"{each.broker}:{lag} {each.why}")
        for each, lag in zip(troubled, lags, strict=True)
    ]


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
