"""The configuration of one consumer group (KIP-848): what the members of a broker's groups have, but
for the keys that are set for this group.

    set for the group ──> within the bounds of its coordinator ──> in force
    not set           ──> the coordinator's own value

Rule: a value is checked when it is set, by the bounds of the controller's configuration. The bounds
of a coordinator may be others: then the nearest value that it allows is in force.

(Kafka: GroupConfig.)
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from replication.config.broker import BROKER_KEYS, BrokerConfig
from replication.config.dynamic import DynamicBrokerConfig
from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym
from replication.config.known import nearest
from replication.errors import ConfigError, ErrorCode, KafkaError
from storage.attributes import frozen


class _GroupKey(NamedTuple):
    """A key of groups: the broker's key with its default, and those with its bounds."""

    broker_key: str
    minimum: str
    maximum: str


def _key(name: str) -> _GroupKey:
    prefix = "group.consumer."
    return _GroupKey(f"{prefix}{name}", f"{prefix}min.{name}", f"{prefix}max.{name}")


SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"
GROUP_KEYS: Final = MappingProxyType[str, _GroupKey](
    {
        SESSION: _key("session.timeout.ms"),
        HEARTBEAT: _key("heartbeat.interval.ms"),
        ASSIGNMENT: _key("assignment.interval.ms"),
    }
)


@frozen
class GroupConfig:
    """The settings of one group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def in_force(cls, given: Mapping[str, str], broker: BrokerConfig) -> Self:
        """Return the settings of a group at the coordinator with this configuration."""
        return cls(*(_in_force(name, given, broker) for name in GROUP_KEYS))


def _in_force(name: str, given: Mapping[str, str], broker: BrokerConfig) -> int:
    key = GROUP_KEYS[name]
    if name not in given:
        return _of_broker(key.broker_key, broker)
    lowest, highest = _of_broker(key.minimum, broker), _of_broker(key.maximum, broker)
    return max(lowest, min(int(given[name]), highest))


def _of_broker(name: str, broker: BrokerConfig) -> int:
    return int(getattr(broker, name.replace(".", "_")))


def check_group(given: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise KafkaError(INVALID_CONFIG) if a group cannot have these values."""
    for name, text in given.items():
        if name not in GROUP_KEYS:
            hint = nearest(name, GROUP_KEYS)
            raise _refusal(f"Unknown group config name: {name}{hint}")
        key = GROUP_KEYS[name]
        try:
            value = BROKER_KEYS[key.broker_key].value_of(name, text)
        except ConfigError as error:
            raise _refusal(f"Invalid value for {error}") from None
        if value < _of_broker(key.minimum, broker):
            raise _refusal(f"{name} must be greater than or equal to {key.minimum}")
        if value > _of_broker(key.maximum, broker):
            raise _refusal(f"{name} must be less than or equal to {key.maximum}")
    settings = GroupConfig.in_force(given, broker)
    are_given = not given.keys().isdisjoint({SESSION, HEARTBEAT})
    if are_given and settings.session_timeout_ms <= settings.heartbeat_interval_ms:
        raise _refusal(f"{SESSION} must be greater than {HEARTBEAT}")


def describe_group(given: Mapping[str, str], broker: DynamicBrokerConfig) -> list[ConfigEntry]:
    """Describe every key of a group, with the origin of its value (ConfigHelper)."""
    return [_described(name, given, broker) for name in GROUP_KEYS]


def _described(name: str, given: Mapping[str, str], broker: DynamicBrokerConfig) -> ConfigEntry:
    key = GROUP_KEYS[name]
    spec = BROKER_KEYS[key.broker_key]
    synonyms = broker.synonyms(key.broker_key)
    if name in given:
        own = ConfigSynonym(name, given[name], ConfigSource.GROUP_CONFIG)
        synonyms = (own, *synonyms)
    return ConfigEntry(
        name=name,
        value=str(_in_force(name, given, broker.current)),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        type=spec.type,
        documentation=spec.doc,
        read_only=False,
        synonyms=synonyms,
    )


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
