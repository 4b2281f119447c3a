"""A topic's settings: its own overrides, then its broker's values, then Kafka's defaults.

topic override      segment.bytes=1048576         wins
broker's value      log.segment.bytes=1073741824  ServerTopicConfigSynonyms
Kafka's default     1073741824

Some keys exist for topics only, such as the throttled replicas (KIP-73). Other keys of Kafka's
are checked, kept and described here without effect.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.config.broker import BROKER_KEYS, BrokerConfig
from replication.config.dynamic import DynamicBrokerConfig
from replication.config.keys import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Spec,
    flag,
    specs,
    words,
)
from replication.config.known import OF_BROKERS, OF_TOPICS, nearest
from replication.errors import ConfigError, ErrorCode, KafkaError
from storage.attributes import frozen
from storage.config import LogConfig

EVERY_REPLICA = "*"
_REPLICA_OR_NOTHING = re.compile(r"([0-9]+:[0-9]+)?")


def _names_replicas(value: tuple[str, ...]) -> bool:
    """Return whether Kafka accepts the list (ThrottledReplicaListValidator)."""
    return "".join(value) == EVERY_REPLICA or all(map(_REPLICA_OR_NOTHING.fullmatch, value))


def _named(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(None, value))


def _throttled(doc: str) -> tuple[str, ...]:
    return words(
        (),
        doc,
        allows=_names_replicas,
        expectation="* or partition:broker pairs, separated by commas",
    )


@frozen(kw_only=True)
class _OfTopicsAlone:
    leader_replication_throttled_replicas: tuple[str, ...] = _throttled(
        "The replicas to which leaders send no more than `leader.replication.throttled.rate`"
        " while they are out of sync: partition:broker pairs, or `*` for all. Set it during a"
        " reassignment."
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _throttled(
        "The replicas that fetch no more than `follower.replication.throttled.rate` while they"
        " are out of sync: partition:broker pairs, or `*` for all. Set it during a reassignment."
    )
    understudy_read_only: bool = flag(
        False,
        "Whether the topic refuses produce and DeleteRecords requests because it is a copy of"
        " another cluster's topic. `understudy up` sets it when it serves a followed copy, and"
        " `understudy promote` takes it away.",
    )


@frozen
class TopicKey:
    """A topic key, and the broker key whose value it takes if the topic does not set it."""

    spec: Spec
    broker_key: str | None = None


TOPIC_KEYS: Mapping[str, TopicKey] = (
    {
        spec.topic_key: TopicKey(spec, name)
        for name, spec in BROKER_KEYS.items()
        if spec.topic_key is not None
    }
    | {name: TopicKey(spec) for name, spec in specs(_OfTopicsAlone).items()}
    | {
        name: TopicKey(spec, f"log.{name}" if f"log.{name}" in OF_BROKERS else None)
        for name, spec in OF_TOPICS.items()
    }
)

TOPIC_SPECS: Mapping[str, Spec] = {name: key.spec for name, key in TOPIC_KEYS.items()}


@frozen(kw_only=True)
class TopicConfig:
    """The settings of one topic on one broker."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_throttled_replicas: tuple[str, ...] = ()
    follower_throttled_replicas: tuple[str, ...] = ()
    read_only: bool = False

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> Self:
        """Return the settings that `overrides` give.

        Raise KafkaError(INVALID_CONFIG), which names the key, for a wrong key or value.
        """
        config = cls._of({name: _parse(name, text) for name, text in overrides.items()}, broker)
        _check_together(config.log)
        return config

    @classmethod
    def in_force(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> Self:
        """Return the settings of a topic that exists.

        Its overrides were checked when they were set. An override that cannot be read is skipped,
        and the next value in line is used (`config.dynamic`, Rule 1).
        """
        given = {}
        for name, text in overrides.items():
            with contextlib.suppress(KafkaError):
                given[name] = _parse(name, text)
        return cls._of(given, broker)

    @classmethod
    def _of(cls, given: Mapping[str, Any], broker: BrokerConfig) -> Self:
        def value(name: str) -> Any:
            key = TOPIC_KEYS[name]
            if name in given or key.broker_key is None:
                return given.get(name, key.spec.default)
            return getattr(broker, key.broker_key.replace(".", "_"))

        log = {
            each.name: value(each.name.replace("_", "."))
            for each in attrs.fields(LogConfig)
            if each.init
        }
        log["cleanup_policy"] = frozenset(log["cleanup_policy"])
        return cls(
            log=LogConfig(**log),
            min_insync_replicas=value("min.insync.replicas"),
            unclean_leader_election_enable=value("unclean.leader.election.enable"),
            leader_throttled_replicas=_named(value("leader.replication.throttled.replicas")),
            follower_throttled_replicas=_named(value("follower.replication.throttled.replicas")),
            read_only=value("understudy.read.only"),
        )


def _check_together(log: LogConfig) -> None:
    """Check the rules that involve several keys (LogConfig.validateValues)."""
    if log.min_compaction_lag_ms > log.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({log.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({log.max_compaction_lag_ms})",
        )


def _parse(name: str, text: str) -> Any:
    key = TOPIC_KEYS.get(name)
    if key is None:
        hint = nearest(name, TOPIC_KEYS)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
    try:
        return key.spec.value_of(name, text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value for {error}") from None


def describe_topic(overrides: Mapping[str, str], broker: DynamicBrokerConfig) -> list[ConfigEntry]:
    """Describe every key of a topic, with the origin of its value (ConfigHelper)."""
    return [_described(name, key, overrides, broker) for name, key in TOPIC_KEYS.items()]


def _described(
    name: str, key: TopicKey, overrides: Mapping[str, str], broker: DynamicBrokerConfig
) -> ConfigEntry:
    synonyms = () if key.broker_key is None else broker.synonyms(key.broker_key)
    value = key.spec.render(key.spec.default)
    if key.broker_key is not None:
        value = broker.value_of(key.broker_key)
    if name in overrides:
        with contextlib.suppress(KafkaError):
            value = key.spec.render(_parse(name, overrides[name]))
        synonyms = (ConfigSynonym(name, value, ConfigSource.TOPIC_CONFIG), *synonyms)
    return ConfigEntry(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        type=key.spec.type,
        documentation=key.spec.doc,
        read_only=False,
        synonyms=synonyms,
    )
