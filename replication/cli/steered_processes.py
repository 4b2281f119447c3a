"""Control of nodes that are processes of their own: by signals, and over their lines.

    kill SIGKILL    stop SIGTERM    freeze SIGSTOP    thaw SIGCONT    start: another process
    fault rules and cuts: sent to every node (`steering`), which applies them

Rule 1: adding a rule or a cut returns when every running node has it. A frozen node gets it when it
is thawed, and a node that starts gets it before it begins.

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

from replication.broker.nodes import HOST, node_name
from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.isolated import IsolatedCluster, NodeFailedError
from replication.cli.probe import broker_ids, fetch_metadata
from replication.cli.running import reporting_bugs
from replication.cli.served import HttpPort, PageServer, control_sites, serve
from replication.cli.steering import SteeringLine, SteeringWord, call_of
from replication.cluster.interface import (
    NodeStatus,
    NodeSummary,
    NotInTimeError,
    NotPossibleError,
    PartitionSummary,
)
from replication.errors import ProtocolError
from replication.events import ignore
from replication.faults import AddedRule, FaultDecision, FaultRule
from replication.faults.node_faults import Faults
from replication.faults.rules.as_json import rule_to_json
from replication.faults.rules.book import KEPT_HITS
from replication.net.clock import LoopClock, TrioClock
from replication.net.raising import raising_only_one
from replication.observe.journal import JournalEntry, decode_entry
from storage.attributes import define, frozen
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

LOOK_SECONDS = 0.05
APPLIED_SECONDS = 30.0
START_SECONDS = 30.0


def steer(
    cluster: IsolatedCluster,
    page: PageServer,
    control: HttpPort | None,
    show: Callable[[list[str], Mapping[str, str]], None],
    rules: Sequence[FaultRule],
) -> None:
    """Serve until interrupted; then thaw every node, so that it can shut down."""
    cluster.forked = False  # from here on this process has threads
    processes = SteeredProcesses(cluster, page.on_entry)
    for rule in rules:
        processes.faults.add(rule)  # which is in the first state that each node gets

    async def run() -> None:
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_serve, processes, page, control, show, nursery)
                await anext(signals)
                nursery.cancel_scope.cancel()

    try:
        trio.run(run, clock=LoopClock())
    finally:
        processes.thaw_all()


async def _serve(
    processes: "SteeredProcesses",
    page: PageServer,
    control: HttpPort | None,
    show: Callable[[list[str], Mapping[str, str]], None],
    nursery: trio.Nursery,
) -> None:
    cluster = processes.cluster
    processes.begin(nursery)
    await trio.to_thread.run_sync(cluster.wait_until_ready, abandon_on_cancel=True)
    sites = control_sites(control, processes)
    if page.page is not None:
        from replication.cli.processes_source import reading_processes

        reader = await nursery.start(reading_processes, processes, page.page.reasons)
        sites += page.sites_of(reader, processes, nursery)
    urls = await serve(sites, nursery, reporting_bugs(ignore))
    show(cluster.bootstrap_servers.split(","), cluster.metrics_urls | urls)


@define(eq=False)
class _Conversation:
    """The line of one running node, and what it has answered."""

    line: SteeringLine
    applied: int = attrs.field(init=False, default=-1)
    """The sequence number of the newest state that it applies."""
    decisions: dict[int, FaultDecision] = attrs.field(init=False, factory=dict)
    """The last decisions by number. The result of a request may be reported twice: a request that
    was held may be closed in the end.
    """

    def remember(self, number: int, decision: FaultDecision) -> None:
        self.decisions[number] = decision
        if len(self.decisions) > KEPT_HITS:
            del self.decisions[next(iter(self.decisions))]


@frozen
class SeenReplica:
    """The state of a replica that only its broker knows."""

    leader_epoch: LeaderEpoch
    high_watermark: Offset
    epochs: tuple[EpochEntry, ...]


def _seen_replica(
    leader_epoch: LeaderEpoch, high_watermark: Offset, epochs: list[tuple[LeaderEpoch, Offset]]
) -> SeenReplica:
    entries = tuple(EpochEntry(epoch, start) for epoch, start in epochs)
    return SeenReplica(leader_epoch, high_watermark, entries)


@define(eq=False)
class _ReplicaQuestion:
    answered: trio.Event = attrs.field(init=False, factory=trio.Event)
    replicas: list[Any] = attrs.field(init=False, factory=list)


@define(eq=False)
class SteeredProcesses:
    """A running cluster (`interface.AnyCluster`) whose nodes are processes, started by `cluster`."""

    cluster: IsolatedCluster
    on_event: Callable[[JournalEntry], None] | None = None
    """Takes the events of every node."""
    faults: Faults = attrs.field(init=False)
    _cuts: set[tuple[int, int]] = attrs.field(init=False, factory=set)
    _frozen: set[int] = attrs.field(init=False, factory=set)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _conversations: dict[int, _Conversation] = attrs.field(init=False, factory=dict)
    """The conversation of each running node, by its id."""
    _sequence: int = attrs.field(init=False, default=0)
    """The sequence number of the newest state."""
    _progress: trio.Event = attrs.field(init=False, factory=trio.Event)
    _chance: random.Random = attrs.field(init=False, factory=random.SystemRandom)
    _looks: dict[int, _ReplicaQuestion] = attrs.field(init=False, factory=dict)
    """The questions for replicas that are not answered yet, by number."""
    _numbers: "count[int]" = attrs.field(init=False, factory=count)

    @faults.default
    def _no_faults(self) -> Faults:
        return Faults(TrioClock(), node_ids=lambda: self.cluster.node_ids)

    def begin(self, nursery: trio.Nursery) -> None:
        """Talk to every node while `nursery` is open."""
        self._nursery = nursery
        for node_id in self.cluster.node_ids:
            self._talk_to(node_id)

    # -- nodes

    def nodes(self) -> list[NodeSummary]:
        return [
            NodeSummary(
                id=node_id,
                status=self._status(node_id),
                address=f"{HOST}:{self.cluster.port(node_id)}",
                roles=["controller"] * (node_id in self.cluster.controller_ids)
                + ["broker"] * (node_id in self.cluster.broker_ids),
            )
            for node_id in self.cluster.node_ids
        ]

    async def kill_node(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        self.cluster.kill(node_id)
        self._frozen.discard(node_id)

    async def stop_node(self, node_id: int) -> None:
        """Shut a node down in good order; kill it after the time limit."""
        await self.thaw_node(node_id)
        await trio.to_thread.run_sync(self.cluster.stop_node, node_id)

    async def start_node(self, node_id: int, *, timeout_seconds: float = START_SECONDS) -> None:
        """Start a node that is down; return when it serves. After the time limit it is killed."""
        self._must_be(node_id, up=False)
        self.cluster.start(node_id)
        self._talk_to(node_id)
        with TrioClock().move_on_after(timeout_seconds):
            while not await trio.to_thread.run_sync(self._serves, node_id):
                if not self.cluster.is_running(node_id):
                    raise NodeFailedError(
                        f"{node_name(node_id)} ended: {self.cluster.last_line_of(node_id)}"
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
        await self._until_applied()

    def thaw_all(self) -> None:
        """Let every frozen node go on, so that it can shut down."""
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
        """Return the topics, as the first broker that answers knows them."""
        for node_id in self.cluster.broker_ids:
            if self._status(node_id) is NodeStatus.RUNNING:
                ask = partial(fetch_metadata, HOST, self.cluster.port(node_id))
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
        await self._send_to_all()

    async def heal(self) -> None:
        self._cuts.clear()
        await self._send_to_all()

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        added = self.faults.add(rule)
        await self._send_to_all()
        return added

    async def remove_fault(self, rule: AddedRule) -> None:
        self.faults.remove(rule)
        await self._send_to_all()

    async def clear_faults(self) -> None:
        self.faults.clear()
        await self._send_to_all()

    # -- replicas

    async def replicas(
        self, partitions: Sequence[TopicPartition], *, timeout_ms: int
    ) -> dict[tuple[TopicPartition, int], SeenReplica]:
        """Return the replicas of each node that answers within the time limit."""
        seen: dict[tuple[TopicPartition, int], SeenReplica] = {}
        with TrioClock().move_on_after(timeout_ms / 1000):
            async with trio.open_nursery() as nursery:
                for node_id, conversation in self._conversations.items():
                    if node_id in self.cluster.broker_ids and node_id not in self._frozen:
                        nursery.start_soon(self._look, node_id, conversation, partitions, seen)
        return seen

    async def _look(
        self,
        node_id: int,
        conversation: _Conversation,
        partitions: Sequence[TopicPartition],
        seen: dict[tuple[TopicPartition, int], SeenReplica],
    ) -> None:
        number, question = next(self._numbers), _ReplicaQuestion()
        self._looks[number] = question
        conversation.line.send(SteeringWord.LOOK, number, partitions)
        try:
            await question.answered.wait()
        finally:
            self._looks.pop(number, None)
        for topic, partition, *facts in question.replicas:
            seen[TopicPartition(topic, partition), node_id] = _seen_replica(*facts)

    # -- the lines of nodes

    def _talk_to(self, node_id: int) -> None:
        assert self._nursery is not None, "`begin` was called"
        conversation = self._conversations[node_id] = _Conversation(
            SteeringLine(self.cluster.lines[node_id])
        )
        self._send_state(conversation.line)
        self._nursery.start_soon(self._listen_to, node_id, conversation)

    async def _listen_to(self, node_id: int, conversation: _Conversation) -> None:
        await conversation.line.run(partial(self._on_message, conversation))
        if self._conversations.get(node_id) is conversation:
            del self._conversations[node_id]
        self._note_progress()

    def _send_state(self, line: SteeringLine) -> None:
        """Send the whole state: rules, cuts and ports."""
        rules = [(number, rule_to_json(each.rule)) for number, each in self.faults.rules.items()]
        ports = [
            (port, node_id)
            for node_id in self.cluster.node_ids
            for port in self.cluster.listeners(node_id)
        ]
        wants_events = self.on_event is not None
        line.send(SteeringWord.STATE, self._sequence, rules, self.cuts(), ports, wants_events)

    async def _send_to_all(self) -> None:
        self._sequence += 1
        for conversation in self._conversations.values():
            self._send_state(conversation.line)
        await self._until_applied()

    async def _until_applied(self) -> None:
        with TrioClock().move_on_after(APPLIED_SECONDS):
            while self._lagging():
                await self._progress.wait()
            return
        raise NotInTimeError(f"not applied within {APPLIED_SECONDS:g} s by {self._lagging()}")

    def _lagging(self) -> list[str]:
        """Return the names of running nodes that do not have the newest state."""
        return [
            node_name(node_id)
            for node_id, conversation in sorted(self._conversations.items())
            if conversation.applied < self._sequence and node_id not in self._frozen
        ]

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    def _on_message(self, conversation: _Conversation, message: list[Any]) -> None:
        match message:
            case [SteeringWord.APPLIED, sequence]:
                conversation.applied = sequence
                self._note_progress()
            case [SteeringWord.MATCHED, number, rules, facts]:
                self._judge(conversation, number, rules, facts)
            case [SteeringWord.ANSWERED, hit, answer]:
                if (decision := conversation.decisions.get(hit)) is not None:
                    decision.answered(answer)
            case [SteeringWord.SEEN, number, replicas]:
                if (question := self._looks.pop(number, None)) is not None:
                    question.replicas = replicas
                    question.answered.set()
            case [SteeringWord.HAPPENED, packed]:
                if self.on_event is not None and (entry := decode_entry(packed)) is not None:
                    self.on_event(entry)
            case _:
                raise AssertionError(f"a node never sends {message}")

    def _judge(
        self, conversation: _Conversation, question: int, numbers: Sequence[int], facts: list[Any]
    ) -> None:
        rules = self.faults.rules
        matching = [rules[number] for number in numbers if number in rules]
        decision = self.faults.judged(call_of(facts), matching, self._chance)
        hit = next(self._numbers)
        if decision is not None:
            conversation.remember(hit, decision)
        fired = [] if decision is None else [each.number for each in decision.fired]
        conversation.line.send(SteeringWord.FIRED, question, hit, fired)

    def _status(self, node_id: int) -> NodeStatus:
        if not self.cluster.is_running(node_id):
            return NodeStatus.DOWN
        return NodeStatus.FROZEN if node_id in self._frozen else NodeStatus.RUNNING

    def _serves(self, node_id: int) -> bool:
        if node_id not in self.cluster.broker_ids:
            with socket.socket() as probing:
                return probing.connect_ex((HOST, self.cluster.port(node_id))) == 0
        return node_id in broker_ids(HOST, self.cluster.port(node_id))

    def _must_be(self, node_id: int, *, up: bool) -> None:
        if self.cluster.is_running(node_id) != up:
            raise NotPossibleError(f"{node_name(node_id)} is {'down' if up else 'up'} already")
