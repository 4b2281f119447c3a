"""From SIGKILL of a leader to the first write with acks=all that its successor acknowledges.

Both sides with `broker.session.timeout.ms` = 2000 and a heartbeat every 300 ms. The client has no
metadata and no patience: it sends the record to either survivor in turn, every 5 ms.
"""

import time
from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import addresses, leader_of, make_topic, wait_until_in_sync, write
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.sides import BROKERS, RivalCluster

CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
}
TOPIC = "failover"


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    make_topic(clusters, TOPIC, [list(BROKERS)])
    taken = in_turn(clusters, fail_over, rounds=1 + sizes.failover_rounds)
    yield Comparison(
        name="failover, SIGKILL of the leader to the first acked write",
        unit="s",
        rounds=after_the_first(taken),
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
