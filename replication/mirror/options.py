"""The options of a mirror: the topics that it follows, how far and how fast.

A topic is followed if it is named, or if a pattern matches its whole name. Patterns match no
internal topics (those of groups and transactions): these must be named.
"""

import enum
import re
from collections.abc import Mapping

import attrs

from replication.client.cluster_view import TopicView
from replication.config import BrokerConfig
from replication.errors import ConfigError
from storage.attributes import frozen

NODE_ID = 1
"""The copy is stored as the logs of broker 1, so that a cluster can serve it."""
GROUP_OFFSETS_TOPIC = "__consumer_offsets"
LISTENER = "PLAINTEXT"
_LARGEST_BATCH = 2**31 - 1


class UpTo(enum.Enum):
    """The end of the copy; the values are Kafka's isolation levels."""

    HIGH_WATERMARK = 0
    """All committed records, also of transactions that are still open."""
    LAST_STABLE = 1
    """The records before the first transaction that is still open."""


def _compiled(patterns: "tuple[str, ...]") -> "tuple[str, ...]":
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{pattern!r} is not a pattern: {error}") from error
    return patterns


@frozen(kw_only=True)
class MirrorOptions:
    """The options of one mirror."""

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = attrs.field(default=(), converter=_compiled)
    groups: bool = False
    """Whether to follow the offsets of consumer groups, the source's `__consumer_offsets`."""
    up_to: UpTo = UpTo.LAST_STABLE
    bytes_per_second: int | None = None
    fetchers_per_leader: int = 1
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """Further broker keys for the storage of the copy, such as `segment.bytes`."""

    def __attrs_post_init__(self) -> None:
        if not (self.topics or self.patterns or self.groups):
            raise ConfigError("nothing to follow: name topics, or give a pattern")

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.topics, *([GROUP_OFFSETS_TOPIC] if self.groups else ()))

    def follows(self, topic: TopicView) -> bool:
        return self.wants(topic.name, is_internal=topic.is_internal)

    def wants(self, name: str, *, is_internal: bool) -> bool:
        if name in self.names:
            return True
        # Kafka has no topic with a slash in its name, which would lead to another directory.
        if is_internal or "/" in name:
            return False
        return any(re.fullmatch(pattern, name) for pattern in self.patterns)

    def broker_config(self, log_directory: str) -> BrokerConfig:
        """Return the configuration of the copy's storage: without retention and compaction."""
        properties = {
            "node.id": str(NODE_ID),
            "process.roles": "broker",
            "listeners": f"{LISTENER}://localhost:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "0@localhost:0",
            "log.dirs": log_directory,
            "log.cleaner.enable": "false",
            "log.retention.ms": "-1",
            "log.retention.bytes": "-1",
            "message.max.bytes": str(_LARGEST_BATCH),
            "num.replica.fetchers": str(self.fetchers_per_leader),
        }
        if self.bytes_per_second is not None:
            properties["follower.replication.throttled.rate"] = str(self.bytes_per_second)
            # The rate is checked between responses, so one must not hold many seconds' worth.
            at_most = str(max(1, min(1 << 20, self.bytes_per_second)))
            properties["replica.fetch.max.bytes"] = at_most
            properties["replica.fetch.response.max.bytes"] = at_most
        return BrokerConfig.from_properties(properties | dict(self.properties))

    @property
    def topic_configs(self) -> dict[str, str]:
        """The configuration of every topic while it is a copy."""
        if self.bytes_per_second is None:
            return {}
        return {"follower.replication.throttled.replicas": "*"}
