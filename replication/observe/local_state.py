"""The state of a cluster whose nodes are in this process, read from the nodes themselves.

    who leads, who is in sync, who is fenced    the newest image that any broker has
    LEO, HW, epochs of a replica                its own log
    how far behind, and since when              what its leader knows of it
    why it is out of the ISR                    `IsrReasons`

Rule 1: it only reads, and waits for nobody. It costs what is shown: of more than `limit`
partitions those in trouble are, and then the first by name.

Rule 2: of a broker that is down the last figures that were seen are shown, as such.
"""

from collections.abc import Iterator, Mapping

import attrs
import trio

from replication.broker.broker import Broker
from replication.broker.nodes import CONTROLLER_ID
from replication.cluster.cluster import Cluster
from replication.leader.partition import Partition
from replication.leader.rules.isr import Committed, PendingExpand, PendingShrink
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules import NO_LEADER, MetadataImage, PartitionRegistration
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
from storage.types import Offset, TopicPartition

LIMIT = 500
SLICE = 16  # partitions, until others on this loop have their turn


@attrs.define(eq=False, kw_only=True)
class LocalState:
    """Made once for a cluster; `look` says how it stands now."""

    cluster: Cluster
    reasons: IsrReasons
    limit: int = LIMIT
    _seen: dict[tuple[TopicPartition, int], ReplicaState] = attrs.field(init=False, factory=dict)

    def look(self) -> ClusterState:
        """At one instant."""
        looks = self._begin()
        return self._end(looks, [looks.partition(each) for each in looks.shown])

    async def look_in_slices(self) -> ClusterState:
        """The same for whoever must not hold up the loop: each partition as of one instant."""
        looks = self._begin()
        partitions = []
        for number, each in enumerate(looks.shown):
            if number % SLICE == 0:
                await trio.lowlevel.checkpoint()
            partitions.append(looks.partition(each))
        return self._end(looks, partitions)

    def _begin(self) -> "_Looks":
        image = self.cluster.image
        troubled = {
            partition: _in_trouble(registration)
            for partition, _, registration in image.partitions()
        }
        internal = frozenset(name for name in image.topics if name.startswith(INTERNAL_PREFIX))
        return _Looks(
            state=self,
            image=image,
            statuses={each: self._status(image, each) for each in self.cluster.broker_ids},
            shown=troubled_first(troubled, internal, self.limit),
            number_of_partitions=len(troubled),
        )

    def _end(self, looks: "_Looks", partitions: list[PartitionState]) -> ClusterState:
        self._remember(partitions)
        controls = self.cluster.controller is not None
        return ClusterState(
            now_ms=self.cluster.clock.now_ms(),
            cluster_id=looks.image.cluster_id,
            controller=CONTROLLER_ID,
            controller_status=_of_node(controls, CONTROLLER_ID in self.cluster.frozen),
            brokers=tuple(self._broker(each, status) for each, status in looks.statuses.items()),
            partitions=tuple(partitions),
            number_of_partitions=looks.number_of_partitions,
            cut=tuple(sorted(self.cluster.cuts())),
        )

    def last_seen(self, partition: TopicPartition, broker: int) -> ReplicaState | None:
        return self._seen.get((partition, broker))

    def _remember(self, partitions: list[PartitionState]) -> None:
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
        status = _of_node(broker_id in self.cluster.brokers, broker_id in self.cluster.frozen)
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


@attrs.frozen(kw_only=True)
class _Looks:
    """One look: what is read once for all partitions."""

    state: LocalState
    image: MetadataImage
    statuses: Mapping[int, Status]
    shown: list[TopicPartition]
    number_of_partitions: int
    brokers: Mapping[int, Broker] = attrs.field(init=False)
    _session_ms: int = attrs.field(init=False)
    _max_lag_ms: int = attrs.field(init=False)

    @brokers.default
    def _running(self) -> Mapping[int, Broker]:
        return self.state.cluster.brokers

    @_session_ms.default
    def _session(self) -> int:
        return self.state.cluster.configs[CONTROLLER_ID].broker_session_timeout_ms

    @_max_lag_ms.default
    def _max_lag(self) -> int:
        return self.state.cluster.configs[CONTROLLER_ID].replica_lag_time_max_ms

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
        name: TopicPartition,
        registration: PartitionRegistration,
        leads: Leadership | None,
        broker_id: int,
    ) -> ReplicaState:
        partition = self._hosted(name, broker_id)
        if partition is None:
            return self._remembered(name, registration, leads, broker_id)
        log = partition.log
        role = _role(partition, registration)
        lag = _lag(leads, log.log_end_offset)
        return ReplicaState(
            broker=broker_id,
            role=role,
            in_isr=broker_id in registration.isr,
            why=self._why(name, registration, broker_id, role=role, lag=lag),
            leader_epoch=partition.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            lag=lag,
            behind_since_ms=_behind_since(leads, broker_id) if lag else None,
            epochs=tuple(log.leader_epoch_cache.entries),
            bytes=log.size,
        )

    def _remembered(
        self,
        name: TopicPartition,
        registration: PartitionRegistration,
        leads: Leadership | None,
        broker_id: int,
    ) -> ReplicaState:
        """What was seen last of one that is not there."""
        is_down = self.statuses.get(broker_id) is Status.DOWN
        role = Role.DOWN if is_down else Role.UNKNOWN
        known = self.state.last_seen(name, broker_id)
        if known is None:
            known = ReplicaState(broker=broker_id, role=role, in_isr=False, why="")
        lag = _lag(leads, known.log_end_offset)
        return attrs.evolve(
            known,
            role=role,
            in_isr=broker_id in registration.isr,
            why=self._why(name, registration, broker_id, role=role, lag=lag),
            is_live=False,
            lag=lag,
            behind_since_ms=_behind_since(leads, broker_id) if lag else None,
        )

    def _why(
        self,
        name: TopicPartition,
        registration: PartitionRegistration,
        broker_id: int,
        *,
        role: Role,
        lag: int | None,
    ) -> str:
        facts = ReplicaFacts(
            in_isr=broker_id in registration.isr,
            role=role,
            status=self.statuses.get(broker_id, Status.UNKNOWN),
            is_leader=broker_id == registration.leader,
            lag=lag,
            session_ms=self._session_ms,
            max_lag_ms=self._max_lag_ms,
        )
        reason = self.state.reasons.of_replica(name, broker_id)
        return why_in_or_out(facts, "" if reason is None else reason.text)


def _role(partition: Partition, registration: PartitionRegistration) -> Role:
    if not partition.is_leader:
        return Role.FOLLOWER
    is_over = partition.leader_epoch < registration.leader_epoch
    return Role.DEPOSED if is_over else Role.LEADER


def _lag(leads: Leadership | None, log_end_offset: Offset | None) -> int | None:
    if leads is None or log_end_offset is None:
        return None
    return max(0, leads.log.log_end_offset - log_end_offset)


def _behind_since(leads: Leadership | None, broker_id: int) -> int | None:
    follower = None if leads is None else leads.followers.get(broker_id)
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
