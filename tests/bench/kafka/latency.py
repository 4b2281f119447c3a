"""How long a producer waits for acks=all from three replicas, at a steady rate."""

import statistics
from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import make_topic
from tests.bench.kafka.clients import ask
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.processes import worked_seconds
from tests.bench.kafka.sides import BROKERS, RivalCluster, pids

RATES = (100, 5000)
TOPIC = "latency"


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    make_topic(clusters, TOPIC, [list(BROKERS)])
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
                rounds=after_the_first(taken, at),
            )
        yield Comparison(
            name=f"the cluster's processor time at {rate:,} records/s",
            unit="% of a core",
            rounds=after_the_first(taken, 2),
        )


def waited(cluster: RivalCluster, rate: int, seconds: float) -> tuple[float, float, float]:
    """The median and the 99th percentile, and what part of a core the brokers were at work."""
    before = worked_seconds(pids(cluster))
    taken = ask("latency", cluster.bootstrap_servers, TOPIC, rate, seconds)
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98], (worked_seconds(pids(cluster)) - before) / seconds * 100
