"""What a fault has started must end with it: the resources in use once every node is up and idle.

tasks         of every kind as many as when the cluster had just come up; besides, one for each
              connection that is served, and one for each fetcher
fetchers      one for each leader and fetcher id by which a broker follows partitions
connections   a broker has one for each fetcher, and a few more. A broker serves no connection
              that the other end has closed; if the other end has lost its power, the broker
              serves it until it has been idle for too long, as in Kafka
waiting       one fetch for each fetcher; a purgatory watches no partition without a request

Fetch sessions are not counted: the session of a follower that is gone stays until its slot is
needed (KIP-227).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from replication.broker.broker import Broker
from replication.follower.fetcher_manager import fetcher_id_for
from scenarios.checkers.violation import Wrong
from scenarios.world.cluster import SimulatedCluster, node_id_of
from scenarios.world.waiting import all_tasks

LEFT_OVER = "what a fault has begun ends with the fault"
OURS = "replication."
SERVING = "replication.server.server.Server._serve_connection"
FETCHING = "ReplicaFetcherThread"
# To the controller: heartbeats, metadata, changes of ISRs, what clients ask of it.
BESIDE_FETCHERS = 4


@attrs.frozen(kw_only=True)
class BrokerResources:
    """What one broker holds."""

    node: str
    fetchers: int
    """The number of fetchers that the broker needs."""
    connections: int
    """The connections that the broker has opened and not closed."""
    served: int
    deserted: int = 0
    """The connections that the broker serves although the other end has closed them."""
    watches: int = 0
    """The partitions that purgatories watch for Produce and DeleteRecords; no request waits."""


@attrs.frozen(kw_only=True)
class ClusterResources:
    """What the cluster holds, at one moment."""

    tasks: Mapping[str, int]
    """The number of tasks of each kind."""
    brokers: Sequence[BrokerResources] = ()
    waiting_fetches: int = 0


def left_over(before: ClusterResources, after: ClusterResources) -> Iterator[Wrong]:
    """Check what is in use now against `before`, when the cluster had just come up."""
    for kind in sorted({*before.tasks, *after.tasks} - {SERVING, FETCHING}):
        was, now = before.tasks.get(kind, 0), after.tasks.get(kind, 0)
        if was != now:
            yield Wrong(LEFT_OVER, f"{now} tasks of {kind}, and there were {was}")
    fetchers = sum(each.fetchers for each in after.brokers)
    if (fetching := after.tasks.get(FETCHING, 0)) > fetchers:
        yield Wrong(LEFT_OVER, f"{fetching} tasks fetch, and {fetchers} have somebody to follow")
    if after.waiting_fetches > fetchers:
        yield Wrong(LEFT_OVER, f"{after.waiting_fetches} fetches wait, of {fetchers} fetchers")
    for each in after.brokers:
        yield from _of_one(each)


def _of_one(burden: BrokerResources) -> Iterator[Wrong]:
    if burden.connections > burden.fetchers + BESIDE_FETCHERS:
        yield Wrong(
            LEFT_OVER,
            f"{burden.node} has {burden.connections} connections open, and {burden.fetchers} fetchers",
        )
    if burden.deserted:
        yield Wrong(
            LEFT_OVER,
            f"{burden.node} serves {burden.deserted} of {burden.served} connections whose other"
            " end has closed them",
        )
    if burden.watches:
        yield Wrong(LEFT_OVER, f"{burden.node} has {burden.watches} watches, for nobody")


# Taking it down.


def resources_in_use(cluster: SimulatedCluster) -> ClusterResources:
    managers = [broker.replica_manager for broker in cluster.brokers.values()]
    return ClusterResources(
        tasks=_tasks(),
        brokers=[_resources_of(cluster, *each) for each in cluster.brokers.items()],
        waiting_fetches=sum(each.purgatories.fetch.waiting for each in managers),
    )


def _tasks() -> Mapping[str, int]:
    found = Counter(task.name.partition("-")[0] for task in all_tasks())
    return {kind: count for kind, count in found.items() if kind.startswith((OURS, FETCHING))}


def _resources_of(cluster: SimulatedCluster, name: str, broker: Broker) -> BrokerResources:
    manager, ends = broker.replica_manager, cluster.world.network.open_ends(name)
    count = cluster.nodes.configs[node_id_of(name)].num_replica_fetchers
    followed = {
        (replica.leader, fetcher_id_for(partition, count))
        for partition, replica in manager.hosted.online.items()
        if not replica.is_leader and manager.roles.fetchers.followed_by(partition)
    }
    served = [end for end in ends if not end.asks]
    return BrokerResources(
        node=name,
        fetchers=len(followed),
        connections=len(ends) - len(served),
        served=len(served),
        deserted=sum(end.incoming.end is not None for end in served),
        watches=manager.purgatories.produce.watched + manager.purgatories.delete_records.watched,
    )
