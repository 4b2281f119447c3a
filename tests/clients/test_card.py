"""The conformance card: what each client can do, one test for each of its probes.

`tests/interop/card` has the probes, and `make card` runs them for Apache Kafka's own clients, too.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from storage.batch.compression import Codec
from storage.batch.record_batch import walk
from tests.clients.probes import LEAVES_SOCKETS, MODULES, forget_sockets, probes
from tests.interop.card.__main__ import CONFIG, count_in_logs, make_topics, topic_of
from tests.interop.card.features import CODECS, FEATURES

pytestmark = [pytest.mark.client, *LEAVES_SOCKETS]


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IsolatedCluster]:
    """Three brokers with a topic for each probe that is run; none refuses a connection."""
    directory = tmp_path_factory.mktemp("card")
    with IsolatedCluster(directory, brokers=3, config=CONFIG) as cluster:
        cluster.wait_until_ready()
        trio.run(
            make_topics, cluster.bootstrap_servers, topics_of(request.session.items, Path(__file__))
        )
        yield cluster
        assert count_in_logs(cluster, "connection_refused") == 0
    forget_sockets()


def topics_of(items: list[pytest.Item], path: Path) -> list[str]:
    """Return the topics of the probes in a file of tests."""
    found = [vars(each)["callspec"].params for each in items if each.path == path]
    return [topic_of(each["client"], each["feature"]) for each in found]


@pytest.mark.parametrize(("client", "feature"), probes({each: each for each in FEATURES}))
def test_a_client_can_do_it(brokers: IsolatedCluster, client: str, feature: str) -> None:
    topic = topic_of(client, feature)
    getattr(MODULES[client], feature)(brokers.bootstrap_servers, topic)
    if feature == "compression" and client != "kcat":  # kcat sends small batches as they are
        assert stored_codecs(brokers, topic) == {Codec[each.upper()] for each in CODECS}


def stored_codecs(brokers: IsolatedCluster, topic: str) -> set[Codec]:
    """Return the codecs of the batches that broker 1 has of partition 0 (KAFKA-18659)."""
    (segment,) = (brokers.log_dir(1) / f"{topic}-0").glob("*.log")
    return {header.codec for _, header in walk(segment.read_bytes())}
