"""The reason for each replica of a partition that is not in sync.

    down, paused, fenced       the controller does not reach its node
    offline                    its node does not host it: its disk failed, or metadata is late
    in another epoch           it acts on older metadata than what was decided
    not fetching               it follows, and no fetcher has it: it failed, or was forgotten
    behind                     it lacks records
    waits to be added          it lacks nothing: its leader has not asked, or has had no answer

The first reason that applies counts. A run whose replicas are not in sync in time reports them.
"""

from collections.abc import Iterator

import attrs

from replication.wire.metadata import NO_LEADER
from scenarios.world.cluster import SimulatedCluster, node_name
from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.frozen(kw_only=True)
class ReplicaAndLeader:
    """One replica, and what its leader has."""

    node: str
    up: bool = True
    paused: bool = False
    fenced: bool = False
    online: bool = True
    leads: bool = False
    leader_epoch: LeaderEpoch = -1
    decided_epoch: LeaderEpoch = -1
    fetchers: int = 1
    log_end: Offset = -1
    leader_log_end: Offset | None = None
    in_sync: bool = False


def reason_out_of_sync(standing: ReplicaAndLeader) -> str:
    """Return the first reason that applies, in a few words; "is in sync" if there is none."""
    behind = standing.leader_log_end is not None and standing.log_end < standing.leader_log_end
    reasons = {
        "is down": not standing.up,
        "is paused": standing.paused,
        "is fenced": standing.fenced,
        "does not host it": not standing.online,
        f"acts in epoch {standing.leader_epoch}, and {standing.decided_epoch} was decided": (
            standing.leader_epoch != standing.decided_epoch
        ),
        "is in sync": standing.in_sync,
        "has no leader": standing.leader_log_end is None,
        "does not fetch": not standing.leads and standing.fetchers == 0,
        f"has {standing.log_end} of {standing.leader_log_end}": behind,
        "has everything, and waits to be added": True,
    }
    return next(reason for reason, applies in reasons.items() if applies)


def reasons_out_of_sync(cluster: SimulatedCluster, partition: TopicPartition) -> str:
    """Return the reasons of all replicas in one line."""
    reasons = [f"{each.node} {reason_out_of_sync(each)}" for each in standings(cluster, partition)]
    return "; ".join(reasons) or f"no broker knows {partition}"


def standings(cluster: SimulatedCluster, partition: TopicPartition) -> Iterator[ReplicaAndLeader]:
    image, registration = cluster.image, cluster.partition(partition)
    if registration is None:
        return
    hosting = {
        name: manager
        for name, manager in cluster.replica_managers.items()
        if partition in manager.hosted.online
    }
    leader = hosting.get(node_name(registration.leader))
    led = (
        None
        if leader is None or registration.leader == NO_LEADER
        else leader.hosted.online[partition]
    )
    for broker_id in registration.replicas:
        name = node_name(broker_id)
        manager = hosting.get(name)
        standing = ReplicaAndLeader(
            node=name,
            up=name in cluster.brokers,
            paused=cluster.world.clock(name).paused,
            fenced=not image.is_alive(broker_id),
            online=manager is not None,
            decided_epoch=registration.leader_epoch,
            leader_log_end=None if led is None else led.log.log_end_offset,
            in_sync=broker_id in registration.isr,
        )
        if manager is not None:
            replica = manager.hosted.online[partition]
            standing = attrs.evolve(
                standing,
                leads=replica.is_leader,
                leader_epoch=replica.leader_epoch,
                fetchers=manager.roles.fetchers.followed_by(partition),
                log_end=replica.log.log_end_offset,
            )
        yield standing
