"""Carries what happens, and where every replica stands, to the rules.

    event     what it says by itself is judged at once; what follows from it, at the next look
    look      before any message is received anywhere, if a replica has moved or an event was
              told; and after every line of a story. Then every task waits, and nothing is
              half done

How it knows that a replica has moved: as a fetch session does (`replication.settled`). To
look at a replica is to settle it; whatever moves it unsettles it.
"""

from collections.abc import Iterable, Iterator

import attrs

from replication.events import (
    BecameLeader,
    BrokerRegistered,
    BrokerStopped,
    Event,
    IsrChanged,
    LeaderElected,
    LogTruncated,
    PartitionStopped,
)
from replication.isr import PendingExpand, Pulse
from replication.leadership import Leadership
from replication.metadata import LeaderRecoveryState, MetadataImage, PartitionRegistration
from replication.partition import Partition
from replication.settled import Settled
from scenarios.simulation.checkers import (
    acks,
    committed,
    epochs,
    exclusion,
    leadership,
    offsets,
    storage,
)
from scenarios.simulation.checkers.committed import CommittedLog
from scenarios.simulation.checkers.contract import Contract
from scenarios.simulation.checkers.leadership import Decided
from scenarios.simulation.checkers.observed import HeldLog, ReplicaState
from scenarios.simulation.checkers.storage import FailedLog
from scenarios.simulation.checkers.violation import InvariantViolatedError, Wrong
from scenarios.simulation.client import BatchAnswered, RecordsGiven
from scenarios.simulation.cluster import CONTROLLER, SimulatedCluster, node_name
from scenarios.simulation.trace import SIMULATOR, DiskReplaced, PowerCut
from storage.log import Log
from storage.types import LeaderEpoch, Offset, TopicPartition

ACKS_ALL = -1
FENCED_FETCH_VERSION = 9
MIN_ISR = "min.insync.replicas"


@attrs.define(eq=False, kw_only=True)
class _Watched:
    """A replica that is online; to `Settled`, one more fetch session."""

    node: str
    life: int
    replica: Partition
    held: HeldLog
    moved: "dict[_Watched, None]"
    last: ReplicaState | None = None
    """As it was last looked at."""
    pulse: Pulse = attrs.field(factory=Pulse)

    def settle(self, settled: Settled) -> None:
        """It has been looked at."""

    def unsettle(self) -> None:
        self.moved[self] = None

    def look(self) -> ReplicaState:
        replica, log = self.replica, self.replica.log
        leads = replica.leadership
        self.held.read_on()
        self.last = ReplicaState(
            node=self.node,
            life=self.life,
            partition=replica.topic_partition,
            topic_id=replica.topic_id,
            is_leader=leads is not None,
            leader_epoch=replica.leader_epoch,
            partition_epoch=replica.partition_epoch,
            log_start=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end=log.log_end_offset,
            first_segment=log.segments[0].base_offset,
            isr=replica.isr,
            maximal_isr=frozenset() if leads is None else leads.maximal_isr,
            min_isr=min(replica.min_insync_replicas, len(replica.replicas)),
            epochs=tuple(log.leader_epoch_cache.entries),
        )
        replica.settled.settle(self, None)
        return self.last


