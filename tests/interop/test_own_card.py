"""The probes of the conformance card for our clients, against Apache Kafka's broker."""

import pytest
import trio

from tests.interop.card import ours
from tests.interop.card.__main__ import make, topic_of
from tests.interop.card.features import FEATURES
from tests.interop.kafka import Kafka
from tests.interop.own_clients import admin_of

pytestmark = pytest.mark.interop

# test_own_failover.py has three brokers for them.
OF_SEVERAL_BROKERS = {"topics", "reassignments"}
PROBES = [name for name in FEATURES if name in vars(ours) and name not in OF_SEVERAL_BROKERS]


@pytest.fixture(scope="module")
def servers(kafka: Kafka) -> str:
    """The address of a broker that has a topic for each probe."""

    async def make_topics() -> None:
        async with admin_of(kafka) as admin:
            await make(admin, [topic_of("ours", each) for each in PROBES], replication_factor=1)

    trio.run(make_topics)
    return kafka.bootstrap_servers


@pytest.mark.parametrize("feature", PROBES)
def test_our_clients_can_do_it_at_apache_kafka(servers: str, feature: str) -> None:
    getattr(ours, feature)(servers, topic_of("ours", feature))
