"""The state of a cluster whose nodes are in this process, read from the nodes themselves.

    leader, ISR, fenced brokers                 the newest image that any broker has
    LEO, HW, epochs of a replica                its own log
    since when a follower is behind             its leader
    the quorum                                  each node's copy of the metadata log

It only reads, and waits for nothing. Its cost is bounded: of more than `limit` partitions, those
in trouble are shown, and then the first by name.
"""

from collections.abc import Mapping

import trio

from replication.cluster.cluster import Cluster
from replication.leader.partition import Partition
from replication.leader.rules.isr import CommittedIsr, PendingExpand, PendingShrink
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.metadata.rules.records import METADATA_PARTITION
from replication.observe.cluster_state import (
    INTERNAL_PREFIX,
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedQuorum,
    ObservedQuorumNode,
    ObservedReplica,
    Role,
    Status,
    troubled_first,
)
from replication.observe.sentences import broker_name, broker_names
from replication.observe.state_reader import IsrReasons, StateReader
from replication.wire.metadata import NO_LEADER
from storage.attributes import frozen
from storage.types import TopicPartition

LIMIT = 500
SLICE = 16  # partitions, until other tasks of the loop have their turn


def reader_of_nodes(cluster: Cluster, reasons: IsrReasons) -> StateReader:
    """Return a reader of a cluster in this process, with the timeouts of its configuration."""
    config = cluster.configs[cluster.controller_ids[0]]
    return StateReader(
        source=NodesSource(cluster),
        reasons=reasons,
        session_ms=config.broker_session_timeout_ms,
        max_lag_ms=config.replica_lag_time_max_ms,
    )


