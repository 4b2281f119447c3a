"""The state of a cluster whose nodes are in this process, read from the nodes themselves.

    who leads, who is in sync, who is fenced    the newest image that any broker has
    LEO, HW, epochs of a replica                its own log
    how far behind, and since when              what its leader knows of it
    why it is out of the ISR                    `IsrReasons`

Rule 1: it only reads, and waits for nobody. It costs what is shown: of more than `limit`
partitions those in trouble are, and then the first by name.

Rule 2: of a broker that is down the last figures that were seen are shown, as such.
"""

from collections.abc import Callable, Iterator, Mapping

import attrs

from replication.cluster.broker import Broker
from replication.cluster.cluster import CONTROLLER_ID, Cluster
from replication.isr import Committed, PendingExpand, PendingShrink
from replication.leadership import Leadership
from replication.metadata import NO_LEADER, MetadataImage, PartitionRegistration
from replication.observe.cluster_state import (
    INTERNAL_PREFIX,
    BrokerState,
    ClusterState,
    PartitionState,
    ReplicaState,
    Role,
    Status,
    troubled_first,
)
from replication.observe.isr_reasons import IsrReasons
from replication.observe.isr_words import ReplicaFacts, why_in_or_out
from replication.observe.sentences import broker_name, broker_names
from replication.partition import Partition
from storage.types import Offset, TopicPartition

LIMIT = 500


@attrs.define(eq=False, kw_only=True)
class LocalState:
    """Made once for a cluster; `look` says how it stands now."""

    cluster: Cluster
    reasons: IsrReasons
    frozen: Callable[[], frozenset[int]] = frozenset
    cut: Callable[[], frozenset[tuple[int, int]]] = frozenset
    limit: int = LIMIT
    _seen: dict[tuple[TopicPartition, int], ReplicaState] = attrs.field(init=False, factory=dict)

    def look(self) -> ClusterState:
        image, brokers, frozen = self.cluster.image, self.cluster.brokers, self.frozen()
        statuses = {each: self._status(image, each) for each in self.cluster.broker_ids}
        troubled = {
            partition: _in_trouble(registration)
            for partition, _, registration in image.partitions()
        }
        internal = frozenset(name for name in image.topics if name.startswith(INTERNAL_PREFIX))
        shown = troubled_first(troubled, internal, self.limit)
        looks = _Looks(self, image, brokers, statuses)
        partitions = tuple(looks.partition(each) for each in shown)
        self._remember(partitions)
        return ClusterState(
            now_ms=self.cluster.clock.now_ms(),
            cluster_id=image.cluster_id,
            controller=CONTROLLER_ID,
            controller_status=_of_node(
                self.cluster.controller is not None, CONTROLLER_ID in frozen
            ),
            brokers=tuple(self._broker(each, statuses[each]) for each in self.cluster.broker_ids),
            partitions=partitions,
            number_of_partitions=len(troubled),
            cut=tuple(sorted(self.cut())),
        )

    def last_seen(self, partition: TopicPartition, broker: int) -> ReplicaState | None:
        return self._seen.get((partition, broker))

    def _remember(self, partitions: tuple[PartitionState, ...]) -> None:
        self._seen = {
            (each.topic_partition, replica.broker): replica
            for each in partitions
            for replica in each.replicas
            if replica.log_end_offset is not None
        }

    def _broker(self, broker_id: int, status: Status) -> BrokerState:
        listener = self.cluster.configs[broker_id].listeners[0]
        failure = self.cluster.failures.get(broker_id)
        return BrokerState(
            id=broker_id,
            host=listener.host,
            port=listener.port,
            status=status,
            why=f"it has ended: {failure}" if failure is not None else "",
        )

    def _status(self, image: MetadataImage, broker_id: int) -> Status:
        status = _of_node(broker_id in self.cluster.brokers, broker_id in self.frozen())
        if status is not Status.UP:
            return status
        registration = image.broker(broker_id)
        if registration is None:
            return Status.STARTING
        if registration.in_controlled_shutdown:
            return Status.LEAVING
        return Status.FENCED if registration.fenced else Status.UP


def _of_node(runs: bool, is_frozen: bool) -> Status:  # noqa: FBT001 - two facts of a table
    if not runs:
        return Status.DOWN
    return Status.FROZEN if is_frozen else Status.UP


def _in_trouble(partition: PartitionRegistration) -> bool:
    return partition.leader == NO_LEADER or len(partition.isr) < len(partition.replicas)


