"""Keys that can be set while a node runs, the resulting values, and their description (KIP-226).

    set for this broker      log.retention.ms=1000      wins
    set for every broker     log.retention.ms=5000
    the node's file          log.retention.ms=60000
    Kafka's default          604800000

Rule 1: the metadata log keeps each value as text, and each node parses it. A node skips a value
that it cannot read and uses the next value in line: this release would have refused to set it,
so another release must have accepted it.

Rule 2: a dynamic key is either read from `current` each time it is needed, or its user is
notified of the change. A key that is read once, at the start, is read-only.

In DescribeConfigs, a key's synonyms are the places that set a value for it, the one that decides
first. Some keys have several names, and each name is described separately:

    log.retention.hours=1 in the file
        log.retention.ms        no value
        log.retention.minutes   no value
        log.retention.hours     1          in the file: 1, Kafka's default: 168

Rule 3: a synonym has the text as it was set; the value is that text after parsing.

Rule 4: a key whose default is null in Kafka has no synonym for its default.

(Kafka: DynamicBrokerConfig, ConfigHelper.)
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import dropwhile
from typing import Any

import attrs

from replication.config.broker import BROKER_KEYS, BrokerConfig
from replication.config.keys import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Spec,
    secret,
    specs,
    whole,
    words,
)
from replication.config.known import (
    DYNAMIC,
    OF_BROKERS,
    is_ignored,
    is_of_listener,
    nearest,
    of_listener,
)
from replication.config.security import JAAS_CONFIG
from replication.config.tls import RELOADABLE
from replication.errors import ConfigError, ErrorCode, KafkaError
from storage.attributes import define, frozen

_TOGETHER = (  # DynamicBrokerConfig.brokerConfigSynonyms: the first that is set takes precedence
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_NO_DEFAULT = frozenset(
    """
    advertised.listeners controller.listener.names log.dirs log.flush.interval.ms
    log.retention.minutes log.retention.ms log.roll.jitter.ms log.roll.ms node.id process.roles
    """.split()  # noqa: SIM905
)
_OTHER_DEFAULTS = {
    "listeners": "PLAINTEXT://:9092",
    "listener.security.protocol.map": (
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
}
_NOTHING: Mapping[str, str] = {}
# The keys that set a number of threads or tasks.
_THREADS = frozenset(
    """
    background.threads log.cleaner.threads num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.fetchers
    """.split()  # noqa: SIM905
)


@frozen(kw_only=True)
class _Logins:
    sasl_jaas_config: str | None = secret(
        "The login of one SASL mechanism, in the form of a JAAS file. On a broker's listener it"
        " names the users of PLAIN and the login that the node itself uses."
    )


_JAAS = specs(_Logins)[JAAS_CONFIG]


@frozen(kw_only=True)
class _OlderNames:
    broker_id: int = whole(
        -1, "The id of this node, by the older name of `node.id`. Use `node.id` in new files."
    )
    log_dir: tuple[str, ...] = words(
        ["/tmp/kafka-logs"],  # noqa: S108 Kafka's default
        "The directory in which partitions are stored when `log.dirs` is not set.",
    )
    log_roll_hours: int = whole(
        168,
        "The time in hours after which a log starts a new segment. It is used when"
        " `log.roll.ms` is not set.",
        at_least=1,
    )
    log_roll_jitter_hours: int = whole(
        0,
        "The largest time in hours by which a log starts a new segment early. It is used when"
        " `log.roll.jitter.ms` is not set.",
        at_least=0,
    )
    log_retention_minutes: int = whole(
        -1,
        "The time in minutes for which records are kept. It is used when `log.retention.ms` is"
        " not set.",
    )
    log_retention_hours: int = whole(
        168,
        "The time in hours for which records are kept. It is used when neither"
        " `log.retention.ms` nor `log.retention.minutes` is set.",
    )


DESCRIBED: Mapping[str, Spec] = {**BROKER_KEYS, **specs(_OlderNames), **OF_BROKERS}

_NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: names for names in _TOGETHER for name in names},
    # The value of the second key is the default of the first.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def _default(name: str, spec: Spec) -> str | None:
    if name in _NO_DEFAULT or spec.default is None:
        return None
    return _OTHER_DEFAULTS.get(name, spec.render(spec.default))


DEFAULTS: Mapping[str, str] = {
    name: default
    for name, spec in DESCRIBED.items()
    if (default := _default(name, spec)) is not None
}


def spec_of(name: str) -> Spec | None:
    """Return the declaration of a key, which may have the prefix of a listener; None if unknown."""
    if name in DESCRIBED or not is_of_listener(name):
        return DESCRIBED.get(name)
    _, key = of_listener(name)
    return _JAAS if key.endswith(JAAS_CONFIG) else DESCRIBED.get(key)


def is_sensitive(name: str) -> bool:
    """Return whether the key's value must not be shown; so it is for unknown keys (KafkaConfig)."""
    spec = spec_of(name)
    return spec is None or spec.type is ConfigType.PASSWORD


