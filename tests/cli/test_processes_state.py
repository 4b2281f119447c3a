"""What the page of a cluster of processes remembers: the last of each replica, while it is there."""

from collections.abc import Sequence
from typing import Any

import attrs

from replication.cli.processes_state import ProcessesState
from replication.cli.steered_processes import SeenReplica
from replication.cluster.interface import NodeStatus, NodeSummary
from replication.observe.cluster_state import ClusterState, PartitionState
from replication.observe.isr_reasons import IsrReasons
from storage.types import TopicPartition
from tests.cli.test_top_view import partition, state

SEEN = SeenReplica(leader_epoch=4, high_watermark=1180, epochs=())


@attrs.define
class Told:
    """By Kafka's protocol, which knows no high watermark of a follower."""

    partitions: Sequence[PartitionState] = ()

    async def look(self) -> ClusterState:
        return state(*self.partitions)


@attrs.define
class Processes:
    answers: bool = True

    def nodes(self) -> list[NodeSummary]:
        return [NodeSummary(id=each, status=NodeStatus.RUNNING, address="h:1") for each in range(3)]

    def cuts(self) -> list[tuple[int, int]]:
        return []

    async def replicas(
        self, partitions: Sequence[TopicPartition], *, timeout_ms: int
    ) -> dict[tuple[TopicPartition, int], SeenReplica]:
        assert timeout_ms > 0
        return {(each, 2): SEEN for each in partitions if self.answers}


async def test_what_was_seen_of_a_replica_is_forgotten_with_its_topic() -> None:
    told, processes = Told([partition("t")]), Processes()
    doubles: dict[str, Any] = {"processes": processes, "reasons": IsrReasons(lambda: 0)}
    page = ProcessesState(**doubles)
    page._foreign = told  # type: ignore[assignment]

    async def high_watermark() -> int | None:
        (found,) = (await page.look_in_slices()).partitions
        replica = found.replica(2)
        assert replica is not None
        return replica.high_watermark

    assert await high_watermark() == 1180
    processes.answers = False
    assert await high_watermark() == 1180
    told.partitions = ()
    assert (await page.look_in_slices()).partitions == ()
    told.partitions = [partition("t")]
    assert await high_watermark() is None
