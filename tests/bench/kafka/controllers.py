"""From SIGKILL of the leading controller to the next topic that is created.

Three controllers on both sides, with Kafka's timeouts: a voter begins an election when it has fetched
nothing for two seconds. The client asks a broker, which forwards the request to the new leader; what is
refused meanwhile is asked again every 5 ms.
"""

import itertools
import time
from collections.abc import Iterator, Mapping

from replication.cli.probe import ask
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribedQuorum,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumTopic,
)
from tests.bench.kafka.asking import (
    AGAIN_SECONDS,
    PATIENCE_SECONDS,
    Address,
    addresses,
    create_topic,
)
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.sides import BROKERS, RivalCluster

CONTROLLERS = 3
CONFIG = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
ASKED = DescribeQuorumRequest(
    topics=[QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)])]
)
_NAMES = itertools.count()


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    taken = in_turn(clusters, take_over, rounds=1 + sizes.failover_rounds)
    yield Comparison(
        name="SIGKILL of the leading controller to the next topic created",
        unit="s",
        rounds=after_the_first(taken),
    )


def take_over(cluster: RivalCluster) -> float:
    broker = addresses(cluster.bootstrap_servers)[0]
    leader = caught_up(broker).leader_id
    began = time.perf_counter()
    cluster.kill(leader)
    create_topic(broker, f"after-{next(_NAMES)}", [[BROKERS[0]]])
    taken = time.perf_counter() - began
    cluster.start(leader)
    return taken


def caught_up(broker: Address) -> DescribedQuorum:
    """Return the quorum once every voter has all of its leader's log."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        try:
            answer: DescribeQuorumResponse = ask(*broker, ASKED, version=1, timeout_seconds=5)
        except OSError:
            continue
        for quorum in [each for topic in answer.topics for each in topic.partitions]:
            ends = [each.log_end_offset for each in quorum.current_voters]
            if len(ends) == CONTROLLERS and min(ends) == quorum.high_watermark == max(ends):
                return quorum
        time.sleep(10 * AGAIN_SECONDS)  # real controllers that catch up
    raise RuntimeError(f"the controllers of {broker} have not caught up")
