"""A topic's settings: its overrides, over its broker's values, over Kafka's defaults.

topic override      segment.bytes=1048576         wins
broker's value      log.segment.bytes=1073741824  ServerTopicConfigSynonyms
Kafka's default     1073741824
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.config.broker import BrokerConfig
from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym, Spec, specs
from replication.config.known import nearest
from replication.errors import ConfigError, ErrorCode, KafkaError
from storage.config import LogConfig

# A topic's key -> its broker's, and what both mean.
TOPIC_KEYS: Mapping[str, tuple[str, Spec]] = {
    spec.topic_key: (name, spec)
    for name, spec in specs(BrokerConfig).items()
    if spec.topic_key is not None
}


@attrs.frozen(kw_only=True)
class TopicConfig:
    """What is in force for one topic on one broker."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> Self:
        """KafkaError(INVALID_CONFIG), naming the key, where an override is not one."""
        values: dict[str, Any] = {
            topic_key.replace(".", "_"): getattr(broker, name.replace(".", "_"))
            for topic_key, (name, _) in TOPIC_KEYS.items()
        }
        for topic_key, text in overrides.items():
            values[topic_key.replace(".", "_")] = _parse(topic_key, text)
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        return cls(
            min_insync_replicas=values.pop("min_insync_replicas"),
            unclean_leader_election_enable=values.pop("unclean_leader_election_enable"),
            log=LogConfig(**values),
        )


def _parse(topic_key: str, text: str) -> Any:
    if topic_key not in TOPIC_KEYS:
        hint = nearest(topic_key, TOPIC_KEYS)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic config {topic_key}{hint}")
    _, spec = TOPIC_KEYS[topic_key]
    try:
        return spec.value_of(topic_key, text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Every key of a topic for DescribeConfigs, with where its value comes from."""
    entries = []
    for topic_key, (name, spec) in TOPIC_KEYS.items():
        synonyms = list(broker.synonyms(name))
        if topic_key in overrides:
            override = ConfigSynonym(topic_key, overrides[topic_key], ConfigSource.TOPIC_CONFIG)
            synonyms.insert(0, override)
        entries.append(
            ConfigEntry(
                name=topic_key,
                value=synonyms[0].value,
                source=synonyms[0].source,
                type=spec.type,
                documentation=spec.doc,
                read_only=False,
                default=spec.render(spec.default),
                synonyms=tuple(synonyms),
            )
        )
    return entries