@attrs.define(eq=False)
class Checkers:
    """Made before the cluster, which it is the watcher of; then it is told which that is."""

    cluster: SimulatedCluster | None = None
    violation: InvariantViolatedError | None = attrs.field(default=None, init=False)
    """The first; what comes after it is its consequence, and is not looked at."""
    contract: Contract = attrs.field(factory=Contract, init=False)
    _committed: dict[TopicPartition, CommittedLog] = attrs.field(factory=dict, init=False)
    _watched: dict[tuple[str, TopicPartition], _Watched] = attrs.field(factory=dict, init=False)
    _moved: dict[_Watched, None] = attrs.field(factory=dict, init=False)
    # What has been told since the last look.
    _told: bool = attrs.field(default=False, init=False)
    _new_leaders: dict[tuple[str, TopicPartition], LeaderEpoch] = attrs.field(
        factory=dict, init=False
    )
    # What is to be looked at as a whole.
    _touched: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)
    # Of every replica that ever was, also of those that are down.
    _last: dict[tuple[str, TopicPartition], ReplicaState] = attrs.field(factory=dict, init=False)
    _leaders: dict[tuple[TopicPartition, LeaderEpoch], ReplicaState] = attrs.field(
        factory=dict, init=False
    )
    _lives: dict[str, tuple[object, int]] = attrs.field(factory=dict, init=False)
    _failed: dict[Log, FailedLog] = attrs.field(factory=dict, init=False)
    # Whose last end was in good order, its disk untouched since; or nobody can say.
    _in_good_order: set[str] = attrs.field(factory=set, init=False)
    # The controller, what it has decided, and that as the rules have it.
    _controller: object = attrs.field(default=None, init=False)
    _image: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    _decided: dict[TopicPartition, Decided] = attrs.field(factory=dict, init=False)

    # What it is asked.

    def is_let_off(self, partition: TopicPartition) -> bool:
        """Whether it has seen an election that may have lost what was committed."""
        return partition in self.contract.let_off

    @property
    def has_let_off_any(self) -> bool:
        return bool(self.contract.let_off)

    # What it is told.

    def __call__(self, event: Event) -> None:
        """What it raises ends the node that told of `event`."""
        if self.violation is None:
            self._told = True
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case LeaderElected(partition=partition, leader=leader, cause=cause):
                if cause == "created":
                    self._begin(partition)
                self.contract.elected(
                    partition, node_name(leader), cause, watched=not self._may_be_unsure
                )
            case IsrChanged(partition=partition, isr=isr, previous_isr=previous):
                for broker_id in set(isr) - set(previous):
                    self.contract.joined(partition, node_name(broker_id))
            case PowerCut(node=name):
                self.contract.lost_its_disk(name)
            case DiskReplaced(node=name):
                self.contract.lost_its_disk(name)
            case PartitionStopped(partition=partition, deleted=True) if not self._fences_fetches:
                self.contract.deleted_its_log(partition, self._teller(event))
            case BrokerRegistered(broker=broker_id, previous_broker_epoch=previous):
                # Asked again by the same process, it keeps its epoch (KAFKA-16952).
                if event.broker_epoch != previous:
                    self._registered(broker_id)
            case BecameLeader(partition=partition, leader_epoch=leader_epoch):
                self._new_leaders[self._teller(event), partition] = leader_epoch
            case LogTruncated(partition=partition):
                self._cut(event)
            case _:
                self._hear_others(event)

    def _hear_others(self, event: Event) -> None:
        match event:
            case BrokerStopped(broker=broker_id, clean=True):
                self._in_good_order.add(node_name(broker_id))
            case BatchAnswered(partition=partition, end=int(end)) if event.acks == ACKS_ALL:
                self._judge_offsets(acks.acked, partition, end)
            case RecordsGiven(partition=partition, end=end):
                self._judge_offsets(acks.given, partition, end)
            case _:
                pass

    def _teller(self, event: Event) -> str:
        """The trace has just been told the same."""
        entries = [] if self.cluster is None else self.cluster.world.trace.entries
        return entries[-1].node if entries and entries[-1].event is event else SIMULATOR

    def _begin(self, partition: TopicPartition) -> None:
        """A partition is made; an older one of its name is no concern of ours."""
        self.contract.created(partition)
        self._committed[partition] = CommittedLog()
        for epoch in [each for each in self._leaders if each[0] == partition]:
            del self._leaders[epoch]

    def _registered(self, broker_id: int) -> None:
        name = node_name(broker_id)
        self.contract.registered(name)
        if name not in self._in_good_order and self._eligible:
            image = self._newest_image()
            for partition, _, registration in image.partitions():
                self._judge(exclusion.excluded(broker_id, partition, registration))
        self._in_good_order.discard(name)

    def _cut(self, event: LogTruncated) -> None:
        if not self.is_let_off(event.partition):
            self._judge(offsets.cut(event))
        watched = self._watched.get((self._teller(event), event.partition))
        if watched is not None and watched.last is not None:
            now = attrs.evolve(watched.last, is_leader=watched.replica.is_leader)
            self._judge(offsets.cut_by_its_leader(event, now))

    def _judge_offsets(self, rule: acks.Rule, partition: TopicPartition, end: Offset) -> None:
        self.look()
        log = self._committed.get(partition)
        if log is not None and not self.is_let_off(partition):
            self._judge(rule(partition, end=end, committed_end=log.end))

    # Looking.

    def before_receipt(self) -> None:
        """A message is about to be received."""
        if (self._moved or self._told) and self.violation is None:
            self.look()

    def look(self) -> None:
        """Hold what has moved against what must hold."""
        if self.violation is not None:
            raise self.violation
        if self.cluster is None:
            return
        self._told = False
        self._look_at_controller()
        self._find_replicas(self.cluster)
        self._look_at_moved()
        self._look_at_whole_partitions()
        for log, failed in self._failed.items():
            self._judge(storage.takes_nothing_more(failed, _failed(failed.where, log)))

    # At what the controller has decided.

    @property
    def _eligible(self) -> bool:
        if self.cluster is None:
            return True
        config = self.cluster.configs[CONTROLLER]
        return config.understudy_eligible_leader_replicas_version > 0

    @property
    def _fences_fetches(self) -> bool:
        """They carry the leader epoch that their sender knows (KIP-320)."""
        if self.cluster is None:
            return True
        config = self.cluster.configs[CONTROLLER]
        return config.understudy_inter_broker_fetch_version >= FENCED_FETCH_VERSION

    @property
    def _may_be_unsure(self) -> bool:
        """Somebody in sync may lack what it had (`Contract`)."""
        return not (self._eligible and self._fences_fetches)

    def _newest_image(self) -> MetadataImage:
        controller = None if self.cluster is None else self.cluster.controller
        return self._image if controller is None else controller.image

    def _look_at_controller(self) -> None:
        assert self.cluster is not None, "only a cluster has a controller"
        controller = self.cluster.controller
        if controller is None or controller.image is self._image:
            return
        before, image = self._image, controller.image
        earlier = self._decided
        known = earlier if controller is self._controller else {}
        self._controller, self._image, self._decided = controller, image, {}
        registered = {
            broker_id
            for broker_id, broker in image.brokers.items()
            if broker_id not in before.brokers
            or before.brokers[broker_id].broker_epoch != broker.broker_epoch
        }
        for partition, topic_id, registration in image.partitions():
            decided = self._decided[partition] = self._decided_of(partition, registration)
            was = known.get(partition)
            if was is None or was.registration is not registration:
                self._touched[partition] = None
                self._hear_of_risk(partition, earlier.get(partition), registration)
            self._judge(leadership.isr_and_elr(decided))
            if was is not None and before.topic_id(partition.topic) == topic_id:
                self._judge(leadership.goes_on(was, decided, registered=registered))

    def _hear_of_risk(
        self, partition: TopicPartition, was: Decided | None, now: PartitionRegistration
    ) -> None:
        """An election is told of when it lasts; what the leader lacks is missed before."""
        if now.leader_recovery_state is LeaderRecoveryState.RECOVERING and was is not None:
            cause = "last known" if now.leader in was.registration.last_known_elr else "unclean"
            if was.registration.leader != now.leader:
                self.contract.elected(partition, node_name(now.leader), cause)

    def _decided_of(
        self, partition: TopicPartition, registration: PartitionRegistration
    ) -> Decided:
        assert self.cluster is not None, "only a cluster decides"
        image = self._image
        topic = image.topics[partition.topic].configs.get(MIN_ISR)
        cluster = image.broker_configs.get(None, {}).get(MIN_ISR)
        static = self.cluster.configs[CONTROLLER].min_insync_replicas
        return Decided(
            partition=partition,
            registration=registration,
            min_isr=min(int(topic or cluster or static), len(registration.replicas)),
            may_be_in_isr=image.may_join_isr,
            eligible=self._eligible,
        )

    # At single replicas.

    def _find_replicas(self, cluster: SimulatedCluster) -> None:
        """Watch those that have come online; let go of those that have gone."""
        found = set()
        for name, broker in cluster.brokers.items():
            replica_manager = getattr(broker, "replica_manager", None)  # none before it is up
            if replica_manager is None:
                continue
            for partition, replica in replica_manager.online.items():
                found.add((name, partition))
                watched = self._watched.get((name, partition))
                if watched is None or watched.replica is not replica:
                    self._watch(cluster, name, broker, replica)
        for gone in [each for each in self._watched if each not in found]:
            self._let_go(self._watched.pop(gone))

    def _watch(
        self, cluster: SimulatedCluster, name: str, broker: object, replica: Partition
    ) -> None:
        known = self._lives.get(name)
        if known is None or known[0] is not broker:
            known = self._lives[name] = (broker, 1 + (0 if known is None else known[1]))
        watched = _Watched(
            node=name,
            life=known[1],
            replica=replica,
            held=HeldLog(cluster.world.disk(name), replica.log),
            moved=self._moved,
        )
        self._watched[name, replica.topic_partition] = watched
        self._moved[watched] = None

    def _let_go(self, watched: _Watched) -> None:
        self._moved.pop(watched, None)
        watched.replica.settled.release(watched)
        log = watched.replica.log
        if log.failure is not None:
            where = f"{watched.replica.topic_partition} on {watched.node}"
            self._failed[log] = _failed(where, log)

    def _look_at_moved(self) -> None:
        while self._moved:
            watched, _ = self._moved.popitem()
            partition = watched.replica.topic_partition
            if watched.replica.topic_id != self._image.topic_id(partition.topic):
                continue  # of a topic that is gone, or not known to us yet
            before = self._last.get((watched.node, partition))
            now = self._last[watched.node, partition] = watched.look()
            if before is not None and before.topic_id == now.topic_id:
                self._judge(epochs.never_fall(before, now))
                self._judge(offsets.leader_grows(before, now))
                self._judge(offsets.waits_for_min_isr(before, now))
            self._judge(offsets.marks(now))
            if not watched.replica.log.config.is_compacted:
                self._judge(epochs.cache_is_derived(now, watched.held.epochs))
            if now.is_leader:
                self._judge(self._leads(now))
            self._touched[partition] = None
            if not self.is_let_off(partition):
                log = self._committed.setdefault(partition, CommittedLog())
                if watched.replica.log.config.is_compacted:
                    log.compact()
                self._judge(committed.below(log, now, watched.held))

    def _leads(self, replica: ReplicaState) -> Iterator[Wrong]:
        reign = replica.partition, replica.leader_epoch
        yield from leadership.one_leader(self._leaders.get(reign), replica)
        self._leaders.setdefault(reign, replica)

    # At all replicas of a partition.

    def _look_at_whole_partitions(self) -> None:
        for partition in self._touched:
            decided = self._decided.get(partition)
            if decided is not None and not self.is_let_off(partition):
                self._look_at_members(partition, decided)
        self._touched.clear()
        for (name, partition), leader_epoch in self._new_leaders.items():
            watched = self._watched.get((name, partition))
            if watched is not None and watched.last is not None:
                leads = watched.last.is_leader and watched.last.leader_epoch == leader_epoch
                if leads and not self.is_let_off(partition):
                    log = self._committed[partition]
                    self._judge(committed.elected(log, watched.last, watched.held))
        self._new_leaders.clear()

    def _look_at_members(self, partition: TopicPartition, decided: Decided) -> None:
        log = self._committed.setdefault(partition, CommittedLog())
        registration = decided.registration
        for broker_id in registration.replicas:
            watched = self._watched.get((node_name(broker_id), partition))
            if watched is None or watched.last is None or watched in self._moved:
                continue
            if broker_id in registration.isr:
                self._look_at_member(log, watched, watched.last, "is in the ISR")
            elif broker_id in registration.elr:
                self._look_at_member(log, watched, watched.last, "is in the ELR")
            if watched.replica.leadership is not None:
                # A proposal is no move: nobody who fetches is told of it.
                now = watched.look()
                self._judge(leadership.counts_everybody(now, registration))
                self._look_at_joining(watched, watched.replica.leadership, now)

    def _look_at_member(
        self, log: CommittedLog, watched: _Watched, now: ReplicaState, standing: str
    ) -> None:
        wrongs = list(committed.may_lead(log, now, watched.held, standing=standing))
        if not wrongs:
            self.contract.caught_up(now.partition, now.node)
        elif not (self._may_be_unsure and self.contract.is_unsure(now.partition, now.node)):
            self._judge(wrongs)

    def _look_at_joining(self, leader: _Watched, leads: Leadership, now: ReplicaState) -> None:
        """Whom it has asked to add, if that is the process whose fetches it has seen (KIP-903)."""
        if not isinstance(leads.isr_state, PendingExpand):
            return
        broker_id = leads.isr_state.joining
        joining = self._watched.get((node_name(broker_id), leader.replica.topic_partition))
        sent = {each.broker_id: each.broker_epoch for each in leads.isr_state.sent.isr}
        if joining is None or joining.last is None:
            return
        if sent.get(broker_id) == self._image.broker_epoch(broker_id):
            self._judge(committed.joining(now, joining.last))

    # Judging.

    def _judge(self, wrongs: Iterable[Wrong]) -> None:
        for wrong in wrongs:
            self.violation = InvariantViolatedError(wrong.rule, wrong.what)
            raise self.violation


def _failed(where: str, log: Log) -> FailedLog:
    return FailedLog(where, log.log_end_offset, log.size)
