"""`understudy proxy` in front of Apache Kafka: its own tools and other clients go through it."""

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.proxied import ProxyProcess, proxy_process
from tests.interop import tools
from tests.interop.card import librdkafka, ours
from tests.interop.card.kcat import kcat
from tests.interop.kafka import Kafka

pytestmark = pytest.mark.interop

REFUSED = "NOT_ENOUGH_REPLICAS"


@pytest.fixture(scope="module")
def proxy(three: Kafka) -> Iterator[ProxyProcess]:
    with proxy_process(three.bootstrap_servers) as process:
        yield process


def asked(url: str, body: dict[str, str] | None = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = answer.read()
        return json.loads(said) if said else None


def test_kafkas_tools_see_only_the_proxy(three: Kafka, proxy: ProxyProcess) -> None:
    said = tools.run_tool(tools.API_VERSIONS, "--bootstrap-server", proxy.bootstrap_servers)
    addresses = re.findall(r"^(\S+:\d+) \(id: \d", said, re.MULTILINE)
    assert set(addresses) == set(proxy.bootstrap_servers.split(","))
    assert not set(addresses) & set(three.bootstrap_servers.split(","))
    assert re.search(r"ShareFetch\(78\): UNSUPPORTED", said)


@pytest.mark.parametrize("probe", [librdkafka, ours], ids=["librdkafka", "ours"])
@pytest.mark.parametrize("feature", ["produce_and_consume", "group_goes_on", "transactions"])
def test_a_client_that_is_refused_once_goes_on(
    three: Kafka, proxy: ProxyProcess, probe: Any, feature: str
) -> None:
    topic = f"{probe.__name__.rpartition('.')[2]}-{feature.replace('_', '-')}"
    three.create_topic(topic, partitions=2, replicas=3)
    rule = {"api": "PRODUCE", "topic": topic, "error": REFUSED, "trigger": "once"}
    number = asked(proxy.control, rule)["number"]
    getattr(probe, feature)(proxy.bootstrap_servers, topic)
    assert asked(f"{proxy.control}/{number}/wait?hits=1")["hits"] == 1
    (hit,) = asked(f"{proxy.control}/{number}/hits")["hits"]
    assert hit["answer"] == REFUSED
    asked(proxy.control, method="DELETE")


def test_kafkas_console_goes_on_when_the_leader_dies(three: Kafka, proxy: ProxyProcess) -> None:
    three.create_topic("killed", partitions=1, replicas=3)
    servers = proxy.bootstrap_servers
    kcat(servers, "-P", "-t", "killed", given="before\n")
    described = three.run_tool(tools.TOPICS, "--describe", "--topic", "killed")
    leader = re.search(r"Leader: (\d)", described)
    assert leader is not None
    three.kill(int(leader[1]))
    try:
        kcat(servers, "-P", "-t", "killed", "-X", "message.timeout.ms=60000", given="after\n")
        assert kcat(servers, "-C", "-t", "killed", "-e", "-o", "beginning") == "before\nafter\n"
    finally:
        three.start(int(leader[1]))
