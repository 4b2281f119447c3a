"""What a topic may be called (org.apache.kafka.common.internals.Topic.validate)."""

import re

from replication.metadata.rules import METADATA_TOPIC

MAX_NAME = 249  # a directory's name, less the partition's number
NOT_TO_BE_MADE = frozenset({METADATA_TOPIC, "__cluster_metadata"})
"""Logs of the cluster itself, ours and Kafka's: no client makes a topic of that name."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of(name: str) -> str | None:
    """Return why no topic can be called `name`; None where one can."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        return "is none of letters, digits, '.', '_' and '-' alone"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    return None
