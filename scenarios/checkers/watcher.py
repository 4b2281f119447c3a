"""Pass events, and the state of every replica, to the rules.

event     what it shows by itself is judged at once; what follows from it, at the next look
look      before any message is received anywhere, if a replica has changed or an event was
          reported; and after every line of a story. Then every task waits, and no change is
          half done

The file is long because all rules are called from here, each with the state that it judges.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator

import attrs

from replication.cluster.interface import NotInTimeError
from replication.events import (
    BecameLeader,
    BrokerRegistered,
    BrokerStopped,
    Event,
    IsrChanged,
    IsrChangeRefused,
    LeaderElected,
    LogDirectoryFailed,
    LogRecovered,
    LogTruncated,
    PartitionFailed,
    PartitionStopped,
)
from replication.leader.rules.isr import PendingExpand
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules.records import METADATA_PARTITION
from replication.wire.produce import ACKS_ALL
from scenarios.checkers import committed, contract, ends, epochs, leadership, offsets
from scenarios.checkers.committed import CommittedLog
from scenarios.checkers.contract import Budget, Contract
from scenarios.checkers.controllers import WatchedControllers
from scenarios.checkers.decisions import Decisions, PartitionDecision
from scenarios.checkers.ends import ClusterResources, left_over, resources_in_use
from scenarios.checkers.leadership import Decided
from scenarios.checkers.observed import InvariantViolatedError, OnlineReplica, Wrong
from scenarios.checkers.replicas import Replicas, Watched
from scenarios.checkers.sessions import SessionSlots
from scenarios.world.client import BatchAnswered, RecordsGiven
from scenarios.world.cluster import SimulatedCluster, node_id_of, node_name
from scenarios.world.trace import (
    SIMULATOR,
    BitFlipped,
    DiskLies,
    DiskReplaced,
    FileRotted,
    NodeKilled,
    NodeStopped,
    PowerCut,
    TopicMadeAgain,
    WriteMisdirected,
)
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen
class _Made:
    """A topic, and the time since when every broker knows it by its name."""

    topic_id: TopicId | None
    at: float


@attrs.define(eq=False, repr=False)
class Checkers:
    """All checkers of one run. They are made before the cluster, whose watcher they are."""

    cluster: SimulatedCluster | None = None
    violation: InvariantViolatedError | None = attrs.field(default=None, init=False)
    """The first violation; later ones are consequences of it and are not looked for."""
    contract: Contract = attrs.field(factory=Contract, init=False)
    replicas: Replicas = attrs.field(factory=Replicas, init=False)
    budget: Budget = attrs.field(factory=Budget, init=False)
    decisions: Decisions = attrs.field(factory=Decisions, init=False)
    controllers: WatchedControllers = attrs.field(factory=WatchedControllers, init=False)
    sessions: SessionSlots = attrs.field(factory=SessionSlots, init=False)
    unclean_requested: set[TopicPartition] = attrs.field(factory=set, init=False)
    """The partitions for which an operator prefers a leader to what was committed."""
    _committed: dict[TopicPartition, CommittedLog] = attrs.field(factory=dict, init=False)
    _made: dict[TopicPartition, _Made] = attrs.field(factory=dict, init=False)
    # Whether events were reported since the last look.
    _has_news: bool = attrs.field(default=False, init=False)
    _new_leaders: dict[tuple[str, TopicPartition], LeaderEpoch] = attrs.field(
        factory=dict, init=False
    )
    # The partitions of which all replicas are to be looked at.
    _touched: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)
    # The last state of every replica that ever was, even if it is down.
    _last: dict[tuple[str, TopicPartition], OnlineReplica] = attrs.field(factory=dict, init=False)
    _leaders: dict[tuple[TopicPartition, LeaderEpoch], OnlineReplica] = attrs.field(
        factory=dict, init=False
    )
    _at_first: ClusterResources | None = attrs.field(default=None, init=False)
    # The nodes whose last shutdown was clean.
    _in_good_order: set[str] = attrs.field(factory=set, init=False)

    # Questions.

    def may_have_lost(self, partition: TopicPartition) -> bool:
        """Return whether an election may have lost committed records of a partition."""
        return partition in self.contract.may_have_lost

    def lost_until(self, partition: TopicPartition) -> float:
        """Return the time until which records sent to a partition may be lost; -inf for none."""
        return self.contract.lost_until.get(partition, -math.inf)

    @property
    def any_may_have_lost(self) -> bool:
        return bool(self.contract.may_have_lost)

    # Events.

    def __call__(self, event: Event) -> None:
        """Judge an event; an error that this raises ends the node that reported it."""
        if self.violation is None:
            self._has_news = True
            self._on_event(event)
            self._on_disk_event(event)
            self._judge(self.sessions.taken(event))

    def _on_event(self, event: Event) -> None:
        match event:
            case LeaderElected(partition=partition, leader_epoch=leader_epoch, cause=cause):
                if cause == "created":
                    self._begin(partition)
                watched = not self._may_be_unsure
                self._elected(partition, event.leader, leader_epoch, cause, watched=watched)
            case IsrChanged(partition=partition, isr=isr, previous_isr=previous):
                for broker_id in set(isr) - set(previous):
                    self.budget.ended.joined(partition, node_name(broker_id))
                    self._joined(partition, broker_id)
            case PowerCut(node=name) | DiskReplaced(node=name):
                self.contract.lost_its_disk(name)
                self.budget.ended.affect(name)
            case (
                BitFlipped(node=name, partition=partition)
                | WriteMisdirected(node=name, partition=partition)
            ):
                self.contract.rotted(partition, name)
                self.budget.rotted(partition, name)
            case PartitionStopped(partition=partition, deleted=True) if (
                not self.decisions.fetches_are_fenced
            ):
                self.contract.deleted_its_log(partition, self._reporter(event))
            case BrokerRegistered(broker=broker_id, previous_broker_epoch=previous):
                # A request repeated by the same process keeps the broker epoch (KAFKA-16952).
                if event.broker_epoch != previous:
                    self._registered(broker_id)
            case BecameLeader(partition=partition, leader_epoch=leader_epoch):
                self._new_leaders[self._reporter(event), partition] = leader_epoch
            case LogTruncated():
                self._cut(event)
            case _:
                self._on_other_event(event)

    def _on_other_event(self, event: Event) -> None:
        match event:
            case PartitionFailed():
                self._judge(offsets.failed_append(event))
            case BrokerStopped(broker=broker_id, clean=True):
                self._in_good_order.add(node_name(broker_id))
                self.budget.in_good_order.add(node_name(broker_id))
            case LogRecovered(partition=partition, clean=False):
                self.budget.found_lacking(partition, self._reporter(event))
            case NodeStopped(node=name):
                self.budget.stopped(name)
            case NodeKilled(node=name):
                self.budget.ended.affect(name)
            case BatchAnswered(partition=partition, end=int(end)) if event.acks == ACKS_ALL:
                if self._is_about_present_topic(partition, event.sent_at):
                    self._judge_offsets(committed.acked, partition, end)
            case IsrChangeRefused(partition=partition):
                self._touched[partition] = None  # no fetch session sees it
            case RecordsGiven(partition=partition, end=end):
                if self._is_about_present_topic(partition, event.asked_at):
                    self._judge_offsets(committed.given, partition, end)
            case TopicMadeAgain(topic=topic):
                self._made_again(topic)
            case _:
                pass

    def _on_disk_event(self, event: Event) -> None:
        match event:
            case (
                DiskLies(node=name)
                | DiskReplaced(node=name)
                | BitFlipped(node=name)
                | WriteMisdirected(node=name)
            ):
                self.replicas.untrusted(name)
                if name in self._controller_names and not _is_of_a_partition(event):
                    self.controllers.untrusted()
            case FileRotted(node=name, path=path) if self.cluster is not None:
                if (rotten := self.cluster.world.disk(name).node(path)) is not None:
                    self.replicas.rotten.append(rotten)
            case LogDirectoryFailed():
                self.replicas.untrusted(self._reporter(event))
                self.budget.lost_a_directory(self._reporter(event))
            case PartitionStopped(partition=partition, deleted=True):
                self.replicas.deleted(self._reporter(event), partition)
            case LogRecovered(partition=partition, log_end_offset=log_end):
                node = self._reporter(event)
                self._judge(self.replicas.recovered(node, partition, log_end))
            case _:
                pass

    @property
    def _controller_names(self) -> list[str]:
        return [] if self.cluster is None else self.cluster.controller_names

    @property
    def _now(self) -> float:
        return 0.0 if self.cluster is None else self.cluster.clock.now()

    def _reporter(self, event: Event) -> str:
        """Return the node that reported an event, which the trace has recorded just before."""
        entries = [] if self.cluster is None else self.cluster.world.trace.entries
        return entries[-1].node if entries and entries[-1].event is event else SIMULATOR

    def _is_about_present_topic(self, partition: TopicPartition, asked_at: float) -> bool:
        """Return whether an answer surely is about the present topic of that name."""
        made = self._made.get(partition)
        return made is None or (
            asked_at >= made.at and self._decided_id(partition) == made.topic_id
        )

    def _decided_id(self, partition: TopicPartition) -> TopicId | None:
        controller = None if self.cluster is None else self.cluster.controller
        image = self.decisions.image if controller is None else controller.image
        return image.topic_id(partition.topic)

    def _begin(self, partition: TopicPartition) -> None:
        """Begin with a new partition; forget a former one of its name.

        A partition is begun with when it is reported or when it is decided, whichever is first: a
        controller may decide, lose its power and report nothing.
        """
        formerly, topic_id = self._made.get(partition), self._decided_id(partition)
        if formerly is not None and formerly.topic_id == topic_id:
            return
        made = self._now if formerly is None else math.inf  # until every broker knows
        self._made[partition] = _Made(topic_id, made)
        self.contract.created(partition)
        self._committed[partition] = CommittedLog()
        for epoch in [each for each in self._leaders if each[0] == partition]:
            del self._leaders[epoch]

    def _made_again(self, topic: str) -> None:
        """Record that every broker knows the new topic of that name by now."""
        for partition in [each for each in self._made if each.topic == topic]:
            self._made[partition] = attrs.evolve(self._made[partition], at=self._now)

    def _registered(self, broker_id: int) -> None:
        name = node_name(broker_id)
        self.contract.registered(name)
        self.budget.ended.registered(name)
        if name not in self._in_good_order and self.decisions.eligible:
            self.look()
            for partition, _, registration in self.decisions.image.partitions():
                self._judge(leadership.excluded(broker_id, partition, registration))
        self._in_good_order.discard(name)

    def _elected(
        self,
        partition: TopicPartition,
        leader: int,
        leader_epoch: LeaderEpoch,
        cause: str,
        *,
        watched: bool = True,
    ) -> None:
        """Record an election. It arrives twice, in either order: when it is decided and when it is
        durable.
        """
        name = node_name(leader)
        may_lose = self.contract.elected(partition, name, cause, watched=watched, at=self._now)
        lost_before = self._log(partition).since
        if may_lose and lost_before < leader_epoch:
            if cause == "last known" and self.decisions.fetches_are_named:
                self._judge(contract.within(self.budget, partition, name))
            if lost_before and self._isr_outlives_a_loss:
                # It may have kept what the others truncated.
                for each in self.replicas.of(partition):
                    if each.node != name:
                        self.contract.followed_a_loss(partition, each.node)
            self._committed[partition] = CommittedLog(since=leader_epoch)
            for each in self.replicas.of(partition):
                each.held.agreed = 0

    def _joined(self, partition: TopicPartition, broker_id: int) -> None:
        """Record that a broker has joined the ISR; the event comes later than the decision."""
        formerly = not self.decisions.fetches_are_named
        self.contract.joined(partition, node_name(broker_id), perhaps_formerly=formerly)

    def _log(self, partition: TopicPartition) -> CommittedLog:
        return self._committed.setdefault(partition, CommittedLog())

    def _is_compared(self, log: CommittedLog, replica: OnlineReplica) -> bool:
        return replica.leader_epoch >= log.since and self.lost_until(replica.partition) < math.inf

    def _cut(self, event: LogTruncated) -> None:
        watched = self.replicas.get(self._reporter(event), event.partition)
        before = None if watched is None else watched.last
        if not self.may_have_lost(event.partition):
            log_start = 0 if before is None else before.log_start
            self._judge(offsets.cut(event, log_start=log_start))
        if watched is not None and before is not None:
            now = attrs.evolve(before, is_leader=watched.replica.is_leader)
            self._judge(offsets.leader_truncates(event, now))
            if self.replicas.is_trusted(watched.node):
                self._judge(watched.look_at_cut(event.to_offset))

    def _judge_offsets(
        self, rule: committed.ResponseRule, partition: TopicPartition, end: Offset
    ) -> None:
        self.look()
        log = self._committed.get(partition)
        if log is not None and not self.may_have_lost(partition):
            self._judge(rule(partition, end=end, committed_end=log.end))

    def cluster_is_up(self) -> None:
        """Record what is in use when the cluster has just come up."""
        assert self.cluster is not None, "it has been set"
        self._at_first = resources_in_use(self.cluster)

    # Looks.

    def before_receipt(self) -> None:
        """Look, if anything has changed, before a message is received."""
        if self.violation is not None:
            return
        if self.replicas.moved or self._has_news:
            self.look()
        else:
            self._look_at_controllers()

    def before_power_cut(self, name: str) -> None:
        """Check what a node has of its logs on the platter; the next look raises what is wrong."""
        if self.violation is None and self.replicas.is_trusted(name):
            with contextlib.suppress(InvariantViolatedError):
                for watched in self.replicas.at(name):
                    self._judge(watched.look_without_power(self.replicas.rotten))

    def look(self) -> None:
        """Check everything that has changed against the rules."""
        if self.violation is not None:
            raise self.violation
        if self.cluster is None:
            return
        self._look_at_controllers()
        for decision in self.decisions.look(self.cluster.controller):
            self._look_at_decision(decision)
        if self._has_news:
            self.replicas.find(self.cluster)
            self._judge(self.replicas.gone())
            for watched in self.replicas.take_just_failed():
                self._note_last_commit(watched)
            for before, after in self.replicas.failed():
                self._judge(offsets.appends_nothing_more(before, after))
        self._has_news = False
        self._look_at_moved()
        self._look_at_whole_partitions()

    def _look_at_controllers(self) -> None:
        assert self.cluster is not None, "there are no messages before there are nodes"
        self._judge(self.controllers.look(self.cluster))

    def judge_answered(self) -> None:
        """Check that the committed metadata has what administrators were answered."""
        self.look()
        self._judge(self.controllers.judge_answered())

    async def judge_the_end(self, partition: TopicPartition, *, alone: bool = True) -> None:
        """Check a partition once every node is up and idle (`ends`).

        `alone`: none of our own clients has taken part, for which brokers would coordinate groups
        or transactions from then on.
        """
        cluster = self.cluster
        assert cluster is not None, "only a cluster comes to an end"
        await ends.until_answered(cluster)

        def differs() -> list[Wrong]:
            return list(self._differs_in_the_end(cluster, partition))

        with contextlib.suppress(NotInTimeError):  # a batch with acks=0 may come late
            await cluster.until(lambda: not differs(), what=f"{partition} is the same")
        self.look()
        self._judge(differs())
        for name, broker in cluster.brokers.items():
            self._judge(ends.answered(name, ends.waiting(broker)))
            self._judge(ends.tidy(cluster, name, broker))
        if alone and self._at_first is not None and cluster.is_undisturbed:
            await self._judge_leftovers(cluster, self._at_first)

    async def _judge_leftovers(self, cluster: SimulatedCluster, at_first: ClusterResources) -> None:
        def found() -> list[Wrong]:
            return list(left_over(at_first, resources_in_use(cluster)))

        with contextlib.suppress(NotInTimeError):  # a client that was just answered disconnects
            await cluster.until(lambda: not found(), what="nothing is left over")
        self._judge(found())

    def _differs_in_the_end(
        self, cluster: SimulatedCluster, partition: TopicPartition
    ) -> Iterator[Wrong]:
        self.look()
        registration = cluster.partition(partition)
        members = [] if registration is None else registration.isr
        found = [self.replicas.get(node_name(each), partition) for each in members]
        online = [each for each in found if each is not None]
        compacted = any(each.replica.log.config.is_compacted for each in online)
        yield from ends.converged([each.look() for each in online], compacted=compacted)

    # Looks at decisions of the controller.

    def _look_at_decision(self, decision: PartitionDecision) -> None:
        after, before = decision.after, decision.before
        partition, registration = after.partition, after.registration
        if before is None:
            self._begin(partition)
        self.budget.decided(before, after)
        if decision.is_new:
            self._touched[partition] = None
            if decision.goes_on and not self.decisions.fetches_are_named:
                for broker_id in decision.asked_to_join:
                    self._joined(partition, broker_id)
            if decision.risk == "unclean":
                self.budget.forgo(partition)
            if decision.risk:
                leader, leader_epoch = registration.leader, registration.leader_epoch
                self._elected(partition, leader, leader_epoch, decision.risk)
        self._judge(leadership.isr_and_elr(after))
        if before is not None and decision.goes_on:
            self._judge(leadership.goes_on(before, after, registered=decision.registered))
            asked = partition in self.unclean_requested
            self._judge(leadership.at_risk(before, after, decision.risk, asked=asked))

    @property
    def _may_be_unsure(self) -> bool:
        """Whether a member of the ISR may lack what it had (`Contract`)."""
        return not (self.decisions.eligible and self.decisions.fetches_are_fenced)

    # Looks at single replicas.

    def _look_at_moved(self) -> None:
        while self.replicas.moved:
            watched, _ = self.replicas.moved.popitem()
            partition = watched.replica.topic_partition
            if watched.replica.topic_id != self.decisions.image.topic_id(partition.topic):
                continue  # its topic is gone, or not known here yet
            before = self._last.get((watched.node, partition))
            now = self._last[watched.node, partition] = watched.look()
            if before is not None and before.topic_id == now.topic_id:
                self._judge(epochs.never_fall(before, now))
                self._judge(offsets.leader_grows(before, now))
                self._judge(offsets.waits_for_min_isr(before, now))
            self._judge(offsets.marks(now))
            self._judge(epochs.none_is_later(now))
            if self.replicas.is_trusted(watched.node):
                self._judge(watched.look_at_platter(self.replicas.rotten))
            if not watched.replica.log.config.is_compacted:
                self._judge(epochs.cache_is_derived(now, watched.held.scanned()))
                latest = self.replicas.latest_log_start(partition)
                is_trusted = self.replicas.is_trusted(watched.node)
                self._judge(
                    watched.look_at_producers(latest_log_start=latest, is_trusted=is_trusted)
                )
            self._judge(leadership.followed_once(now, watched.fetchers))
            if now.is_leader:
                self._judge(self._leads(now))
            self._touched[partition] = None
            log = self._log(partition)
            if watched.replica.log.config.is_compacted:
                log.compact()
            if self.may_have_lost(partition):
                self._look_at_lossy_partition(log, watched, before, now)
            else:
                self._judge(committed.below(log, now, watched.held))

    def _note_last_commit(self, watched: Watched) -> None:
        """Note what a replica has committed, and acknowledged, in the moment in which its log failed."""
        partition, topic_id = watched.replica.topic_partition, watched.replica.topic_id
        present = topic_id == self.decisions.image.topic_id(partition.topic)
        if present and not self.may_have_lost(partition):
            self._log(partition).reach(watched.replica.log.high_watermark)

    def _look_at_lossy_partition(
        self, log: CommittedLog, watched: Watched, before: OnlineReplica | None, now: OnlineReplica
    ) -> None:
        """Check a replica after an election that may have lost records.

        A follower may still have to truncate below what it knows as committed: it is checked once
        it is in sync.
        """
        decided = self.decisions.of(now.partition)
        if now.is_leader and decided and now.leader_epoch < decided.registration.leader_epoch:
            self.contract.led_still(now.partition, at=self._now)
        if now.is_leader and self._is_compared(log, now):
            if before and self._may_have_kept(log, before, now):
                for name in set(map(node_name, now.isr)) - {now.node}:
                    self.contract.followed_a_loss(now.partition, name)
            self._judge(committed.below(log, now, watched.held))

    def _may_have_kept(self, log: CommittedLog, before: OnlineReplica, now: OnlineReplica) -> bool:
        """Return whether a new leader may still have what other members of the ISR truncated."""
        if before.life != now.life or now.leader_epoch <= log.since:
            return False
        followed = before.leader_epoch == log.since and not before.is_leader
        return before.leader_epoch < log.since or (followed and self._isr_outlives_a_loss)

    @property
    def _isr_outlives_a_loss(self) -> bool:
        """Whether the ISR may stay as it is when a leader is elected that lacks records."""
        return self._may_be_unsure or not self.decisions.fetches_are_named

    def _leads(self, replica: OnlineReplica) -> Iterator[Wrong]:
        leader_epoch = replica.partition, replica.leader_epoch
        yield from leadership.one_leader(self._leaders.get(leader_epoch), replica)
        self._leaders.setdefault(leader_epoch, replica)

    # Looks at all replicas of a partition.

    def _look_at_whole_partitions(self) -> None:
        for partition in self._touched:
            decided = self.decisions.of(partition)
            if decided is not None:
                self._look_at_members(partition, decided)
        self._touched.clear()
        for (name, partition), leader_epoch in self._new_leaders.items():
            watched = self.replicas.get(name, partition)
            if watched is not None and watched.last is not None:
                leads = watched.last.is_leader and watched.last.leader_epoch == leader_epoch
                log = self._log(partition)
                if leads and self._is_compared(log, watched.last):
                    self._judge(committed.elected(log, watched.last, watched.held))
        self._new_leaders.clear()

    def _look_at_members(self, partition: TopicPartition, decided: Decided) -> None:
        log, registration = self._log(partition), decided.registration
        for broker_id in registration.replicas:
            watched = self.replicas.get(node_name(broker_id), partition)
            if watched is None or watched.last is None or watched in self.replicas.moved:
                continue
            if watched.last.topic_id != self.decisions.image.topic_id(partition.topic):
                continue  # a former topic of that name
            is_held = self._is_compared(log, watched.last)
            if is_held and broker_id in registration.isr:
                self._look_at_member(log, watched, watched.last, "is in the ISR")
            elif is_held and broker_id in registration.elr:
                self._look_at_member(log, watched, watched.last, "is in the ELR")
            if watched.replica.leadership is not None:
                # A proposal unsettles no fetch session, so it is read here.
                now = watched.look()
                self._judge(leadership.counts_the_isr(now, registration))
                if is_held:
                    self._look_at_joining(watched, watched.replica.leadership, now)

    def _look_at_member(
        self, log: CommittedLog, watched: Watched, now: OnlineReplica, standing: str
    ) -> None:
        wrongs = list(committed.may_lead(log, now, watched.held, standing=standing))
        if not wrongs:
            if (
                self.contract.is_unproven(now.partition, now.node)
                and not self._is_overrated(now)
                and not self._has_a_member_of_before(log, now.partition)
            ):
                self.contract.caught_up(now.partition, now.node)
        elif not self._is_excused(now.partition, now.node):
            self._judge(wrongs)

    def _is_overrated(self, replica: OnlineReplica) -> bool:
        """Return whether a leader counts a replica for what a former process of it had."""
        broker_id = node_id_of(replica.node)
        leaders = [each.replica.leadership for each in self.replicas.of(replica.partition)]
        counted = [each.followers.get(broker_id) for each in leaders if each is not None]
        return any(each is not None and each.log_end_offset > replica.log_end for each in counted)

    def _has_a_member_of_before(self, log: CommittedLog, partition: TopicPartition) -> bool:
        """Return whether a member of the ISR has not heard of the leader that lost records, or has not
        truncated to it: it may lead next, and show more.
        """
        decided = self.decisions.of(partition)
        isr = () if decided is None else decided.registration.isr
        members = [self.replicas.get(node_name(each), partition) for each in isr]
        seen = [each.last for each in members if each is not None and each.last is not None]
        return any(each.leader_epoch < log.since or each.log_end > log.end for each in seen)

    def _is_excused(self, partition: TopicPartition, node: str) -> bool:
        unsure = self._may_be_unsure and self.contract.is_unsure(partition, node)
        return unsure or self.contract.is_unproven(partition, node)

    def _look_at_joining(self, leader: Watched, leads: Leadership, now: OnlineReplica) -> None:
        """Check the replica that the leader has asked to add, if it is still the process whose
        fetches the leader has seen (KIP-903).
        """
        if not isinstance(leads.isr_state, PendingExpand):
            return
        broker_id = leads.isr_state.joining
        joining = self.replicas.get(node_name(broker_id), leader.replica.topic_partition)
        sent = {each.broker_id: each.broker_epoch for each in leads.isr_state.sent.isr}
        if joining is None or joining.last is None:
            return
        if sent.get(broker_id) == self.decisions.image.broker_epoch(broker_id):
            self._judge(committed.joining(now, joining.last))

    # Verdicts.

    def _judge(self, wrongs: Iterable[Wrong]) -> None:
        for wrong in wrongs:
            self.violation = InvariantViolatedError(wrong.rule, wrong.what)
            raise self.violation


def _is_of_a_partition(event: Event) -> bool:
    """Return whether the records of a partition that brokers keep are damaged."""
    if isinstance(event, BitFlipped | WriteMisdirected):
        return event.partition != METADATA_PARTITION
    return False
