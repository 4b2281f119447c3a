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
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from replication.config.broker import BROKER_KEYS, BrokerConfig, rendered_default
from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
from replication.config.known import DYNAMIC, is_ignored, nearest
from replication.errors import ConfigError, ErrorCode, KafkaError

_NOTHING: Mapping[str, str] = {}
# Those that say how many threads, or tasks, there are of a kind.
_THREADS = frozenset(
    {"log.cleaner.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"}
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
            if is_dynamic(name):
                with contextlib.suppress(ConfigError):  # Rule 1
                    changed[name.replace(".", "_")] = BROKER_KEYS[name].value_of(name, text)
        self.current = attrs.evolve(self.static, **changed) if changed else self.static

    def synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """Where the value of `name` could come from, what is in force first."""
        if name in self._own:
            yield ConfigSynonym(name, self._own[name], ConfigSource.DYNAMIC_BROKER_CONFIG)
        if name in self._cluster_wide:
            yield self._of_all(name)
        if name in BROKER_KEYS:
            yield from self.static.synonyms(name)

    def _of_all(self, name: str) -> ConfigSynonym:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSynonym(name, self._cluster_wide[name], source)

    def describe(self) -> list[ConfigEntry]:
        """Every key of this broker, and those without effect that were set."""
        without_effect = sorted({*self._own, *self._cluster_wide} - BROKER_KEYS.keys())
        return [
            _entry(name, tuple(self.synonyms(name))) for name in (*BROKER_KEYS, *without_effect)
        ]

    def describe_cluster_wide(self) -> list[ConfigEntry]:
        """What is set for every broker, and nothing else (ConfigHelper)."""
        return [_entry(name, (self._of_all(name),)) for name in sorted(self._cluster_wide)]

    def check(self, configs: Mapping[str, str]) -> None:
        """KafkaError(INVALID_REQUEST), as Kafka says it of brokers (KAFKA-13609), where one of
        `configs` may not be set while a broker runs, or not to that.
        """
        static = sorted(name for name in configs if not is_dynamic(name) and name not in DYNAMIC)
        for name in static:
            if name not in BROKER_KEYS and not is_ignored(name):
                hint = nearest(name, filter(is_dynamic, BROKER_KEYS))
                raise _refusal(f"Unknown broker config name: {name}{hint}")
        if static:
            raise _refusal(f"Cannot update these configs dynamically: {', '.join(static)}")
        for name, text in configs.items():
            if name in BROKER_KEYS:
                self._check_value(name, text)

    def _check_value(self, name: str, text: str) -> None:
        try:
            value = BROKER_KEYS[name].value_of(name, text)
        except ConfigError as error:
            raise _refusal(f"Invalid value for {error}") from None
        if name in _THREADS:
            present: int = getattr(self.current, name.replace(".", "_"))
            # DynamicThreadPool: neither less than half of what runs, nor more than twice.
            if not present // 2 <= value <= present * 2:
                raise _refusal(
                    f"Dynamic thread count update validation failed for {name}={value}:"
                    f" value should be at least half and at most double the current value {present}"
                )


def is_dynamic(name: str) -> bool:
    """Whether it is honoured and may be set while the broker runs."""
    spec = BROKER_KEYS.get(name)
    return spec is not None and (spec.topic_key is not None or name in DYNAMIC)


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _entry(name: str, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    """What DescribeConfigs says of `name`, of whose values the first is in force."""
    spec = BROKER_KEYS.get(name)
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=ConfigType.UNKNOWN if spec is None else spec.type,
        documentation="Accepted without effect." if spec is None else spec.doc,
        read_only=spec is not None and not is_dynamic(name),
        default=None if spec is None else rendered_default(spec),
        synonyms=synonyms,
    )
