"""Kafka's configuration, by Kafka's names.

Rule 1: a key is declared once, with its type, default, check, documentation and, if a topic can
override it, its name for topics. The code that parses files, checks values, answers
DescribeConfigs and makes a topic's settings reads that one declaration.

Rule 2: a wrong configuration raises one `ConfigError` of one line, which names the key. A key of
Kafka's that has no effect here is accepted and listed in `ignored_keys`, so that a stock
server.properties loads and its owner can see which keys do nothing. Any other key is refused,
and the error suggests the nearest known key.

    properties.py   the text of a .properties file -> keys and values
    keys.py         the declaration of a key
    broker.py       every key of a node: BrokerConfig
    listeners.py    host, port and name of listeners and voters
    known.py        Kafka's keys that have no effect here
    dynamic.py      values set while the node runs, and what DescribeConfigs says of every key
    alter.py        changes applied to the values set so far
    topic.py        a topic's overrides, and its broker's values for the rest: TopicConfig
    group.py        the same for a consumer group: GroupConfig
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.config.alter import ConfigChange, ConfigOperation
    from replication.config.broker import BrokerConfig
    from replication.config.dynamic import DynamicBrokerConfig
    from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
    from replication.config.listeners import HostPort, ListenerConfig, Voter
    from replication.config.properties import parse_properties
    from replication.config.topic import TopicConfig

__all__ = [
    "BrokerConfig",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "DynamicBrokerConfig",
    "HostPort",
    "ListenerConfig",
    "TopicConfig",
    "Voter",
    "parse_properties",
]

_MODULES = {
    "ConfigChange": "alter",
    "ConfigOperation": "alter",
    "BrokerConfig": "broker",
    "DynamicBrokerConfig": "dynamic",
    "ConfigEntry": "keys",
    "ConfigSource": "keys",
    "ConfigSynonym": "keys",
    "ConfigType": "keys",
    "HostPort": "listeners",
    "ListenerConfig": "listeners",
    "Voter": "listeners",
    "parse_properties": "properties",
    "TopicConfig": "topic",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a client does not import the keys of brokers."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
