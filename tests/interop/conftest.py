"""Apache Kafka for these tests: one node for the session, or a skip that says what is missing."""

from collections.abc import Iterator

import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from tests.interop.jars import KafkaNotFoundError, class_path, java
from tests.interop.kafka import Kafka
from tests.interop.written import Written, write_ours


@pytest.fixture(scope="session", autouse=True)
def _kafka_is_here() -> None:
    try:
        java()
        class_path()
    except KafkaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One node that all tests share: topics and groups have names of their own, nobody kills."""
    with Kafka(data_dir=tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three brokers for one module, whose tests kill them; most leave all of them running."""
    with Kafka(data_dir=tmp_path_factory.mktemp("three"), brokers=3) as running:
        yield running


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A log directory of ours, to be read and copied only."""
    return trio.run(write_ours, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="session")
def our_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    """Three brokers of ours; topics and groups have names of their own."""
    config = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "group.coordinator.rebalance.protocols": "classic,consumer",
    }
    with IsolatedCluster(
        tmp_path_factory.mktemp("our-brokers"), brokers=3, config=config
    ) as cluster:
        cluster.wait_until_ready()
        yield cluster
