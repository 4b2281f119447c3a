"""What is followed, how far and how fast; all of it said when a mirror is made.

A topic is followed if it was named, or if a pattern fits its whole name. Patterns find no
internal topics (those of groups and transactions): whoever wants these names them.
"""

import enum
import re
from collections.abc import Mapping

import attrs

from replication.client.cluster_view import TopicView
from replication.config import BrokerConfig
from replication.errors import ConfigError

NODE_ID = 1
"""The copy lies where broker 1 of a cluster of ours would have it, so that one can serve it."""
GROUP_OFFSETS_TOPIC = "__consumer_offsets"
LISTENER = "PLAINTEXT"
_LARGEST_BATCH = 2**31 - 1


class UpTo(enum.Enum):
    """How far the copy goes; the values are Kafka's isolation levels."""

    HIGH_WATERMARK = 0
    """All that is committed, transactions that are still open among it."""
    LAST_STABLE = 1
    """No further than the first transaction that is still open."""


def _compiled(patterns: "tuple[str, ...]") -> "tuple[str, ...]":
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{pattern!r} is no pattern: {error}") from error
    return patterns


@attrs.frozen(kw_only=True)
class MirrorOptions:
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = attrs.field(default=(), converter=_compiled)
    groups: bool = False
    """The offsets of consumer groups too: the source's `__consumer_offsets`."""
    up_to: UpTo = UpTo.LAST_STABLE
    bytes_per_second: int | None = None
    fetchers_per_leader: int = 1
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """Further keys of a broker, for how the copy is kept: `segment.bytes` and such."""

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
        # Kafka has no topic with a slash in its name; who says so would have us write elsewhere.
        if is_internal or "/" in name:
            return False
        return any(re.fullmatch(pattern, name) for pattern in self.patterns)

    def broker_config(self, log_directory: str) -> BrokerConfig:
        """How the copy is kept: nothing is let go of but by the source, nothing is compacted."""
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
            # A rate is kept between answers: one must not hold many seconds' worth.
            at_most = str(max(1, min(1 << 20, self.bytes_per_second)))
            properties["replica.fetch.max.bytes"] = at_most
            properties["replica.fetch.response.max.bytes"] = at_most
        return BrokerConfig.from_properties(properties | dict(self.properties))

    @property
    def topic_configs(self) -> dict[str, str]:
        """Of every topic, for as long as it is a copy."""
        if self.bytes_per_second is None:
            return {}
        return {"follower.replication.throttled.replicas": "*"}
