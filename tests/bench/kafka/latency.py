"""How long a producer waits for acks=all from three replicas, at a steady rate."""

import statistics
from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import addresses, create_topic, write
from tests.bench.kafka.clients import ask
from tests.bench.kafka.comparison import Comparison, in_turn
from tests.bench.kafka.processes import worked_seconds
from tests.bench.kafka.sides import BROKERS, RivalCluster, pids
from tests.bench.kafka.sizes import Sizes

RATES = (100, 5000)
TOPIC = "latency"


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for cluster in clusters.values():
        brokers = addresses(cluster.bootstrap_servers)
        create_topic(brokers[0], TOPIC, [list(BROKERS)])
        write(brokers, TOPIC)
    for rate in RATES:
        taken = in_turn(
            clusters,
            lambda cluster, rate=rate: waited(cluster, rate, sizes.latency_seconds),  # type: ignore[misc]  # mypy infers no lambda with a default
            rounds=1 + sizes.rounds,
        )
        for at, name in enumerate(("p50", "p99")):
            yield Comparison(
                name=f"acks=all at {rate:,} records/s, {name}",
                unit="ms",
                rounds={side: [each[at] for each in rounds[1:]] for side, rounds in taken.items()},
            )
        yield Comparison(
            name=f"the cluster's processor time at {rate:,} records/s",
            unit="% of a core",
            rounds={side: [each[2] for each in rounds[1:]] for side, rounds in taken.items()},
        )


def waited(cluster: RivalCluster, rate: int, seconds: float) -> tuple[float, float, float]:
    """The median and the 99th percentile, and what part of a core the brokers were at work."""
    before = worked_seconds(pids(cluster))
    taken = ask("latency", cluster.bootstrap_servers, TOPIC, rate, seconds)
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98], (worked_seconds(pids(cluster)) - before) / seconds * 100
