"""The order of events of the demo, and its report: the ledger, the failover and the replicas.

    1  three brokers and a controller, a process each; a topic on all three
    2  produce line after line
    3  at `KILL_AT` of the work, with records in flight: SIGKILL to the victim
    4  go on; when a write to a partition that it led has been acked, start it again
    5  when every replica is in sync, read everything back; shut down
    6  verify the three data directories; audit them on Spark where there is Java

The failover is shown as the nodes themselves saw it, from their event journals:

    killed               the demo sent SIGKILL
    fenced               the controller ended the victim's session
    elected              every partition that the victim led has another leader
    first write acked    the client has an ack on a partition that the victim led
    started again        the demo started the victim
    rejoined the ISR     the victim is in sync on every partition

Times are wall-clock milliseconds: the nodes are processes of one machine.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from replication.broker.nodes import CONTROLLER_ID, HOST
from replication.cli.demo_workload import DemoWorkload, LedgerVerdict, create_topic, read_back
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from replication.errors import UnderstudyError
from replication.events import BrokerFenced, IsrChanged, LeaderElected
from replication.observe.journal import JournalEntry, read_journal
from replication.verify import Comparison, Same
from replication.wire.metadata import NO_LEADER, MetadataResponsePartition
from storage.attributes import define, frozen

TOPIC = "demo"
PARTITIONS = 3
REPLICATION_FACTOR = 3
KILL_AT = 0.45  # of the lines: more than a third is still to come
RESTART_AFTER_SECONDS = 1.0  # after the first ack of a new leader
IN_SYNC_TIMEOUT_SECONDS = 60.0
# The failover should be seen within a minute: Kafka fences a broker after nine seconds by default.
CONFIG = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "default.replication.factor": "3",
}


@frozen
class FailoverMoment:
    """One line of the timeline; `at_ms` is None if it never happened."""

    what: str
    at_ms: int | None
    detail: str = ""


@frozen
class DemoFailover:
    """The actions of the demo and their times; the controller's journal has the rest."""

    victim: int
    topic: str
    led_partitions: frozenset[int]
    killed_ms: int
    acked_ms: list[int]  # acks on a partition that the victim led, from the kill to its return
    restarted_ms: int


def timeline(failover: DemoFailover, *, controller: Path) -> list[FailoverMoment]:
    """Return the moments above in order of time; those that never happened come last."""
    journal = read_journal(controller.read_bytes())
    entries = [entry for entry in journal.entries if entry.at_ms >= failover.killed_ms]
    elected_ms = _all_elected(entries, failover)
    # An ack that was on its way when the leader died is not from the new leader.
    acked_ms = next((at for at in failover.acked_ms if elected_ms and at >= elected_ms), None)
    moments = [
        FailoverMoment("killed", failover.killed_ms, f"broker {failover.victim}, SIGKILL"),
        FailoverMoment("fenced", _fenced(entries, failover), "its session timed out"),
        FailoverMoment("elected", elected_ms, _partitions_led(failover)),
        FailoverMoment("first write acked", acked_ms, "on a partition that it led"),
        FailoverMoment("started again", failover.restarted_ms),
        FailoverMoment(
            "rejoined the ISR", _rejoined(entries, failover), "in sync on every partition"
        ),
    ]
    return sorted(moments, key=lambda moment: moment.at_ms or 1 << 62)


def _partitions_led(failover: DemoFailover) -> str:
    led = sorted(failover.led_partitions)
    return (
        f"other leaders for {failover.topic} {', '.join(map(str, led))}" if led else "it led none"
    )


