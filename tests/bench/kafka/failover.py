"""From SIGKILL of a leader to the first write with acks=all that its successor acknowledges.

Both sides with `broker.session.timeout.ms` = 2000 and a heartbeat every 300 ms. The client has no
metadata and no patience: it sends the record to either survivor in turn, every 5 ms.
"""

import time
from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import addresses, create_topic, leader_of, wait_until_in_sync, write
from tests.bench.kafka.comparison import Comparison, in_turn
from tests.bench.kafka.sides import BROKERS, RivalCluster
from tests.bench.kafka.sizes import Sizes

CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
}
TOPIC = "failover"


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for cluster in clusters.values():
        brokers = addresses(cluster.bootstrap_servers)
        create_topic(brokers[0], TOPIC, [list(BROKERS)])
        write(brokers, TOPIC)
    taken = in_turn(clusters, fail_over, rounds=1 + sizes.failover_rounds)
    yield Comparison(
        name="failover, SIGKILL of the leader to the first acked write",
        unit="s",
        rounds={side: rounds[1:] for side, rounds in taken.items()},
    )


def fail_over(cluster: RivalCluster) -> float:
    brokers = dict(zip(BROKERS, addresses(cluster.bootstrap_servers), strict=True))
    leader = leader_of(brokers[BROKERS[0]], TOPIC)
    survivors = [address for broker, address in brokers.items() if broker != leader]
    began = time.perf_counter()
    cluster.kill(leader)
    write(survivors, TOPIC)
    taken = time.perf_counter() - began
    cluster.start(leader)
    wait_until_in_sync(survivors[0], TOPIC, set(BROKERS))
    return taken
