"""Stock clients behind a proxy: what they can do there is what they can do at the brokers.

`python -m tests.interop.card --proxy` runs every probe of the conformance card through it.
"""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from tests.clients.probes import LEAVES_SOCKETS, MODULES, forget_sockets, probes
from tests.clients.proxied import ProxyProcess, proxy_process
from tests.clients.test_card import topics_of
from tests.interop.card.__main__ import CONFIG, make_topics, topic_of

pytestmark = [pytest.mark.client, *LEAVES_SOCKETS]

PROBES = ("produce_and_consume", "group_goes_on", "transactions")
REFUSED = "NOT_ENOUGH_REPLICAS"


@pytest.fixture(scope="module")
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """A proxy in front of three brokers, which refuses each producer once."""
    directory = tmp_path_factory.mktemp("proxied")
    with IsolatedCluster(directory, brokers=3, config=CONFIG) as cluster:
        cluster.wait_until_ready()
        with proxy_process(cluster.bootstrap_servers) as process:
            topics = topics_of(request.session.items, Path(__file__))
            trio.run(make_topics, process.bootstrap_servers, topics)
            yield process
    forget_sockets()


@pytest.mark.parametrize(("client", "feature"), probes({each: each for each in PROBES}))
def test_a_client_can_do_it_behind_a_proxy(proxy: ProxyProcess, client: str, feature: str) -> None:
    topic = topic_of(client, feature)
    rule = {"api": "PRODUCE", "topic": topic, "error": REFUSED, "trigger": "once"}
    number = added(proxy, rule)
    getattr(MODULES[client], feature)(proxy.bootstrap_servers, topic)
    (hit,) = asked(f"{proxy.control}/{number}/hits")["hits"]
    assert hit["answer"] == REFUSED


def added(proxy: ProxyProcess, rule: Mapping[str, object]) -> int:
    """Add a rule; return its number."""
    number: int = asked(proxy.control, json.dumps({**rule}).encode())["number"]
    return number


def asked(url: str, data: bytes | None = None) -> Any:
    with urllib.request.urlopen(url, data, timeout=30) as answer:
        return json.load(answer)
