"""The valid names of topics (org.apache.kafka.common.internals.Topic.validate)."""

import re

from replication.metadata.rules.records import METADATA_TOPIC
from storage.manager.log_directory import FORMER_METADATA_TOPIC

MAX_NAME = 249  # a directory's name, less the partition's number
NOT_TO_BE_MADE = frozenset({METADATA_TOPIC, FORMER_METADATA_TOPIC})
"""The topics of the metadata log, now and in older releases: no client creates one of that name."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of(name: str) -> str | None:
    """Return the fault in a topic's name; None for a valid one."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        return "is none of letters, digits, '.', '_' and '-' alone"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    return None