@frozen(eq=False)
class NodesSource:
    """A cluster in this process; each partition is shown as of one instant."""

    cluster: Cluster
    limit: int = LIMIT

    async def find(self) -> ClusterState:
        image = self.cluster.image
        troubled = {name: _in_trouble(each) for name, _, each in image.partitions()}
        internal = frozenset(name for name in image.topics if name.startswith(INTERNAL_PREFIX))
        statuses = {each: self._status(image, each) for each in self.cluster.broker_ids}
        partitions = []
        for number, name in enumerate(troubled_first(troubled, internal, self.limit)):
            if number % SLICE == 0:
                await trio.lowlevel.checkpoint()
            registration = image.partition(name)
            assert registration is not None, "it was found in this image"
            partitions.append(self._partition(name, registration, statuses))
        controllers = self.cluster.controllers
        shown = self.cluster.active_controller
        if shown is None:
            shown = self.cluster.controller_ids[0]
        return ClusterState(
            now_ms=self.cluster.clock.now_ms(),
            cluster_id=self.cluster.cluster_id,
            controller=shown,
            controller_status=self._process_status(shown, runs=shown in controllers),
            brokers=tuple(self._broker(image, each, status) for each, status in statuses.items()),
            partitions=tuple(partitions),
            number_of_partitions=len(troubled),
            cut=tuple(sorted(self.cluster.cuts())),
            quorum=self._quorum(statuses),
        )

    def _quorum(self, brokers: Mapping[int, Status]) -> ObservedQuorum:
        """Return the quorum by the copies of the metadata log on the running nodes."""
        controllers = self.cluster.controllers
        leader = self.cluster.controller
        leads = leader is not None and bool(leader.port)
        ends = {
            each: node.log.log_end_offset for each, node in controllers.items() if node.port
        } | {
            each: log.log_end_offset
            for each, node in self.cluster.brokers.items()
            if node.hosted and (log := node.logs.get(METADATA_PARTITION)) is not None
        }
        return ObservedQuorum(
            leader=self.cluster.active_controller if leads else None,
            leader_epoch=leader.log.leading_epoch if leader is not None and leads else None,
            high_watermark=leader.log.high_watermark if leader is not None and leads else None,
            voters=tuple(
                ObservedQuorumNode(
                    id=each,
                    status=self._process_status(each, runs=each in controllers),
                    log_end_offset=ends.get(each),
                )
                for each in self.cluster.controller_ids
            ),
            observers=tuple(
                ObservedQuorumNode(id=each, status=status, log_end_offset=ends.get(each))
                for each, status in brokers.items()
                if each not in self.cluster.controller_ids
            ),
        )

    def _broker(self, image: MetadataImage, broker_id: int, status: Status) -> ObservedBroker:
        registration = image.broker(broker_id)
        listener = self.cluster.configs[broker_id].listeners[0]
        failure = self.cluster.failures.get(broker_id)
        return ObservedBroker(
            id=broker_id,
            host=listener.host,
            port=listener.port,
            status=status,
            why=f"down, and ended with an error: {failure}" if failure is not None else "",
            fenced=None if registration is None else registration.fenced,
        )

    def _status(self, image: MetadataImage, broker_id: int) -> Status:
        status = self._process_status(broker_id, runs=broker_id in self.cluster.brokers)
        if status is not Status.UP:
            return status
        registration = image.broker(broker_id)
        if registration is None:
            return Status.STARTING
        if registration.in_controlled_shutdown:
            return Status.LEAVING
        return Status.FENCED if registration.fenced else Status.UP

    def _process_status(self, node_id: int, *, runs: bool) -> Status:
        if not runs:
            return Status.DOWN
        return Status.FROZEN if node_id in self.cluster.frozen else Status.UP

    def _partition(
        self,
        name: TopicPartition,
        registration: PartitionRegistration,
        statuses: Mapping[int, Status],
    ) -> ObservedPartition:
        leads = self._leadership(name, registration)
        return ObservedPartition(
            topic=name.topic,
            partition=name.partition,
            leader=None if registration.leader == NO_LEADER else registration.leader,
            leader_epoch=registration.leader_epoch,
            isr=registration.isr,
            replicas=tuple(
                self._replica(name, registration, leads, each, statuses)
                for each in registration.replicas
            ),
            partition_epoch=registration.partition_epoch,
            min_isr=None if leads is None else leads.effective_min_isr,
            pending="" if leads is None else _pending(leads),
            is_internal=name.topic.startswith(INTERNAL_PREFIX),
        )

    def _leadership(
        self, name: TopicPartition, registration: PartitionRegistration
    ) -> Leadership | None:
        """Return what the leader knows; None if it does not know yet that it leads."""
        partition = self._hosted(name, registration.leader)
        if partition is None or partition.leader_epoch != registration.leader_epoch:
            return None
        return partition.leadership

    def _hosted(self, name: TopicPartition, broker_id: int) -> Partition | None:
        broker = self.cluster.brokers.get(broker_id)
        return None if broker is None else broker.hosted.get(name)

    def _replica(
        self,
        name: TopicPartition,
        registration: PartitionRegistration,
        leads: Leadership | None,
        broker_id: int,
        statuses: Mapping[int, Status],
    ) -> ObservedReplica:
        in_isr, behind_since_ms = broker_id in registration.isr, _behind_since(leads, broker_id)
        partition = self._hosted(name, broker_id)
        if partition is None:
            return ObservedReplica(
                broker=broker_id,
                role=Role.DOWN if statuses.get(broker_id) is Status.DOWN else Role.UNKNOWN,
                in_isr=in_isr,
                is_live=False,
                behind_since_ms=behind_since_ms,
            )
        log = partition.log
        return ObservedReplica(
            broker=broker_id,
            role=_role(partition, registration),
            in_isr=in_isr,
            leader_epoch=partition.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            behind_since_ms=behind_since_ms,
            epochs=tuple(log.leader_epoch_cache.entries),
            bytes=log.size,
        )


def _in_trouble(partition: PartitionRegistration) -> bool:
    return partition.leader == NO_LEADER or len(partition.isr) < len(partition.replicas)


def _role(partition: Partition, registration: PartitionRegistration) -> Role:
    if not partition.is_leader:
        return Role.FOLLOWER
    is_over = partition.leader_epoch < registration.leader_epoch
    return Role.DEPOSED if is_over else Role.LEADER


def _behind_since(leads: Leadership | None, broker_id: int) -> int | None:
    follower = None if leads is None else leads.followers.get(broker_id)
    if follower is None or follower.lag_ms(0) == -1:
        return None
    return follower.last_caught_up_ms


def _pending(leads: Leadership) -> str:
    match leads.isr_state:
        case CommittedIsr():
            return ""
        case PendingExpand(joining=joining):
            return f"asks the controller to add {broker_name(joining)}"
        case PendingShrink(leaving=leaving):
            return f"asks the controller to remove {broker_names(tuple(sorted(leaving)))}"
