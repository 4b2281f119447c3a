"""The description of a broker's keys in DescribeConfigs (ConfigHelper).

A key's synonyms are the places that set a value for it, the one that decides first. Some keys
have several names, and each name is described separately:

    log.retention.hours=1 in the file
        log.retention.ms        no value
        log.retention.minutes   no value
        log.retention.hours     1          in the file: 1, Kafka's default: 168

Rule 1: a synonym has the text as it was set; the value is that text after parsing.

Rule 2: a key whose default is null in Kafka has no synonym for its default.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import dropwhile

import attrs

from replication.config.broker import BROKER_KEYS, BrokerConfig
from replication.config.keys import (
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Spec,
    secret,
    specs,
    text,
    whole,
)
from replication.config.known import is_of_listener, of_listener
from replication.config.security import JAAS_CONFIG
from replication.config.without_effect import OF_BROKERS
from replication.errors import ConfigError


@attrs.frozen(kw_only=True)
class _Logins:
    sasl_jaas_config: str | None = secret(
        "The login of one SASL mechanism, in the form of a JAAS file. On a broker's listener it"
        " names the users of PLAIN and the login that the node itself uses."
    )


_JAAS = specs(_Logins)[JAAS_CONFIG]


@attrs.frozen(kw_only=True)
class _OlderNames:
    broker_id: int = whole(
        -1, "The id of this node, by the older name of `node.id`. Use `node.id` in new files."
    )
    log_dir: str = text(
        "/tmp/kafka-logs",  # noqa: S108 Kafka's default
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

_TOGETHER = (  # DynamicBrokerConfig.brokerConfigSynonyms: the first that is set takes precedence
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: names for names in _TOGETHER for name in names},
    # The value of the second key is the default of the first.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

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
