"""The configuration of clients, their back-off, and where their warnings go."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from replication.client import consumer, errors
from replication.client.config import ClientConfig
from replication.client.consumer.hooks import warn
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


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_a_warning_leaves_standard_output_to_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn("interceptor_failed", method="close")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "interceptor_failed" in printed.err
    assert "close" in printed.err


def test_a_warning_goes_where_the_program_has_configured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    captured = LogCapture()
    structlog.configure(processors=[captured])
    warn("interceptor_failed", method="close")
    assert captured.entries == [
        {"event": "interceptor_failed", "method": "close", "log_level": "warning"}
    ]
    assert capsys.readouterr() == ("", "")


PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_the_errors_of_the_page_are_there() -> None:
    table = PAGE.read_text().partition("## What it raises")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+Error)`", table)
    assert len(named) > 10
    for name in named:
        assert hasattr(consumer, name) or hasattr(errors, name), name
