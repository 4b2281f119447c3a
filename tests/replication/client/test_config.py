"""A client's configuration: Kafka's words in both spellings, and one line for a wrong one."""

import random

import pytest

from replication.client.config import ClientConfig
from replication.client.network_client import ExponentialBackoff
from replication.config import HostPort
from replication.errors import ConfigError


@pytest.mark.parametrize(
    "servers",
    [
        "b1:9092,b2:9093",
        ["b1:9092", "b2:9093"],
        ("b1:9092,b2:9093",),
        [HostPort("b1", 9092), HostPort("b2", 9093)],
    ],
)
def test_bootstrap_servers_are_a_text_or_a_list(servers: object) -> None:
    config = ClientConfig.of(bootstrap_servers=servers)
    assert config.bootstrap_servers == (HostPort("b1", 9092), HostPort("b2", 9093))


def test_both_spellings_mean_the_same() -> None:
    underscored = ClientConfig.of(bootstrap_servers="b:1", request_timeout_ms=7)
    dotted = ClientConfig.from_properties({"bootstrap.servers": "b:1", "request.timeout.ms": "7"})
    assert underscored == dotted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"bootstrap\.servers is missing"),
        ({"bootstrap_servers": "b"}, r"bootstrap\.servers=b: expected host:port"),
        ({"bootstrap_servers": "b:1", "retry_backof_ms": 1}, r"did you mean retry\.backoff\.ms\?"),
        ({"bootstrap_servers": "b:1", "retry_backoff_ms": -1}, r"retry\.backoff\.ms=-1"),
        ({"bootstrap_servers": "b:1", "retry_backoff_ms": 1.5}, r"retry\.backoff\.ms=1\.5"),
        ({"bootstrap_servers": "b:1", "security_protocol": "TLS"}, r"security\.protocol=TLS"),
    ],
)
def test_a_wrong_key_or_value_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ClientConfig.of(**given)


def test_backoff_doubles_from_the_first_to_the_most() -> None:
    backoff = ExponentialBackoff(first_ms=100, most_ms=1000)
    chance = random.Random(1)
    assert backoff.wait_ms(0, chance) == 0
    for failures, about in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (5000, 1000)]:
        waits = [backoff.wait_ms(failures, chance) for _ in range(50)]
        assert all(about * 0.8 <= wait <= 1000 for wait in waits)
        assert all(wait <= about * 1.2 for wait in waits)
        assert len(set(waits)) > 1 or about == 1000, "by chance, so that clients part"
