"""Work that is not measured, until a Java virtual machine has compiled what the rest will use.

Small requests in great number, through the leader and both followers, and some large ones.
"""

from collections.abc import Iterable, Mapping

from tests.bench.kafka.asking import addresses, create_topic, write
from tests.bench.kafka.clients import PARTITIONS, ask
from tests.bench.kafka.comparison import Comparison, Sizes
from tests.bench.kafka.sides import BROKERS, RivalCluster

TOPIC = "warm-up"
RATE = 2000
RECORDS, RECORD_BYTES = 50_000, 1024


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterable[Comparison]:
    for cluster in clusters.values():
        servers = cluster.bootstrap_servers
        create_topic(addresses(servers)[0], TOPIC, [list(BROKERS)] * PARTITIONS)
        write(addresses(servers), TOPIC)
        ask("latency", servers, TOPIC, RATE, sizes.warm_up_seconds)
        ask("throughput", servers, TOPIC, RECORD_BYTES, RECORDS)
    return ()
