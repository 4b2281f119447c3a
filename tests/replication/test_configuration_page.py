"""Every key has a text in plain English; docs/configuration.md names every key without effect."""

import ast
import re
from functools import cache
from pathlib import Path

import attrs
import pytest

from replication.client.config import keys_of
from replication.client.consumer import ConsumerConfig
from replication.client.producer import ProducerConfig
from replication.config.broker import BROKER_KEYS
from replication.config.dynamic import DESCRIBED
from replication.config.group import GROUP_KEYS
from replication.config.known import DYNAMIC, OF_BROKERS
from replication.config.topic import TOPIC_KEYS
from storage.config import LogConfig
from tests.language import PHRASES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
# Pronouns and fragments that make a text depend on another one, and words nobody searches for.
DIALECT = re.compile(
    r"^(Of|Those|These|Their|That|This|They|It|The same)\b|\bparted\b|\bours?\b|\b[Ww]e\b"
)
TEXTS = {
    f"{owner}: {name}": spec.doc
    for owner, keys in {
        "broker": DESCRIBED,
        "topic": {name: key.spec for name, key in TOPIC_KEYS.items()},
        "consumer": keys_of(ConsumerConfig),
        "producer": keys_of(ProducerConfig),
    }.items()
    for name, spec in keys.items()
}
FEATURES = ("eligible.leader.replicas.version", "transaction.version")
LOG_KEYS = {each.name.replace("_", ".") for each in attrs.fields(LogConfig)}


@cache
def read_somewhere() -> set[str]:
    """Return the keys that some code reads as an attribute."""
    names = {each.replace(".", "_"): each for each in LOG_KEYS | BROKER_KEYS.keys()}
    # To walk through the trees of all files takes four times as long.
    mentioned = re.compile(rf"\.({'|'.join(names)})\b")
    return {
        names[node.attr]
        for package in ("storage", "replication", "scenarios")
        for path in (ROOT / package).rglob("*.py")
        if mentioned.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in names
    }


def listed(after: str) -> set[str]:
    """The names in code quotes of the paragraph that follows `after`."""
    paragraph = PAGE.read_text().partition(after)[2].strip().partition("\n\n")[0]
    return set(re.findall("`([^`]+)`", paragraph))


def test_topic_keys_that_nothing_reads_are_listed() -> None:
    known = {"min.insync.replicas", "unclean.leader.election.enable", "understudy.read.only"}
    known |= {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    unread = (LOG_KEYS - read_somewhere()) | (TOPIC_KEYS.keys() - LOG_KEYS - known)
    assert listed("Keys of topics, and of brokers under their broker names:") >= unread


def test_broker_keys_that_nothing_reads_are_listed() -> None:
    assert listed("Keys of brokers that can be changed at run time:") == OF_BROKERS.keys()
    assert BROKER_KEYS.keys() >= DYNAMIC
    own = {name for name, spec in BROKER_KEYS.items() if spec.topic_key is None}
    of_groups = {name for key in GROUP_KEYS.values() for name in key}  # by name
    assert listed("Keys of brokers in the file:") >= own - read_somewhere() - of_groups


def unclear(text: str) -> list[str]:
    """Return what keeps `text` from explaining a key on its own."""
    sentences = re.split(r"(?<=\.) ", text)
    faults = {
        "no capital letter first": not text[:1].isupper(),
        "no full stop last": not text.endswith("."),
        "fewer than six words": len(text.split()) < 6,
        "more than three sentences": len(sentences) > 3,
        "dialect": DIALECT.search(text) or PHRASES.search(text.lower()),
    }
    return [fault for fault, found in faults.items() if found]


def test_every_key_has_a_text_that_stands_alone() -> None:
    assert {key: faults for key, text in TEXTS.items() if (faults := unclear(text))} == {}


def test_every_key_that_a_text_names_exists() -> None:
    known = {key.partition(": ")[2] for key in TEXTS} | set(FEATURES) | GROUP_KEYS.keys()
    named = {
        name for text in TEXTS.values() for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", text)
    }
    assert named - known == set()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("How long it may be.", "fewer than six words"),
        ("the time in milliseconds between two heartbeats.", "no capital letter first"),
        ("The time in milliseconds between two heartbeats", "no full stop last"),
        ("Of one partition in it, at the most.", "dialect"),
        ("The users to log in, parted with semicolons.", "dialect"),
        ("The replica that answers our requests for records.", "dialect"),
    ],
)
def test_a_text_that_explains_nothing_is_found(text: str, fault: str) -> None:
    assert unclear(text) == [fault]
