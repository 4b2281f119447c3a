"""The valid names of topics (org.apache.kafka.common.internals.Topic.validate)."""

import re

from replication.metadata.rules.records import METADATA_TOPIC

MAX_NAME = 249  # a directory's name, less the partition's number
NOT_TO_BE_MADE = frozenset({METADATA_TOPIC, "__cluster_metadata"})
"""The metadata logs of this cluster and of Kafka's: no client creates a topic of that name."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of(name: str) -> str | None:
    """Return the fault in a topic's name; None for a valid one."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        return "is none of letters, digits, '.', '_' and '-' alone"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    return None
