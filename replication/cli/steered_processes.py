"""Steering nodes that are processes of their own: signals, and what is said on their lines.

    kill SIGKILL    stop SIGTERM    freeze SIGSTOP    thaw SIGCONT    start: another process
    fault rules and cuts: told to every node (`steering_line`), each of which does its part

Rule 1: a rule or a cut is answered for when every node that runs has heard of it. One that is
frozen hears of it when it thaws, one that starts before it begins.

Rule 2: calls are counted here, whichever node is asked.
"""

import os
import random
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, product
from typing import Any

import attrs
import trio

from replication.broker.nodes import node_name
from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.isolated import CONTROLLER, HOST, IsolatedCluster, NodeFailedError
from replication.cli.probe import broker_ids, fetch_metadata
from replication.cli.running import reporting_bugs
from replication.cli.served import ControlServer, PageServer, serve
from replication.cli.steering_line import Line, Word, call_of
from replication.cluster.interface import (
    NodeStatus,
    NodeSummary,
    NotInTimeError,
    NotPossibleError,
    PartitionSummary,
)
from replication.errors import ProtocolError
from replication.events import ignore
from replication.faults import AddedRule, Decision, FaultRule
from replication.faults.node_faults import Faults
from replication.faults.rules.book import KEPT_HITS
from replication.faults.rules.words import words_of
from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.observe.journal import JournalEntry, decode_entry
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

LOOK_SECONDS = 0.05
HEARD_SECONDS = 30.0
START_SECONDS = 30.0


def steer(
    cluster: IsolatedCluster,
    page: PageServer,
    control: ControlServer,
    show: Callable[[list[str], Mapping[str, str]], None],
) -> None:
    """Until interrupted; then nobody is frozen any more."""
    cluster.forked = False  # from here on there are threads
    processes = SteeredProcesses(cluster, page.on_entry)

    async def run() -> None:
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_serve, processes, page, control, show, nursery)
                await anext(signals)
                nursery.cancel_scope.cancel()

    try:
        trio.run(run)
    finally:
        processes.thaw_all()


async def _serve(
    processes: "SteeredProcesses",
    page: PageServer,
    control: ControlServer,
    show: Callable[[list[str], Mapping[str, str]], None],
    nursery: trio.Nursery,
) -> None:
    cluster = processes.cluster
    processes.begin(nursery)
    await trio.to_thread.run_sync(cluster.wait_until_ready, abandon_on_cancel=True)
    sites = control.sites(processes)
    if page.where is not None:
        from replication.cli.processes_source import reading_processes

        reader = await nursery.start(reading_processes, processes, page.reasons)
        sites += page.sites_of(reader, processes, nursery)
    urls = await serve(sites, nursery, reporting_bugs(ignore))
    show(cluster.bootstrap_servers.split(","), cluster.metrics_urls | urls)


@attrs.define(eq=False)
class _Spoken:
    """What is said to one node that runs, and what it has said."""

    line: Line
    heard: int = attrs.field(init=False, default=-1)
    """The newest state that it holds to."""
    decisions: dict[int, Decision] = attrs.field(init=False, factory=dict)
    """By number, the last of them: what became of a request may be told twice, as of one that is
    held first and closed in the end.
    """

    def remember(self, number: int, decision: Decision) -> None:
        self.decisions[number] = decision
        if len(self.decisions) > KEPT_HITS:
            del self.decisions[next(iter(self.decisions))]


@attrs.frozen
class SeenReplica:
    """What only its own broker knows."""

    leader_epoch: LeaderEpoch
    high_watermark: Offset
    epochs: tuple[EpochEntry, ...]


def _seen_replica(
    leader_epoch: LeaderEpoch, high_watermark: Offset, epochs: list[tuple[LeaderEpoch, Offset]]
) -> SeenReplica:
    entries = tuple(EpochEntry(epoch, start) for epoch, start in epochs)
    return SeenReplica(leader_epoch, high_watermark, entries)


@attrs.define(eq=False)
class _Looked:
    answered: trio.Event = attrs.field(init=False, factory=trio.Event)
    replicas: list[Any] = attrs.field(init=False, factory=list)


