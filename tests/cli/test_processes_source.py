"""The state of a cluster of processes: the protocol's answers, and what each node reports."""

from collections.abc import Sequence
from typing import Any

import attrs

from replication.cli.processes_source import ProcessesSource
from replication.cli.steered_processes import SeenReplica
from replication.cluster.interface import NodeStatus, NodeSummary
from replication.errors import ErrorCode, KafkaError
from replication.observe.cluster_state import ClusterState, ObservedPartition, ObservedReplica
from replication.observe.state_reader import StateReader
from storage.types import TopicPartition
from tests.cli.test_top_view import partition, state

SEEN = SeenReplica(leader_epoch=4, high_watermark=1180, epochs=())


@attrs.define(slots=False)
class Protocol:
    """A source with what Kafka's protocol shows: no high watermark of a follower."""

    partitions: Sequence[ObservedPartition] = ()
    answers: bool = True

    async def find(self) -> ClusterState:
        if not self.answers:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return state(*self.partitions)


@attrs.define
class Processes:
    frozen: set[int] = attrs.field(factory=set)
    controllers: Sequence[int] = (0,)

    def nodes(self) -> list[NodeSummary]:
        return [
            NodeSummary(
                id=each,
                status=NodeStatus.FROZEN if each in self.frozen else NodeStatus.RUNNING,
                address="h:1",
                roles=["controller"] * (each in self.controllers) + ["broker"] * (each > 0),
            )
            for each in sorted({1, 2, *self.controllers})
        ]

    def cuts(self) -> list[tuple[int, int]]:
        return []

    async def replicas(
        self, partitions: Sequence[TopicPartition], *, timeout_ms: int
    ) -> dict[tuple[TopicPartition, int], SeenReplica]:
        assert timeout_ms > 0
        return {(each, 2): SEEN for each in partitions if 2 not in self.frozen}


def without_replica_2(found: ObservedPartition) -> ObservedPartition:
    leader, follower = found.replicas
    silent = attrs.evolve(follower, is_live=False, log_end_offset=None)
    return attrs.evolve(found, replicas=(leader, silent))


async def test_a_silent_node_keeps_its_last_figures_until_its_topic_is_gone() -> None:
    protocol, processes = Protocol([partition("t")]), Processes()
    doubles: dict[str, Any] = {"processes": processes, "protocol": protocol}
    reader = StateReader(source=ProcessesSource(**doubles))

    async def replica() -> ObservedReplica:
        (found,) = (await reader.read()).partitions
        follower = found.replica(2)
        assert follower is not None
        return follower

    assert (await replica()).high_watermark == 1180
    processes.frozen.add(2)
    protocol.partitions = [without_replica_2(partition("t"))]
    silent = await replica()
    assert (silent.high_watermark, silent.log_end_offset, silent.is_live) == (1180, 1000, False)
    assert silent.why == "out of the ISR: its broker is frozen"
    protocol.answers = False
    assert (await replica()).high_watermark == 1180
    protocol.answers = True
    protocol.partitions = ()
    assert (await reader.read()).partitions == ()
    protocol.partitions = [without_replica_2(partition("t"))]
    assert (await replica()).high_watermark is None


async def test_a_node_with_both_roles_votes_and_does_not_observe() -> None:
    doubles: dict[str, Any] = {"processes": Processes(controllers=[1]), "protocol": Protocol()}
    quorum = (await StateReader(source=ProcessesSource(**doubles)).read()).quorum
    assert quorum is not None
    assert [each.id for each in quorum.voters] == [1]
    assert [each.id for each in quorum.observers] == [2]


async def test_a_frozen_broker_that_others_report_as_alive_is_not_fenced() -> None:
    protocol, processes = Protocol(), Processes(frozen={1})
    doubles: dict[str, Any] = {"processes": processes, "protocol": protocol}
    brokers = (await ProcessesSource(**doubles).find()).brokers
    assert [(each.is_dead, each.fenced) for each in brokers] == [(True, False), (False, False)]
    gone = attrs.evolve(state(), brokers=state().brokers[1:])
    protocol.find = lambda: answered(gone)  # type: ignore[method-assign]
    brokers = (await ProcessesSource(**doubles).find()).brokers
    assert [(each.is_dead, each.fenced) for each in brokers] == [(True, True), (False, False)]


async def answered(found: ClusterState) -> ClusterState:
    return found
