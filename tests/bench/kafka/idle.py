"""A cluster that nobody talks to: memory of a broker, processor time of all its processes."""

import statistics
import time
from collections.abc import Iterator, Mapping

from tests.bench.kafka.comparison import Comparison, in_turn
from tests.bench.kafka.processes import resident_mib, worked_seconds
from tests.bench.kafka.sides import BROKERS, RivalCluster, pids
from tests.bench.kafka.sizes import Sizes


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
