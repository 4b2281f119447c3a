"""What may be set while a node runs, and what is then in force (DynamicBrokerConfig, KIP-226).

set for this broker      log.retention.ms=1000      wins
set for every broker     log.retention.ms=5000
the node's file          log.retention.ms=60000
Kafka's default          604800000

Rule 1: the metadata log keeps what was set, as text; it is parsed again by whoever applies
it. A value that this release cannot read is passed over, and the next in line is in force:
it was refused when it was set, so only another release can have let it in.

Rule 2: a key is either read when it is needed, from `current`, or its owner is told of the
change. What is read once, at the start, is read-only.
"""

import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from replication.config.broker import BROKER_KEYS, BrokerConfig
from replication.config.described import (
    DEFAULTS,
    DESCRIBED,
    static_texts,
    synonyms,
    value_in_force,
)
from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
from replication.config.known import DYNAMIC, is_ignored, nearest
from replication.config.without_effect import OF_BROKERS
from replication.errors import ConfigError, ErrorCode, KafkaError

_NOTHING: Mapping[str, str] = {}
# Those that say how many threads, or tasks, there are of a kind.
_THREADS = frozenset(
    """
    background.threads log.cleaner.threads num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.fetchers
    """.split()  # noqa: SIM905
)


@attrs.define(eq=False)
class DynamicBrokerConfig:
    """A node's configuration, as it changes."""

    static: BrokerConfig
    current: BrokerConfig = attrs.field(init=False)
    _own: Mapping[str, str] = attrs.field(default=_NOTHING, init=False)
    _cluster_wide: Mapping[str, str] = attrs.field(default=_NOTHING, init=False)

    def __attrs_post_init__(self) -> None:
        self.current = self.static

    @cached_property
    def _static(self) -> Mapping[str, str]:
        return static_texts(self.static)

    @classmethod
    def of(
        cls, static: BrokerConfig, configs: Mapping[int | None, Mapping[str, str]]
    ) -> "DynamicBrokerConfig":
        dynamic = cls(static)
        dynamic.update(configs)
        return dynamic

    def update(self, configs: Mapping[int | None, Mapping[str, str]]) -> None:
        """Take over what the metadata says, by broker; None stands for all of them."""
        self._own = configs.get(self.static.node_id, _NOTHING)
        self._cluster_wide = configs.get(None, _NOTHING)
        changed: dict[str, Any] = {}
        for name, text in (*self._cluster_wide.items(), *self._own.items()):
            if name in BROKER_KEYS and is_dynamic(name):
                with contextlib.suppress(ConfigError):  # Rule 1
                    changed[name.replace(".", "_")] = BROKER_KEYS[name].value_of(name, text)
        self.current = attrs.evolve(self.static, **changed) if changed else self.static

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Return where the value of `name` could have come from, what is in force first."""
        return synonyms(
            name,
            (
                (ConfigSource.DYNAMIC_BROKER_CONFIG, self._own),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._cluster_wide),
                (ConfigSource.STATIC_BROKER_CONFIG, self._static),
                (ConfigSource.DEFAULT_CONFIG, DEFAULTS),
            ),
        )

    def value_of(self, name: str) -> str | None:
        """Return what is in force for `name`, whichever of its names set it."""
        if name in BROKER_KEYS:
            return BROKER_KEYS[name].render(getattr(self.current, name.replace(".", "_")))
        return value_in_force(name, self.synonyms(name))

    def describe(self) -> list[ConfigEntry]:
        """Describe every key of this broker, and whatever else was set for it."""
        others = sorted({*self._own, *self._cluster_wide} - DESCRIBED.keys())
        return [_entry(name, self.synonyms(name)) for name in (*DESCRIBED, *others)]

    def describe_cluster_wide(self) -> list[ConfigEntry]:
        """Describe what is set for every broker, and nothing else (ConfigHelper)."""
        layer = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._cluster_wide)
        return [_entry(name, synonyms(name, [layer])) for name in sorted(self._cluster_wide)]

    def check(self, configs: Mapping[str, str]) -> None:
        """KafkaError(INVALID_REQUEST), as Kafka says it of brokers (KAFKA-13609), where one of
        `configs` may not be set while a broker runs, or not to that.
        """
        static = sorted(name for name in configs if not is_dynamic(name))
        for name in static:
            if name not in DESCRIBED and not is_ignored(name):
                hint = nearest(name, filter(is_dynamic, DESCRIBED))
                raise _refusal(f"Unknown broker config name: {name}{hint}")
        if static:
            raise _refusal(f"Cannot update these configs dynamically: {', '.join(static)}")
        for name, text in configs.items():
            self._check_value(name, text)

    def _check_value(self, name: str, text: str) -> None:
        try:
            value = DESCRIBED[name].value_of(name, text)
        except ConfigError as error:
            raise _refusal(f"Invalid value for {error}") from None
        if name in _THREADS:
            present = int(self.value_of(name) or 0)
            # DynamicThreadPool: neither less than half of what runs, nor more than twice.
            if not max(1, present // 2) <= value <= present * 2:
                raise _refusal(
                    f"Dynamic thread count update validation failed for {name}={value}:"
                    f" value should be at least half and at most double the current value {present}"
                )


def is_dynamic(name: str) -> bool:
    """Whether it may be set while the broker runs."""
    has_topic_key = name in BROKER_KEYS and BROKER_KEYS[name].topic_key is not None
    return has_topic_key or name in DYNAMIC or name in OF_BROKERS


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _entry(name: str, found: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    spec = DESCRIBED.get(name)
    return ConfigEntry(
        name=name,
        value=value_in_force(name, found),
        source=found[0].source if found else ConfigSource.DEFAULT_CONFIG,
        type=ConfigType.UNKNOWN if spec is None else spec.type,
        documentation="This release does not know the key." if spec is None else spec.doc,
        read_only=not is_dynamic(name),
        synonyms=found,
    )