@attrs.frozen
class _Looks:
    """One look: what is read once for all partitions."""

    state: LocalState
    image: MetadataImage
    brokers: Mapping[int, Broker]
    statuses: Mapping[int, Status]

    def partition(self, topic_partition: TopicPartition) -> PartitionState:
        registration = self.image.partition(topic_partition)
        assert registration is not None, "it was found in this image"
        leads = self._leadership(topic_partition, registration)
        reason = self.state.reasons.of_leader(topic_partition)
        return PartitionState(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            leader=None if registration.leader == NO_LEADER else registration.leader,
            leader_epoch=registration.leader_epoch,
            isr=registration.isr,
            replicas=tuple(
                self._replica(topic_partition, registration, leads, each)
                for each in registration.replicas
            ),
            why="" if reason is None else reason.text,
            partition_epoch=registration.partition_epoch,
            min_isr=None if leads is None else leads.effective_min_isr,
            pending="" if leads is None else _pending(leads),
            is_internal=topic_partition.topic.startswith(INTERNAL_PREFIX),
        )

    def _leadership(
        self, topic_partition: TopicPartition, registration: PartitionRegistration
    ) -> Leadership | None:
        """What the leader knows, if it has heard that it leads."""
        partition = self._hosted(topic_partition, registration.leader)
        if partition is None or partition.leader_epoch != registration.leader_epoch:
            return None
        return partition.leadership

    def _hosted(self, topic_partition: TopicPartition, broker_id: int) -> Partition | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.hosted.get(topic_partition)

    def _replica(
        self,
        topic_partition: TopicPartition,
        registration: PartitionRegistration,
        leads: Leadership | None,
        broker_id: int,
    ) -> ReplicaState:
        partition = self._hosted(topic_partition, broker_id)
        if partition is None:
            log = self._remembered(topic_partition, broker_id)
        else:
            log = _read(partition, registration, broker_id)
        lag = _lag(leads, log)
        behind_since_ms = None if not lag or leads is None else _behind_since(leads, broker_id)
        facts = ReplicaFacts(
            broker=broker_id,
            in_isr=broker_id in registration.isr,
            role=log.role,
            status=self.statuses.get(broker_id, Status.UNKNOWN),
            is_leader=broker_id == registration.leader,
            lag=lag,
            session_ms=self._session_ms,
            max_lag_ms=self._max_lag_ms,
        )
        reason = self.state.reasons.of_replica(topic_partition, broker_id)
        return attrs.evolve(
            log,
            in_isr=facts.in_isr,
            why=why_in_or_out(facts, "" if reason is None else reason.text),
            lag=lag,
            behind_since_ms=behind_since_ms,
        )

    def _remembered(self, topic_partition: TopicPartition, broker_id: int) -> ReplicaState:
        known = self.state.last_seen(topic_partition, broker_id)
        is_down = self.statuses.get(broker_id) is Status.DOWN
        role = Role.DOWN if is_down else Role.UNKNOWN
        if known is None:
            return ReplicaState(broker=broker_id, role=role, in_isr=False, why="", is_live=False)
        return attrs.evolve(known, role=role, is_live=False)

    @property
    def _session_ms(self) -> int:
        return self.state.cluster.configs[CONTROLLER_ID].broker_session_timeout_ms

    @property
    def _max_lag_ms(self) -> int:
        return self.state.cluster.configs[CONTROLLER_ID].replica_lag_time_max_ms


def _read(
    partition: Partition, registration: PartitionRegistration, broker_id: int
) -> ReplicaState:
    log = partition.log
    if not partition.is_leader:
        role = Role.FOLLOWER
    elif partition.leader_epoch < registration.leader_epoch:
        role = Role.DEPOSED
    else:
        role = Role.LEADER
    return ReplicaState(
        broker=broker_id,
        role=role,
        in_isr=False,
        why="",
        leader_epoch=partition.leader_epoch,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        epochs=tuple(log.leader_epoch_cache.entries),
        bytes=log.size,
    )


def _lag(leads: Leadership | None, log: ReplicaState) -> int | None:
    if leads is None or log.log_end_offset is None:
        return None
    return max(0, _end(leads) - log.log_end_offset)


def _end(leads: Leadership) -> Offset:
    return leads.log.log_end_offset


def _behind_since(leads: Leadership, broker_id: int) -> int | None:
    follower = leads.followers.get(broker_id)
    if follower is None or follower.lag_ms(0) == -1:
        return None
    return follower.last_caught_up_ms


def _pending(leads: Leadership) -> str:
    match leads.isr_state:
        case Committed():
            return ""
        case PendingExpand(joining=joining):
            return f"asks the controller to add {broker_name(joining)}"
        case PendingShrink(leaving=leaving):
            return f"asks the controller to drop {broker_names(tuple(sorted(leaving)))}"


def nodes(state: ClusterState) -> Iterator[tuple[int, Status]]:
    """Of every node, the controller's first."""
    yield CONTROLLER_ID, state.controller_status
    for broker in state.brokers:
        yield broker.id, broker.status
