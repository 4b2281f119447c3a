"""The controller dies and comes back: no metadata is lost, and data goes on flowing."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from replication.broker.nodes import CONTROLLER_ID, HOST
from replication.cli.demo_run import CONFIG
from replication.cli.demo_workload import create_topic
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from replication.wire.metadata import MetadataResponseTopic

pytestmark = [pytest.mark.client, pytest.mark.slow]

PATIENCE_SECONDS = 60


def found(port: int) -> list[MetadataResponseTopic]:
    return list(fetch_metadata(HOST, port, timeout_seconds=PATIENCE_SECONDS).topics)


def topics(cluster: IsolatedCluster, *, wanted: set[str]) -> dict[str | None, bytes]:
    """Return the topic ids by name, once every broker shows the same, with `wanted` among them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    answers: list[dict[str | None, bytes]] = []
    while time.monotonic() < deadline:
        answers = [
            {topic.name: topic.topic_id for topic in found(port)}
            for port in cluster.ports[: cluster.brokers]
        ]
        if set(answers[0]) == wanted and all(answer == answers[0] for answer in answers):
            return answers[0]
        time.sleep(0.02)
    raise AssertionError(f"the brokers do not agree on {wanted}: {answers}")


def produce(producer: Producer, topic: str, count: int) -> int:
    """Return how many of `count` records the whole ISR acknowledged."""
    acked: list[bool] = []
    for number in range(count):
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: acked.append(error is None)
        )
    producer.flush(PATIENCE_SECONDS)
    return sum(acked)


@pytest.mark.deep
def test_no_metadata_is_lost_and_data_goes_on_flowing(tmp_path: Path) -> None:
    with IsolatedCluster(tmp_path, brokers=3, config=CONFIG) as cluster:
        cluster.wait_until_ready(PATIENCE_SECONDS)
        servers = cluster.bootstrap_servers
        create_topic(servers, "before", partitions=3, replication_factor=3)
        known = topics(cluster, wanted={"before"})
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        assert produce(producer, "before", 500) == 500

        cluster.kill(CONTROLLER_ID)
        assert produce(producer, "before", 500) == 500

        cluster.start(CONTROLLER_ID)
        create_topic(servers, "after", partitions=3, replication_factor=3)
        assert topics(cluster, wanted={"before", "after"}).items() > known.items()
        assert produce(producer, "before", 500) == 500
        assert produce(producer, "after", 500) == 500


@pytest.mark.deep
def test_a_leader_that_dies_while_the_controller_is_down_is_replaced_afterwards(
    tmp_path: Path,
) -> None:
    with IsolatedCluster(tmp_path, brokers=3, config=CONFIG) as cluster:
        cluster.wait_until_ready(PATIENCE_SECONDS)
        create_topic(cluster.bootstrap_servers, "t", partitions=1, replication_factor=3)
        topics(cluster, wanted={"t"})
        (partition,) = found(cluster.ports[0])[0].partitions
        victim = partition.leader_id
        cluster.kill(CONTROLLER_ID)
        cluster.kill(victim)
        cluster.start(CONTROLLER_ID)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
        )
        assert produce(producer, "t", 100) == 100
        survivor = next(node for node in (1, 2, 3) if node != victim)
        # Its ISR has the new leader's records, so it has heard of the new leader.
        (partition,) = found(cluster.ports[survivor - 1])[0].partitions
        assert partition.leader_id not in (victim, -1)
