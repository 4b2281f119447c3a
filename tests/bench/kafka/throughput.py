"""As many records as librdkafka takes, acks=all, idempotent, three partitions on three brokers."""

from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import make_topic
from tests.bench.kafka.clients import PARTITIONS, ask
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.processes import worked_seconds
from tests.bench.kafka.sides import RivalCluster, pids

RECORD_BYTES = (100, 1024)
MOST_RECORDS = 500_000
ROTATED = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for size in RECORD_BYTES:
        count = min(sizes.produced_bytes // size, MOST_RECORDS)
        make_topic(clusters, topic(size), list(ROTATED[:PARTITIONS]))
        taken = in_turn(
            clusters,
            lambda cluster, size=size, count=count: produced(cluster, size, count),  # type: ignore[misc]  # mypy infers no lambda with a default
            rounds=1 + sizes.rounds,
        )
        yield Comparison(
            name=f"produce {size:,} B records",
            unit="records/s",
            more_is_better=True,
            rounds=after_the_first(taken, 0),
        )
        yield Comparison(
            name=f"the brokers' work to take {size:,} B records",
            unit="us/record",
            rounds=after_the_first(taken, 1),
        )


def topic(size: int) -> str:
    return f"produced-{size}"


def produced(cluster: RivalCluster, size: int, count: int) -> tuple[float, float]:
    """Records a second, and the brokers' processor time for one in microseconds."""
    before = worked_seconds(pids(cluster))
    seconds = float(ask("throughput", cluster.bootstrap_servers, topic(size), size, count))
    return count / seconds, (worked_seconds(pids(cluster)) - before) / count * 1e6
