"""The recording that a report is drawn from: everything seen while a story ran.

    entries       the events of nodes, and the faults                    (the world's trace)
    messages      sender, receiver, contents, sent and received when     (a wiretap)
    commands      the story's own lines, and when they were carried out
    standings     the state of each replica, noted whenever it changed

Rule: a recording only reads. A story has the same trace hash with and without one.

Where several controllers vote, the metadata log has replicas too: those of the controllers, which
vote, and those of the brokers, which observe.

A replica is looked at after every event and after every message that arrived: nothing else that a
reader could name changes its log.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from replication.events import Event, TopicCreated
from replication.leader.partition import ReplicaSnapshot
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from replication.raft.rules.states import Leading
from scenarios.story.log_drawing import EpochRun, batches_of, runs_of
from scenarios.story.report.messages import Message, Wiretap
from scenarios.world.cluster import SimulatedCluster, node_name, partition_directory
from scenarios.world.streams import Pipe
from scenarios.world.trace import TraceEntry
from scenarios.world.world import World
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.frozen(kw_only=True)
class ReplicaStatus:
    """The state of one replica from a moment on.

    `role` is "leads", "follows", "observes", "waits" or "down"; `members` is what a leader counts:
    its ISR, or the voters.
    """

    at: float = attrs.field(eq=False)
    node: str
    partition: TopicPartition
    role: str
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    members: str = ""
    runs: tuple[EpochRun, ...] = attrs.field(default=(), eq=False)
    """The runs of its log, one for each leader epoch."""


@attrs.frozen
class CarriedOut:
    """A command that began at a time, and what there was when it was answered."""

    at: float
    line: str
    number: int
    """The number of its line; 0 in a run without a file."""
    answer: tuple[str, ...] | None = None
    """None if it was never answered."""
    standings: int = 0
    """The number of states of replicas that had been noted by then."""
    entries: int = 0
    """The number of entries that the trace had by then."""


@attrs.define(eq=False)
class Recording:
    """The tap of a simulated network and a watcher of its cluster."""

    commands: list[CarriedOut] = attrs.field(factory=list, init=False)
    standings: list[ReplicaStatus] = attrs.field(factory=list, init=False)
    entries: list[TraceEntry] = attrs.field(factory=list, init=False)
    """The entries of the world's trace, until the end."""
    world: World | None = attrs.field(default=None, init=False)
    cluster: SimulatedCluster | None = attrs.field(default=None, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _wiretap: Wiretap = attrs.field(init=False)
    _last: dict[tuple[str, TopicPartition], ReplicaStatus] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._wiretap = Wiretap({METADATA_TOPIC_ID: METADATA_TOPIC})

    def begin(self, world: World) -> None:
        self.world = world
        world.network.tap = self

    @property
    def messages(self) -> Sequence[Message]:
        return self._wiretap.messages

    @property
    def names(self) -> Sequence[str]:
        """The names of the nodes: the controller, then the brokers."""
        return [] if self.cluster is None else self.cluster.names

    @property
    def _now(self) -> float:
        assert self.world is not None, "what is recorded has begun"
        return self.world.time.now

    # The network's tap.

    def opened(self, requests: Pipe, responses: Pipe) -> None:
        if not self._over:
            self._wiretap.opened(requests, responses)

    def sent(self, pipe: Pipe, chunk: memoryview, now: float) -> None:
        if not self._over:
            self._wiretap.sent(pipe, chunk, now)

    def received(self, pipe: Pipe, size: int, now: float) -> None:
        if self._over:
            return
        if any(message.label for message in self._wiretap.received(pipe, size, now)):
            self.look()

    # The cluster's watcher.

    def __call__(self, event: Event) -> None:
        if isinstance(event, TopicCreated):
            self._wiretap.names[event.topic_id] = event.topic
        self.look()

    def carried_out(self, line: str, number: int = 0) -> None:
        """Note that a line of the story begins now."""
        self.commands.append(CarriedOut(self._now, line, number))
        self.look()

    def answered(self, answer: tuple[str, ...]) -> None:
        """Note the answer of the line that began last."""
        assert self.world is not None, "what is answered has begun"
        self.look()
        self.commands[-1] = attrs.evolve(
            self.commands[-1],
            answer=answer,
            standings=len(self.standings),
            entries=len(self.world.trace.entries),
        )

    def end(self) -> None:
        """End the recording with the story, before its cluster goes down."""
        assert self.world is not None, "what ends has begun"
        self.look()
        self.entries = list(self.world.trace.entries)
        self._over = True

    def look(self) -> None:
        """Note every replica whose state has changed since the last look."""
        if self.cluster is None or self._over:
            return
        now = self._now
        seen = set()
        for name, manager in self.cluster.replica_managers.items():
            for partition, snapshot in manager.hosted.describe().items():
                seen.add((name, partition))
                self._note(_standing(name, partition, snapshot, now))
        for standing in _of_metadata(self.cluster, now):
            seen.add((standing.node, standing.partition))
            if self._last.get((standing.node, standing.partition)) != standing:
                self._put(standing)
        for key, last in list(self._last.items()):
            if key not in seen and last.role != "down":
                self._put(attrs.evolve(last, at=now, role="down", members=""))

    def _note(self, standing: ReplicaStatus) -> None:
        key = standing.node, standing.partition
        if self._last.get(key) == standing:
            return
        assert self.cluster is not None, "only a cluster has replicas"
        disk = self.cluster.disk(standing.node)
        batches = batches_of(disk, partition_directory(disk, *key))
        self._put(attrs.evolve(standing, runs=tuple(runs_of(batches))))

    def _put(self, standing: ReplicaStatus) -> None:
        self._last[standing.node, standing.partition] = standing
        self.standings.append(standing)


def _standing(
    node: str, partition: TopicPartition, snapshot: ReplicaSnapshot, now: float
) -> ReplicaStatus:
    follows = "follows" if snapshot.leader >= 0 else "waits"
    return ReplicaStatus(
        at=now,
        node=node,
        partition=partition,
        role="leads" if snapshot.is_leader else follows,
        leader_epoch=snapshot.leader_epoch,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        log_end_offset=snapshot.log_end_offset,
        members=_named("isr", sorted(snapshot.isr)) if snapshot.is_leader else "",
    )


def _of_metadata(cluster: SimulatedCluster, now: float) -> Iterator[ReplicaStatus]:
    """Yield the state of each replica of the metadata log; nothing where one controller votes."""
    if len(cluster.controller_names) == 1:
        return
    for node_id, controller in cluster.nodes.controllers.items():
        if controller.listener is None:
            continue
        quorum = controller.node.quorum
        leads = isinstance(quorum.state, Leading)
        follows = "follows" if quorum.is_voter else "observes"
        own = controller.log
        standing = _copy(node_name(node_id), own.log, own.high_watermark, now)
        yield attrs.evolve(
            standing,
            role="leads" if leads else follows if quorum.leader_id is not None else "waits",
            leader_epoch=quorum.leader_epoch,
            members=_named("voters", sorted(quorum.voters.ids)) if leads else "",
        )
    for name in cluster.replica_managers:
        broker = cluster.brokers[name]
        log = broker.logs.get(METADATA_PARTITION)
        if log is not None and name not in cluster.controller_names:
            yield _copy(name, log, broker.metadata.image.offset + 1, now)


def _copy(node: str, log: Log, high_watermark: Offset, now: float) -> ReplicaStatus:
    """Return a copy of the metadata log as that of an observer."""
    begun, end = log.leader_epoch_cache.entries, log.log_end_offset
    ends = [*(each.start_offset for each in begun[1:]), end]
    runs = [
        EpochRun(each.epoch, each.start_offset, upto - 1)
        for each, upto in zip(begun, ends, strict=False)  # without epochs, just after a snapshot
        if each.start_offset < upto
    ]
    return ReplicaStatus(
        at=now,
        node=node,
        partition=METADATA_PARTITION,
        role="observes",
        leader_epoch=begun[-1].epoch if begun else 0,
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=end,
        runs=tuple(runs),
    )


def _named(title: str, node_ids: Iterable[int]) -> str:
    return f"{title} {' '.join(map(node_name, node_ids))}"
