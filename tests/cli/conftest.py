"""Two brokers for the commands that ask some; topics and groups have names of their own.

Of a module, and no longer: simulated runs in this process want to be alone in it.
"""

from collections.abc import Iterator

import pytest

from replication.testing import ThreadedCluster
from tests.cli.commands import Command


@pytest.fixture(scope="module")
def brokers() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=2, config={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def understudy(brokers: ThreadedCluster) -> Command:
    """The command, with the addresses of those brokers."""
    return Command(brokers.bootstrap_servers)
