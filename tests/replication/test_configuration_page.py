"""docs/configuration.md names every key that nothing reads."""

import ast
import re
from functools import cache
from pathlib import Path

import attrs

from replication.config.broker import BROKER_KEYS
from replication.config.known import DYNAMIC
from replication.config.topic import TOPIC_KEYS
from replication.config.without_effect import OF_BROKERS
from storage.config import LogConfig

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
LOG_KEYS = {each.name.replace("_", ".") for each in attrs.fields(LogConfig)}


@cache
def read_somewhere() -> set[str]:
    """Every attribute that some code asks for, as a key."""
    return {
        node.attr.replace("_", ".")
        for package in ("storage", "replication", "scenarios")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }


def listed(after: str) -> set[str]:
    """The names in code quotes of the paragraph that follows `after`."""
    paragraph = PAGE.read_text().partition(after)[2].strip().partition("\n\n")[0]
    return set(re.findall("`([^`]+)`", paragraph))


def test_topic_keys_that_nothing_reads_are_listed() -> None:
    known = {"min.insync.replicas", "unclean.leader.election.enable", "understudy.read.only"}
    known |= {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    unread = (LOG_KEYS - read_somewhere()) | (TOPIC_KEYS.keys() - LOG_KEYS - known)
    assert listed("Of topics, and of brokers under the broker's name:") >= unread


def test_broker_keys_that_nothing_reads_are_listed() -> None:
    assert listed("Of brokers, at run time:") == OF_BROKERS.keys()
    assert BROKER_KEYS.keys() >= DYNAMIC
    own = {name for name, spec in BROKER_KEYS.items() if spec.topic_key is None}
    assert listed("Of brokers, in the file:") >= own - read_somewhere()