@attrs.define(eq=False)
class SteeredProcesses:
    """A running cluster (`interface.AnyCluster`) whose nodes are processes, started by `cluster`."""

    cluster: IsolatedCluster
    on_event: Callable[[JournalEntry], None] | None = None
    """Told of what happens at any node."""
    faults: Faults = attrs.field(init=False)
    _cuts: set[tuple[int, int]] = attrs.field(init=False, factory=set)
    _frozen: set[int] = attrs.field(init=False, factory=set)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _spoken: dict[int, _Spoken] = attrs.field(init=False, factory=dict)
    """By node id."""
    _sequence: int = attrs.field(init=False, default=0)
    """Of the newest state."""
    _hearing: trio.Event = attrs.field(init=False, factory=trio.Event)
    _chance: random.Random = attrs.field(init=False, factory=random.SystemRandom)
    _looks: dict[int, _Looked] = attrs.field(init=False, factory=dict)
    """Those that are not answered yet, by number."""
    _numbers: "count[int]" = attrs.field(init=False, factory=count)

    @faults.default
    def _no_faults(self) -> Faults:
        return Faults(TrioClock(), node_ids=lambda: self.cluster.node_ids)

    def begin(self, nursery: trio.Nursery) -> None:
        """Speak to every node, for as long as `nursery` is open."""
        self._nursery = nursery
        for node_id in self.cluster.node_ids:
            self._speak_to(node_id)

    # -- nodes

    def nodes(self) -> list[NodeSummary]:
        return [
            NodeSummary(
                id=node_id, status=self._status(node_id), address=f"{HOST}:{self._port(node_id)}"
            )
            for node_id in self.cluster.node_ids
        ]

    async def kill_node(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        self.cluster.kill(node_id)
        self._frozen.discard(node_id)

    async def stop_node(self, node_id: int) -> None:
        """SIGKILL if it has not left by then."""
        await self.thaw_node(node_id)
        await trio.to_thread.run_sync(self.cluster.stop_node, node_id)

    async def start_node(self, node_id: int, *, timeout_seconds: float = START_SECONDS) -> None:
        """Start a node that is down; return when it serves. After the time limit it is killed."""
        self._must_be(node_id, up=False)
        self.cluster.start(node_id)
        self._speak_to(node_id)
        with TrioClock().move_on_after(timeout_seconds):
            while not await trio.to_thread.run_sync(self._serves, node_id):
                if not self.cluster.is_running(node_id):
                    raise NodeFailedError(
                        f"{node_name(node_id)} ended: {self.cluster.last_words(node_id)}"
                    )
                await trio.sleep(LOOK_SECONDS)
            return
        await self.kill_node(node_id)
        raise NotPossibleError(f"not started within {timeout_seconds:g} s: is the controller up?")

    async def freeze_node(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        os.kill(self.cluster.pid(node_id), signal.SIGSTOP)
        self._frozen.add(node_id)

    async def thaw_node(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        os.kill(self.cluster.pid(node_id), signal.SIGCONT)
        self._frozen.discard(node_id)
        await self._until_heard()

    def thaw_all(self) -> None:
        """A process that is stopped (SIGSTOP) would not leave."""
        for node_id in self._frozen:
            if self.cluster.is_running(node_id):
                os.kill(self.cluster.pid(node_id), signal.SIGCONT)
        self._frozen.clear()

    async def make_whole(self) -> None:
        self.thaw_all()
        self.faults.clear()
        await self.heal()
        for node_id in self.cluster.node_ids:
            if not self.cluster.is_running(node_id):
                await self.start_node(node_id)

    async def topics(self) -> Mapping[str, Sequence[PartitionSummary]]:
        """As the first broker that answers knows them."""
        for node_id in self.cluster.node_ids[1:]:
            if self._status(node_id) is NodeStatus.RUNNING:
                ask = partial(fetch_metadata, HOST, self._port(node_id))
                try:
                    metadata = await trio.to_thread.run_sync(ask)
                except (OSError, ProtocolError):
                    continue
                return {
                    topic.name or "": [
                        PartitionSummary(
                            partition=each.partition_index,
                            leader=None if each.leader_id < 0 else each.leader_id,
                            leader_epoch=each.leader_epoch,
                            replicas=each.replica_nodes,
                            isr=sorted(each.isr_nodes),
                        )
                        for each in sorted(topic.partitions, key=lambda one: one.partition_index)
                    ]
                    for topic in metadata.topics
                }
        raise NotPossibleError("no broker answers")

    # -- the network and fault rules

    def cuts(self) -> Sequence[tuple[int, int]]:
        return sorted(self._cuts)

    async def cut(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        some = list(some)
        rest = [each for each in self.cluster.node_ids if each not in some]
        there = set(product(some, rest if others is None else others))
        self._cuts |= there | (set() if one_way else {(to, source) for source, to in there})
        await self._tell_all()

    async def heal(self) -> None:
        self._cuts.clear()
        await self._tell_all()

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        added = self.faults.add(rule)
        await self._tell_all()
        return added

    async def remove_fault(self, rule: AddedRule) -> None:
        self.faults.remove(rule)
        await self._tell_all()

    async def clear_faults(self) -> None:
        self.faults.clear()
        await self._tell_all()

    # -- what they have

    async def replicas(
        self, partitions: Sequence[TopicPartition], *, timeout_ms: int
    ) -> dict[tuple[TopicPartition, int], SeenReplica]:
        """Of each node that answers within that time."""
        seen: dict[tuple[TopicPartition, int], SeenReplica] = {}
        with TrioClock().move_on_after(timeout_ms / 1000):
            async with trio.open_nursery() as nursery:
                for node_id, spoken in self._spoken.items():
                    if node_id != CONTROLLER and node_id not in self._frozen:
                        nursery.start_soon(self._look, node_id, spoken, partitions, seen)
        return seen

    async def _look(
        self,
        node_id: int,
        spoken: _Spoken,
        partitions: Sequence[TopicPartition],
        seen: dict[tuple[TopicPartition, int], SeenReplica],
    ) -> None:
        question, looked = next(self._numbers), _Looked()
        self._looks[question] = looked
        spoken.line.say(Word.LOOK, question, partitions)
        try:
            await looked.answered.wait()
        finally:
            self._looks.pop(question, None)
        for topic, partition, *facts in looked.replicas:
            seen[TopicPartition(topic, partition), node_id] = _seen_replica(*facts)

    # -- what is said, and heard

    def _speak_to(self, node_id: int) -> None:
        assert self._nursery is not None, "it has begun"
        spoken = self._spoken[node_id] = _Spoken(Line(self.cluster.lines[node_id]))
        self._tell(spoken.line)
        self._nursery.start_soon(self._listen_to, node_id, spoken)

    async def _listen_to(self, node_id: int, spoken: _Spoken) -> None:
        await spoken.line.run(partial(self._hear, spoken))
        if self._spoken.get(node_id) is spoken:
            del self._spoken[node_id]
        self._heard_more()

    def _tell(self, line: Line) -> None:
        """All of what goes wrong."""
        rules = [(number, words_of(each.rule)) for number, each in self.faults.rules.items()]
        ports = [(self._port(node_id), node_id) for node_id in self.cluster.node_ids]
        wants_events = self.on_event is not None
        line.say(Word.STATE, self._sequence, rules, self.cuts(), ports, wants_events)

    async def _tell_all(self) -> None:
        self._sequence += 1
        for spoken in self._spoken.values():
            self._tell(spoken.line)
        await self._until_heard()

    async def _until_heard(self) -> None:
        with TrioClock().move_on_after(HEARD_SECONDS):
            while self._who_lags():
                await self._hearing.wait()
            return
        raise NotInTimeError(f"not heard of within {HEARD_SECONDS:g} s by {self._who_lags()}")

    def _who_lags(self) -> list[str]:
        """Of those that could have heard."""
        return [
            node_name(node_id)
            for node_id, spoken in sorted(self._spoken.items())
            if spoken.heard < self._sequence and node_id not in self._frozen
        ]

    def _heard_more(self) -> None:
        self._hearing.set()
        self._hearing = trio.Event()

    def _hear(self, spoken: _Spoken, message: list[Any]) -> None:
        match message:
            case [Word.HEARD, sequence]:
                spoken.heard = sequence
                self._heard_more()
            case [Word.MATCHED, question, numbers, facts]:
                self._judge(spoken, question, numbers, facts)
            case [Word.ANSWERED, hit, answer]:
                if (decision := spoken.decisions.get(hit)) is not None:
                    decision.answered(answer)
            case [Word.SEEN, question, replicas]:
                if (looked := self._looks.pop(question, None)) is not None:
                    looked.replicas = replicas
                    looked.answered.set()
            case [Word.HAPPENED, packed]:
                if self.on_event is not None and (entry := decode_entry(packed)) is not None:
                    self.on_event(entry)
            case _:
                raise AssertionError(f"no node says {message}")

    def _judge(
        self, spoken: _Spoken, question: int, numbers: Sequence[int], facts: list[Any]
    ) -> None:
        rules = self.faults.rules
        matching = [rules[number] for number in numbers if number in rules]
        decision = self.faults.judged(call_of(facts), matching, self._chance)
        hit = next(self._numbers)
        if decision is not None:
            spoken.remember(hit, decision)
        fired = [] if decision is None else [each.number for each in decision.fired]
        spoken.line.say(Word.FIRED, question, hit, fired)

    def _status(self, node_id: int) -> NodeStatus:
        if not self.cluster.is_running(node_id):
            return NodeStatus.DOWN
        return NodeStatus.FROZEN if node_id in self._frozen else NodeStatus.RUNNING

    def _port(self, node_id: int) -> int:
        return self.cluster.ports[node_id - 1]  # the controller's is the last

    def _serves(self, node_id: int) -> bool:
        if node_id == CONTROLLER:
            with socket.socket() as probing:
                return probing.connect_ex((HOST, self._port(node_id))) == 0
        return node_id in broker_ids(HOST, self._port(node_id))

    def _must_be(self, node_id: int, *, up: bool) -> None:
        if self.cluster.is_running(node_id) != up:
            raise NotPossibleError(f"{node_name(node_id)} is {'down' if up else 'up'} already")
