"""The choice of the replica that a consumer should read from (KIP-392, replica.selector.class).

    consumer, in rack r2 ──fetch──> leader, in r1      preferred read replica: 2
                         ──fetch──> follower 2, in r2  records up to its own high watermark

Rule 1: only the leader chooses, and only among the replicas that could serve this fetch: itself,
and the members of the ISR that hold the offset.

Rule 2: a leader that chooses itself answers with records.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from replication.leader.rules.fetch_data import ClientMetadata
from storage.attributes import frozen


@frozen(kw_only=True)
class ReplicaView:
    """One replica that could serve the fetch."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int = 0


@frozen(kw_only=True)
class PartitionView:
    """The replicas that could serve the fetch; the leader is one of `replicas`."""

    leader: ReplicaView
    replicas: tuple[ReplicaView, ...]


ReplicaSelector: TypeAlias = Callable[[ClientMetadata, PartitionView], ReplicaView]


def leader_selector(_: ClientMetadata, view: PartitionView) -> ReplicaView:
    return view.leader


def rack_aware_selector(client: ClientMetadata, view: PartitionView) -> ReplicaView:
    """Return the most caught up replica in the client's rack; the leader if that is possible too.

    Return the leader if no replica is in that rack.
    """
    near = [each for each in view.replicas if client.rack_id and each.rack == client.rack_id]
    if not near or view.leader in near:
        return view.leader
    return max(
        near, key=lambda each: (each.log_end_offset, -each.ms_since_caught_up, each.broker_id)
    )


SELECTORS: Mapping[str, ReplicaSelector] = {
    "org.apache.kafka.common.replica.LeaderSelector": leader_selector,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": rack_aware_selector,
}
