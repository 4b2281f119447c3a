"""As many records as librdkafka takes, acks=all, idempotent, three partitions on three brokers.

Each round has a topic of its own, which is deleted after it, and writes into memory that has been
used before (`memory`).
"""

from collections.abc import Iterator, Mapping

from tests.bench.kafka.asking import delete_topic, make_topic
from tests.bench.kafka.clients import PARTITIONS, ask
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.memory import WarmMemory
from tests.bench.kafka.processes import worked_seconds
from tests.bench.kafka.sides import RivalCluster, pids

RECORD_BYTES = (100, 1024)
MOST_RECORDS = 500_000
WARM_BYTES = 1024**3
"""The bytes of three replicas of the records and of the client's own memory."""
ROTATED = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for size in RECORD_BYTES:
        count = min(sizes.produced_bytes // size, MOST_RECORDS)
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


def produced(cluster: RivalCluster, size: int, count: int) -> tuple[float, float]:
    """Records a second, and the brokers' processor time for one in microseconds."""
    topic = f"produced-{size}"
    make_topic({"": cluster}, topic, list(ROTATED[:PARTITIONS]))
    WarmMemory(WARM_BYTES).close()
    before = worked_seconds(pids(cluster))
    seconds = float(ask("throughput", cluster.bootstrap_servers, topic, size, count))
    worked = worked_seconds(pids(cluster)) - before
    delete_topic(cluster, topic)
    return count / seconds, worked / count * 1e6
