"""Two brokers for the commands that talk to a cluster.

Each test has topics and groups of its own. The brokers live for one module, because simulated runs
must be alone in this process.
"""

from collections.abc import Iterator

import pytest

from replication.testing import ThreadedCluster
from tests.cli.commands import Command

CONFIG = {
    "auto.create.topics.enable": "false",
    # What the coordinator decides reaches a consumer with its next heartbeat.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=2, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def understudy(brokers: ThreadedCluster) -> Command:
    """Return the command, which talks to these brokers."""
    return Command(brokers.bootstrap_servers)
