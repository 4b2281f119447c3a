"""A cluster without clients: memory, processor time, and the cost of idle followed partitions."""

import statistics
import time
from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import addresses, create_topic, wait_until_in_sync
from tests.bench.kafka.comparison import Comparison, Sizes, in_turn
from tests.bench.kafka.processes import resident_mib, sent_bytes, worked_seconds
from tests.bench.kafka.sides import BROKERS, RivalCluster, pids


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    before = {side: worked_seconds(pids(cluster)) for side, cluster in clusters.items()}
    time.sleep(sizes.idle_seconds)  # what is measured is idleness
    worked = {
        side: [(worked_seconds(pids(cluster)) - before[side]) / sizes.idle_seconds * 100]
        for side, cluster in clusters.items()
    }
    yield Comparison(
        name="resident memory of an idle broker",
        unit="MiB",
        rounds=in_turn(clusters, memory, rounds=1),
    )
    yield Comparison(name="processor time of an idle cluster", unit="% of a core", rounds=worked)


def memory(cluster: RivalCluster) -> float:
    return statistics.median(resident_mib(cluster.pid(broker)) for broker in BROKERS)


# A thousand partitions that one broker follows and nobody writes to.
#
# Bytes are those of the follower's connections to the leader, as the kernel counts them; the
# processor time is the leader's and the follower's, with all that they do besides. Both wait
# `replica.fetch.wait.max.ms` = 500 for bytes, as by default.

LEADER, FOLLOWER = 1, 2
SETTLE_SECONDS = 20  # until nothing is done any more for having made them
TOPIC = "idle"


def run_partitions(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for cluster in clusters.values():
        leader = addresses(cluster.bootstrap_servers)[LEADER - 1]
        create_topic(leader, TOPIC, [[LEADER, FOLLOWER]] * sizes.idle_partitions)
        wait_until_in_sync(leader, TOPIC, {LEADER, FOLLOWER})
    time.sleep(SETTLE_SECONDS)  # sessions become incremental
    before = {side: counted(cluster) for side, cluster in clusters.items()}
    time.sleep(sizes.idle_seconds)  # what is measured is idleness
    sent, worked = {}, {}
    for side, cluster in clusters.items():
        each = counted(cluster)
        sent[side] = [(each[0] - before[side][0]) / sizes.idle_seconds]
        worked[side] = [(each[1] - before[side][1]) / sizes.idle_seconds * 100]
    followed = f"{sizes.idle_partitions:,} idle followed partitions"
    yield Comparison(name=f"request bytes of {followed}", unit="B/s", rounds=sent)
    yield Comparison(name=f"processor time of {followed}", unit="% of a core", rounds=worked)


def counted(cluster: RivalCluster) -> tuple[int, float]:
    """Bytes sent by the follower to the leader, and what both have worked."""
    port = addresses(cluster.bootstrap_servers)[LEADER - 1][1]
    both = [cluster.pid(LEADER), cluster.pid(FOLLOWER)]
    return sent_bytes(cluster.pid(FOLLOWER), to_port=port), worked_seconds(both)
