"""The state of a cluster of processes, for its page: what Kafka's protocol tells, and what we know.

    who leads, who is in sync, LEO, lag                Kafka's protocol (`foreign_state.py`)
    each replica's HW and epochs                       its own node, on the line that steers it
    who is down or frozen, what is cut                 who steers them
    why a replica is out of the ISR, why one leads     the nodes' events

Rule: who does not answer, one that is frozen say, holds nobody up for long. Where no broker
answers what was seen last is shown.
"""

import attrs
import trio

from replication.cli.steered_processes import SeenReplica, SteeredProcesses
from replication.client.admin import Admin
from replication.client.errors import KafkaTimeoutError
from replication.cluster.interface import NodeStatus, NodeSummary
from replication.errors import KafkaError
from replication.net.clock import TrioClock
from replication.observe.cluster_state import (
    BrokerState,
    ClusterState,
    PartitionState,
    ReplicaState,
    Role,
    Status,
)
from replication.observe.foreign_state import ForeignState
from replication.observe.isr_reasons import IsrReasons
from storage.types import TopicPartition

ANSWER_MS = 1000
_STATUSES = {
    NodeStatus.RUNNING: Status.UP,
    NodeStatus.FROZEN: Status.FROZEN,
    NodeStatus.DOWN: Status.DOWN,
}


@attrs.define(eq=False)
class ProcessesState:
    """It can be looked at while `run` runs."""

    processes: SteeredProcesses
    reasons: IsrReasons
    _foreign: ForeignState | None = attrs.field(init=False, default=None)
    _seen: dict[tuple[TopicPartition, int], SeenReplica] = attrs.field(init=False, factory=dict)
    """The last of each replica, while its partition is there."""
    _last: ClusterState | None = attrs.field(init=False, default=None)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        servers = self.processes.cluster.bootstrap_servers
        async with Admin(
            servers, default_api_timeout_ms=2 * ANSWER_MS, request_timeout_ms=ANSWER_MS
        ) as admin:
            self._foreign = ForeignState(
                admin=admin, now_ms=TrioClock().now_ms, in_detail=True, timeout_ms=ANSWER_MS
            )
            task_status.started()
            await trio.sleep_forever()

    async def look_in_slices(self) -> ClusterState:
        assert self._foreign is not None, "it runs"
        try:
            told = await self._foreign.look()
            names = [each.topic_partition for each in told.partitions]
            self._seen |= await self.processes.replicas(names, timeout_ms=ANSWER_MS)
            there = frozenset(names)
            self._seen = {whose: each for whose, each in self._seen.items() if whose[0] in there}
            self._last = told
        except (KafkaError, KafkaTimeoutError):
            if self._last is None:
                raise
        return self._as_known(self._last)

    def _as_known(self, told: ClusterState) -> ClusterState:
        controller, *brokers = self.processes.nodes()
        alive = {each.id: each.status for each in told.brokers}
        statuses = {each.id: _status(each, alive.get(each.id)) for each in brokers}
        return attrs.evolve(
            told,
            now_ms=TrioClock().now_ms(),
            controller=controller.id,
            controller_status=_STATUSES[controller.status],
            brokers=tuple(_broker(each, statuses[each.id]) for each in brokers),
            partitions=tuple(self._partition(each, statuses) for each in told.partitions),
            cut=tuple(self.processes.cuts()),
        )

    def _partition(self, told: PartitionState, statuses: dict[int, Status]) -> PartitionState:
        why = self.reasons.of_leader(told.topic_partition)
        return attrs.evolve(
            told,
            why="" if why is None else why.text,
            replicas=tuple(self._replica(told, each, statuses) for each in told.replicas),
        )

    def _replica(
        self, partition: PartitionState, told: ReplicaState, statuses: dict[int, Status]
    ) -> ReplicaState:
        is_down = statuses.get(told.broker) is Status.DOWN
        seen = self._seen.get((partition.topic_partition, told.broker))
        if seen is not None:
            told = attrs.evolve(told, **attrs.asdict(seen, recurse=False))
        known = self.reasons.of_replica(partition.topic_partition, told.broker)
        return attrs.evolve(
            told,
            role=Role.DOWN if is_down else told.role,
            why=told.why if told.in_isr or known is None else known.text,
        )


def _status(node: NodeSummary, told: Status | None) -> Status:
    """One whose process runs, and of whom no broker tells as alive, is fenced."""
    status = _STATUSES[node.status]
    return Status.FENCED if status is Status.UP and told in (None, Status.DOWN) else status


def _broker(node: NodeSummary, status: Status) -> BrokerState:
    host, _, port = node.address.rpartition(":")
    return BrokerState(id=node.id, host=host, port=int(port), status=status)