def static_texts(config: BrokerConfig) -> Mapping[str, str]:
    """Return the text of each key that the file sets, or that Python code has set."""
    found = {**config.listener_keys, **config.given}
    found["node.id"] = found["broker.id"] = str(config.node_id)
    for name, spec in BROKER_KEYS.items():
        others = (*_NAMES.get(name, (name,)), *(["log.dir"] if name == "log.dirs" else []))
        value = getattr(config, name.replace(".", "_"))
        if value != spec.default and found.keys().isdisjoint(others):
            found[name] = (
                spec.render(value) or ""
            )  # the key of a secret is listed, its value is not shown
    return found


def synonyms(
    name: str, layers: Iterable[tuple[ConfigSource, Mapping[str, str]]]
) -> tuple[ConfigSynonym, ...]:
    """Return the places that set `name`; `layers` begin with the one that takes precedence."""
    names = (name, of_listener(name)[1]) if is_of_listener(name) else _NAMES.get(name, (name,))
    found = [
        ConfigSynonym(each, None if is_sensitive(name) else layer[each], source)
        for source, layer in layers
        for each in names
        if each in layer
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def value_in_force(name: str, found: Iterable[ConfigSynonym]) -> str | None:
    """Return the parsed value of the first synonym that can be read."""
    spec = spec_of(name)
    for each in found:
        if spec is not None and each.name == name and each.value is not None:
            with suppress(ConfigError):
                return spec.render(spec.value_of(name, each.value))
    return None


@define(eq=False, repr=False)
class DynamicBrokerConfig:
    """A node's configuration, which changes while the node runs."""

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
        """Apply the values in the metadata, given by broker id; None stands for all brokers."""
        self._own = configs.get(self.static.node_id, _NOTHING)
        self._cluster_wide = configs.get(None, _NOTHING)
        changed: dict[str, Any] = {}
        for name, given in (*self._cluster_wide.items(), *self._own.items()):
            if name in BROKER_KEYS and is_dynamic(name):
                with suppress(ConfigError):  # Rule 1
                    changed[name.replace(".", "_")] = BROKER_KEYS[name].value_of(name, given)
        current = attrs.evolve(self.static, **changed) if changed else self.static
        self.current = self._with_listener_keys(current, self._own)

    def _with_listener_keys(self, config: BrokerConfig, own: Mapping[str, str]) -> BrokerConfig:
        """Return `config` with the values that `own` sets for single listeners (KIP-226)."""
        found = dict(self.static.listener_keys)
        for name, given in own.items():
            if is_reloadable(name) and (spec := spec_of(name)) is not None:
                with suppress(ConfigError):  # Rule 1
                    spec.value_of(name, given)
                    found[name] = given
        return (
            config if found == config.listener_keys else attrs.evolve(config, listener_keys=found)
        )

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Return the places that set `name`, the one that decides first."""
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
        """Return the value of `name`, under whichever of its names it is set."""
        if name in BROKER_KEYS:
            return BROKER_KEYS[name].render(getattr(self.current, name.replace(".", "_")))
        return value_in_force(name, self.synonyms(name))

    def describe(self) -> list[ConfigEntry]:
        """Describe every key of this broker, and every other key that is set for it."""
        others = sorted({*self._own, *self._cluster_wide, *self._static} - DESCRIBED.keys())
        return [_entry(name, self.synonyms(name)) for name in (*DESCRIBED, *others)]

    def describe_cluster_wide(self) -> list[ConfigEntry]:
        """Describe the keys that are set for all brokers, and no others (ConfigHelper)."""
        layer = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._cluster_wide)
        return [_entry(name, synonyms(name, [layer])) for name in sorted(self._cluster_wide)]

    def check(self, configs: Mapping[str, str], *, of_one_broker: bool = True) -> BrokerConfig:
        """Return the configuration that this broker would have with `configs`.

        Raise KafkaError(INVALID_REQUEST), as Kafka does for brokers (KAFKA-13609), for a key that
        cannot be set while a broker runs, and for a wrong value.
        """
        static, unprefixed, of_listeners = [], [], []
        for name in sorted(configs):
            if name in RELOADABLE:
                unprefixed.append(name)
            elif is_reloadable(name):
                self._check_listener(name)
                of_listeners.append(name)
            elif not is_dynamic(name):
                static.append(name)
                if spec_of(name) is None and not is_ignored(name):
                    hint = nearest(name, filter(is_dynamic, DESCRIBED))
                    raise _refusal(f"Unknown broker config name: {name}{hint}")
        for names, why in (
            (static, "Cannot update these configs dynamically"),
            (unprefixed, "These security configs can be dynamically updated only per-listener"),
        ):
            if names:
                raise _refusal(f"{why}: {', '.join(names)}")
        for name, given in configs.items():
            self._check_value(name, given)
        if of_listeners and not of_one_broker:
            why = (
                "Cannot update these configs at default cluster level, broker id must be specified"
            )
            raise _refusal(f"{why}: {', '.join(of_listeners)}")
        return self._with_listener_keys(self.current, configs if of_one_broker else self._own)

    def _check_listener(self, name: str) -> None:
        """Raise KafkaError if this broker has no listener of that name."""
        listener, _ = of_listener(name)
        known = [each.name for each in self.static.broker_listeners]
        known += self.static.controller_listener_names
        if listener not in {each.lower() for each in known}:
            raise _refusal(f"{name}: expected one of the listeners ({', '.join(known)})")

    def _check_value(self, name: str, given: str) -> None:
        spec = spec_of(name)
        assert spec is not None, "a key that may be set is known"
        try:
            value = spec.value_of(name, given)
        except ConfigError as error:
            raise _refusal(f"Invalid value for {error}") from None
        if name in _THREADS:
            present = int(self.value_of(name) or 0)
            # DynamicThreadPool: at least half and at most double the present number.
            if not max(1, present // 2) <= value <= present * 2:
                raise _refusal(
                    f"Dynamic thread count update validation failed for {name}={value}:"
                    f" value should be at least half and at most double the current value {present}"
                )


def is_dynamic(name: str) -> bool:
    """Return whether the key can be set while the broker runs."""
    has_topic_key = name in BROKER_KEYS and BROKER_KEYS[name].topic_key is not None
    return has_topic_key or name in DYNAMIC or name in OF_BROKERS


def is_reloadable(name: str) -> bool:
    """Return whether the key sets the certificates of one listener, which can change at run time."""
    return is_of_listener(name) and of_listener(name)[1] in RELOADABLE


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _entry(name: str, found: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    spec = spec_of(name)
    return ConfigEntry(
        name=name,
        value=value_in_force(name, found),
        source=found[0].source if found else ConfigSource.DEFAULT_CONFIG,
        type=ConfigType.UNKNOWN if spec is None else spec.type,
        documentation=DESCRIBED[name].doc if name in DESCRIBED else None,
        read_only=not is_dynamic(name) and name not in RELOADABLE,
        synonyms=found,
    )
