"""The state of a cluster of processes, for its page.

    leader, ISR, LEO                       Kafka's protocol (`protocol_source.py`)
    each replica's HW and epochs           its own node, on the line that steers it
    which nodes are down or frozen, cuts   the process that steers them
    the quorum                             Kafka's protocol, in a task of its own

A node that does not answer, such as a frozen one, delays the others only for ANSWER_MS.
While no broker answers, the last known state is shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from replication.cli.steered_processes import SteeredProcesses
from replication.client.admin import Admin
from replication.client.errors import KafkaTimeoutError
from replication.cluster.interface import NodeStatus, NodeSummary
from replication.errors import KafkaError
from replication.net.clock import TrioClock
from replication.observe.cluster_state import (
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedQuorum,
    ObservedQuorumNode,
    ObservedReplica,
    Role,
    Status,
)
from replication.observe.protocol_source import ProtocolSource, QuorumSource
from replication.observe.state_reader import IsrReasons, StateReader, StateSource
from storage.attributes import define

ANSWER_MS = 1000
QUORUM_SECONDS = 0.2  # between two questions about the quorum
_STATUSES = {
    NodeStatus.RUNNING: Status.UP,
    NodeStatus.FROZEN: Status.FROZEN,
    NodeStatus.DOWN: Status.DOWN,
}


async def reading_processes(
    processes: SteeredProcesses,
    reasons: IsrReasons,
    task_status: trio.TaskStatus[StateReader] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hold a client open for a reader of `processes`, which is the value it starts with."""
    servers = processes.cluster.bootstrap_servers
    config: Any = {"default_api_timeout_ms": 2 * ANSWER_MS, "request_timeout_ms": ANSWER_MS}
    async with Admin(servers, **config) as admin, Admin(servers, **config) as asker:
        protocol = ProtocolSource(
            admin=admin, now_ms=TrioClock().now_ms, in_detail=True, timeout_ms=ANSWER_MS
        )
        quorum = QuorumSource(asker, timeout_ms=ANSWER_MS)
        source = ProcessesSource(processes, protocol)
        task_status.started(StateReader(source=source, reasons=reasons))
        while True:
            source.described_quorum = await quorum.find()
            await trio.sleep(QUORUM_SECONDS)


@define(eq=False)
class ProcessesSource:
    """Processes of ours, and what `protocol` finds out about them."""

    processes: SteeredProcesses
    protocol: StateSource
    described_quorum: ObservedQuorum | None = attrs.field(init=False, default=None)
    """The quorum as the active controller described it last; None while none answers."""
    _last: ClusterState | None = attrs.field(init=False, default=None)

    async def find(self) -> ClusterState:
        try:
            self._last = await self._ask()
        except (KafkaError, KafkaTimeoutError):
            if self._last is None:
                raise
            self._last = attrs.evolve(
                self._last, partitions=tuple(map(_silent, self._last.partitions))
            )
        nodes = self.processes.nodes()
        controllers = [each for each in nodes if "controller" in each.roles]
        brokers = [each for each in nodes if "broker" in each.roles]
        reported = {each.id: each.status for each in self._last.brokers}
        statuses = {each.id: _status(each, reported.get(each.id)) for each in brokers}
        quorum = _quorum(controllers, statuses, self.described_quorum)
        leads = [each for each in controllers if each.id == quorum.leader] or controllers
        return attrs.evolve(
            self._last,
            now_ms=TrioClock().now_ms(),
            controller=leads[0].id,
            controller_status=_STATUSES[leads[0].status],
            quorum=quorum,
            brokers=tuple(
                _broker(each, statuses[each.id], reported.get(each.id)) for each in brokers
            ),
            partitions=tuple(_with_roles(each, statuses) for each in self._last.partitions),
            cut=tuple(self.processes.cuts()),
        )

    async def _ask(self) -> ClusterState:
        found = await self.protocol.find()
        names = [each.topic_partition for each in found.partitions]
        seen = await self.processes.replicas(names, timeout_ms=ANSWER_MS)

        def with_seen(partition: ObservedPartition, replica: ObservedReplica) -> ObservedReplica:
            facts = seen.get((partition.topic_partition, replica.broker))
            return replica if facts is None else attrs.evolve(
                replica, **attrs.asdict(facts, recurse=False)
            )  # fmt: skip

        partitions = (
            attrs.evolve(each, replicas=tuple(with_seen(each, one) for one in each.replicas))
            for each in found.partitions
        )
        return attrs.evolve(found, partitions=tuple(partitions))


def _quorum(
    controllers: Sequence[NodeSummary],
    brokers: Mapping[int, Status],
    described: ObservedQuorum | None,
) -> ObservedQuorum:
    """Return the quorum with every node's status, as far as the active controller describes it."""
    if described is None:
        described = ObservedQuorum(
            leader=None, leader_epoch=None, high_watermark=None, voters=(), observers=()
        )
    ends = {each.id: each.log_end_offset for each in (*described.voters, *described.observers)}

    def node(node_id: int, status: Status) -> ObservedQuorumNode:
        return ObservedQuorumNode(id=node_id, status=status, log_end_offset=ends.get(node_id))

    voters = {each.id: _STATUSES[each.status] for each in controllers}
    observers = {each: status for each, status in brokers.items() if each not in voters}
    return attrs.evolve(
        described,
        voters=tuple(node(*each) for each in voters.items()),
        observers=tuple(node(*each) for each in observers.items()),
    )


def _silent(partition: ObservedPartition) -> ObservedPartition:
    replicas = (attrs.evolve(each, is_live=False) for each in partition.replicas)
    return attrs.evolve(partition, replicas=tuple(replicas))


def _with_roles(partition: ObservedPartition, statuses: dict[int, Status]) -> ObservedPartition:
    replicas = (
        attrs.evolve(each, role=Role.DOWN) if statuses.get(each.broker) is Status.DOWN else each
        for each in partition.replicas
    )
    return attrs.evolve(partition, replicas=tuple(replicas))


def _status(node: NodeSummary, reported: Status | None) -> Status:
    """Return the status of `node`; it is fenced if it runs and no broker reports it as alive."""
    status = _STATUSES[node.status]
    return Status.FENCED if status is Status.UP and reported in (None, Status.DOWN) else status


def _broker(node: NodeSummary, status: Status, reported: Status | None) -> ObservedBroker:
    host, _, port = node.address.rpartition(":")
    fenced = reported in (None, Status.DOWN)
    return ObservedBroker(id=node.id, host=host, port=int(port), status=status, fenced=fenced)
