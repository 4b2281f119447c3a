"""The conformance card: what its modules hold, how it is written, and one probe of it."""

import importlib

import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from tests.interop.card.__main__ import (
    FAILS,
    NOT_OFFERED,
    ROWS,
    WORKS,
    Column,
    Outcome,
    make_topics,
    page,
    reason_in,
    topic_of,
    try_feature,
)
from tests.interop.card.features import CLIENTS, FEATURES
from tests.interop.card.secured import WAYS

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_a_version_and_some_features(client: str) -> None:
    module = importlib.import_module(CLIENTS[client])
    assert module.VERSION is None or module.VERSION
    assert "produce_and_consume" in vars(module)
    assert {way.probe for way in WAYS.values()} - {"stay"} <= vars(module).keys()
    assert len(vars(module).keys() & FEATURES.keys()) > len(FEATURES) // 3


def test_the_page_has_a_column_for_each_client_and_lists_what_failed() -> None:
    outcomes = dict.fromkeys(ROWS, Outcome(WORKS))
    broken = {**outcomes, "configs": Outcome(FAILS, "KafkaError: no")}
    text = page(
        [Column("a", "a 1", outcomes), Column("b", "b 2", broken)], ["Vote"], day="2026-01-02"
    )
    assert "`Vote`." in text
    assert "| version | a 1 | b 2 |" in text
    assert f"| admin: configurations | {WORKS} | {FAILS} |" in text
    assert "| b | admin: configurations | `KafkaError: no` |  |" in text
    assert "2026-01-02" in text


def test_the_reason_is_the_last_line_that_names_an_error() -> None:
    errors = "Traceback\n  | ValueError: first\n  | KafkaError: second\n  +-----\nbye\n"
    assert reason_in(errors, 1) == "KafkaError: second"
    assert reason_in("", 7) == "exit code 7"


def test_a_probe_is_run_and_judged(our_brokers: IsolatedCluster) -> None:
    assert try_feature(our_brokers, Column("kcat", ""), "cooperative") == Outcome(NOT_OFFERED)
    column = Column("ours", "")
    refused = try_feature(our_brokers, column, "configs")  # of a topic that nobody made
    assert refused.mark == FAILS
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.reason
    trio.run(make_topics, our_brokers.bootstrap_servers, [topic_of("ours", "configs")])
    assert try_feature(our_brokers, column, "configs") == Outcome(WORKS)