def _fenced(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    for entry in entries:
        if isinstance(entry.event, BrokerFenced) and entry.event.broker == failover.victim:
            return entry.at_ms
    return None


def _all_elected(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    """Return when the last partition that the victim led had another leader."""
    waiting = set(failover.led_partitions)
    for entry in entries:
        event = entry.event
        if isinstance(event, LeaderElected) and event.leader not in (-1, failover.victim):
            if event.partition.topic == failover.topic:
                waiting.discard(event.partition.partition)
            if not waiting:
                return entry.at_ms
    return None


def _rejoined(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    """Return when the victim was back in the ISR of the last partition that it had left."""
    out: set[int] = set()
    for entry in entries:
        event = entry.event
        if not isinstance(event, IsrChanged) or event.partition.topic != failover.topic:
            continue
        if failover.victim not in event.isr:
            out.add(event.partition.partition)
        elif event.partition.partition in out:
            out.remove(event.partition.partition)
            if not out:
                return entry.at_ms
    return None


class DemoError(UnderstudyError):
    """The demo could not go on; the message says why."""


@frozen
class DemoProgress:
    """The progress on the console: a line for each step, and a bar for the records."""

    bars: Progress
    task: TaskID

    @classmethod
    def on(cls, console: Console, *, lines: int) -> "DemoProgress":
        """Return a progress whose bar disappears when the demo ends."""
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("lines  {task.description}"))
        bars = Progress(*columns, console=console, transient=True)
        return cls(bars, bars.add_task("", total=lines))

    def step(self, what: str) -> None:
        self.bars.console.print(f"  {what}", highlight=False)
        self.bars.update(self.task, description=what)

    def sent(self, done: int) -> None:
        """Show that `done` lines have been handed to the client."""
        self.bars.update(self.task, completed=done)


@frozen
class DemoOutcome:
    """The result of the demo."""

    victim: int
    in_flight_at_kill: int
    to_come_at_kill: float
    verdict: LedgerVerdict
    altered: int
    client_errors: dict[str, int]
    moments: list[FailoverMoment]
    log_dirs: list[Path]


@define
class Demo:
    """One run over `lines`; if `victim` is None, it kills the leader of partition 0."""

    cluster: IsolatedCluster
    lines: list[bytes]
    victim: int | None
    progress: DemoProgress
    _led: frozenset[int] = frozenset()
    _killed_at: float | None = None
    _restarted_at: float | None = None
    _failed_over_at: float | None = None
    _in_flight: int = 0
    _to_come: float = 0.0
    _acks_after_kill: list[float] = attrs.field(factory=list)
    _workload: DemoWorkload = attrs.field(init=False)

    def run(self) -> DemoOutcome:
        """Do steps 1 to 5; the cluster is shut down cleanly when this returns."""
        with self.cluster:
            self.progress.step("starting three brokers and a controller")
            self.cluster.wait_until_ready()
            servers = self.cluster.bootstrap_servers
            create_topic(
                servers, TOPIC, partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR
            )
            self._wait_for_isr()
            self._workload = DemoWorkload(servers, TOPIC, on_ack=self._on_ack)
            self._produce()
            self.progress.step("waiting until every replica is in sync")
            self._wait_for_isr()
            self.progress.step("reading everything back")
            self._read_back()
            self.progress.step("shutting down")
        return self._outcome()

    def _produce(self) -> None:
        kill_at = int(len(self.lines) * KILL_AT)
        self.progress.step("producing")
        for index, line in enumerate(self.lines):
            self._workload.send(line)
            if index % 2000 == 0:
                self.progress.sent(index)
                self._maybe_restart()
            if index >= kill_at and self._killed_at is None and self._workload.ledger.in_flight:
                self._kill()
        while self._workload.outstanding() or self._restarted_at is None:
            self._workload.poll(0.1)
            self._maybe_restart()
        self.progress.sent(len(self.lines))

    def _kill(self) -> None:
        leaders = {partition: state.leader_id for partition, state in self._describe().items()}
        if not leaders:
            return  # no broker answered in time: the next line tries again
        if self.victim is None:
            self.victim = leaders[0]
        self._led = frozenset(p for p, leader in leaders.items() if leader == self.victim)
        ledger = self._workload.ledger
        self._in_flight, self._to_come = ledger.in_flight, 1 - ledger.sent / len(self.lines)
        self._killed_at = time.time()
        self.cluster.kill(self.victim)
        self.progress.step(f"killed broker {self.victim} with {self._in_flight:,} in flight")

    def _on_ack(self, partition: int, at: float) -> None:
        if self._killed_at is not None and self._restarted_at is None and partition in self._led:
            self._acks_after_kill.append(at)

    def _maybe_restart(self) -> None:
        """Start the victim again some time after its partitions have moved and taken a write."""
        if self._killed_at is None or self._restarted_at is not None:
            return
        assert self.victim is not None, "the victim is chosen before it is killed"
        if self._failed_over_at is None:
            states = self._describe()
            leaders = {states[each].leader_id for each in self._led if each in states}
            if not self._led <= states.keys() or leaders & {self.victim, NO_LEADER}:
                return
            self._failed_over_at = time.time()
        moved_at = self._failed_over_at
        first_ack = next((at for at in self._acks_after_kill if at > moved_at), None)
        if self._led and first_ack is None:
            return
        if time.time() >= (first_ack or moved_at) + RESTART_AFTER_SECONDS:
            self._restarted_at = time.time()
            self.cluster.start(self.victim)
            self.progress.step(f"started broker {self.victim} again")

    def _read_back(self) -> None:
        ledger = self._workload.ledger
        for message in read_back(self.cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes), "every record carries its number as its key"
            ledger.on_read(int.from_bytes(key, "big"), value if isinstance(value, bytes) else b"")

    def _wait_for_isr(self) -> None:
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            states = self._describe().values()
            in_sync = [len(state.isr_nodes) == REPLICATION_FACTOR for state in states]
            if len(in_sync) == PARTITIONS and all(in_sync):
                return
            time.sleep(0.1)
        raise DemoError(f"not every replica was in sync after {IN_SYNC_TIMEOUT_SECONDS:g} s")

    def _describe(self) -> dict[int, MetadataResponsePartition]:
        """Return the topic's partitions, as the first live broker answers."""
        for node_id, port in enumerate(self.cluster.ports[: self.cluster.brokers], start=1):
            if self._is_down(node_id):
                continue
            with contextlib.suppress(OSError):
                for topic in fetch_metadata(HOST, port).topics:
                    if topic.name == TOPIC:
                        return {state.partition_index: state for state in topic.partitions}
        return {}

    def _is_down(self, node_id: int) -> bool:
        killed = self._killed_at is not None and self._restarted_at is None
        return killed and node_id == self.victim

    def _outcome(self) -> DemoOutcome:
        assert self.victim is not None, "the demo killed a broker"
        assert self._killed_at is not None, "the demo killed a broker"
        assert self._restarted_at is not None, "the demo started it again"
        failover = DemoFailover(
            victim=self.victim,
            topic=TOPIC,
            led_partitions=self._led,
            killed_ms=int(self._killed_at * 1000),
            acked_ms=[int(at * 1000) for at in self._acks_after_kill],
            restarted_ms=int(self._restarted_at * 1000),
        )
        brokers = self.cluster.broker_ids
        return DemoOutcome(
            victim=self.victim,
            in_flight_at_kill=self._in_flight,
            to_come_at_kill=self._to_come,
            verdict=self._workload.ledger.verdict(),
            altered=self._workload.ledger.altered,
            client_errors=self._workload.errors,
            moments=timeline(failover, controller=self.cluster.journal(CONTROLLER_ID)),
            log_dirs=[self.cluster.log_dir(node_id) for node_id in brokers],
        )


@frozen
class Report:
    """The result; `audit_same` is None without Spark, with the reason in `audit_note`."""

    outcome: DemoOutcome
    comparison: Comparison
    audit_same: bool | None
    audit_note: str

    @property
    def ok(self) -> bool:
        """Whether no acknowledged record is lost or altered, and the replicas are equal."""
        return (
            self.outcome.verdict.acked_and_lost == 0
            and self.outcome.altered == 0
            and self.comparison.same
            and self.audit_same is not False
        )

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = attrs.asdict(self.outcome)
        facts["log_dirs"] = [str(path) for path in self.outcome.log_dirs]
        facts["verify"] = self.comparison.to_dict()
        facts["audit"] = {"same": self.audit_same, "note": self.audit_note}
        return facts | {"ok": self.ok}

    def show(self, console: Console) -> None:
        outcome = self.outcome
        console.print(
            f"\nbroker {outcome.victim} was killed with {outcome.in_flight_at_kill:,} records in "
            f"flight and {outcome.to_come_at_kill:.0%} of the work still to come\n",
            soft_wrap=True,
        )
        console.print(self._ledger())
        console.print(_timeline(outcome.moments))
        for line in self._verified():
            _print_plain(console, f"verify: {line}")
        _print_plain(console, f"pipeline audit: {self.audit_note}")
        verdict = "no acked record is lost, and the replicas are equal" if self.ok else "FAILED"
        console.print(f"\n{verdict}", style="green" if self.ok else "red")

    def _verified(self) -> Iterator[str]:
        """Yield a line for each partition, and one for all those that are the same and empty."""
        empty = 0
        for result in self.comparison.partitions:
            if isinstance(result, Same) and not result.compared.batches:
                empty += 1
            else:
                yield str(result)
        if empty:
            yield f"{empty} more are the same and empty"

    def _ledger(self) -> Table:
        verdict = self.outcome.verdict
        table = Table(title="loss ledger", title_justify="left")
        table.add_column("records")
        table.add_column("count", justify="right")
        table.add_row("acked and committed", f"{verdict.acked_and_committed:,}")
        table.add_row("acked and lost", f"{verdict.acked_and_lost:,}")
        table.add_row("never acked", f"{verdict.never_acked:,}")
        table.add_row("duplicated", f"{verdict.duplicated:,}")
        if self.outcome.altered:
            table.add_row("altered", f"{self.outcome.altered:,}")
        for reason, count in self.outcome.client_errors.items():
            table.add_row(f"  given up: {reason}", f"{count:,}")
        return table


def _timeline(moments: list[FailoverMoment]) -> Table:
    table = Table(title="failover", title_justify="left")
    table.add_column("after", justify="right")
    table.add_column("what")
    table.add_column("detail")
    start = moments[0].at_ms
    for moment in moments:
        known = moment.at_ms is not None and start is not None
        after = f"{(moment.at_ms - start) / 1000:.3f} s" if known else "not seen"  # type: ignore[operator]
        table.add_row(after, moment.what, moment.detail)
    return table


def _print_plain(console: Console, line: str) -> None:
    """Print a line in which `[spark]` is a word, and no markup of rich's."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)
