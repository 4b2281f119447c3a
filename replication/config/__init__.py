"""Kafka's configuration, by Kafka's names.

Rule 1: a key is declared once, with its type, default, check, one line of documentation
and, where a topic may override it, the topic's name for it. What parses a file, checks a
value, answers DescribeConfigs and makes a topic's settings all read that one place.

Rule 2: a wrong configuration is one `ConfigError` of one line, which names the key. A key
that Kafka knows and we do not honour is accepted and listed in `ignored_keys`, so that a
stock server.properties loads and nobody is left guessing; any other key is refused, and
the nearest one named.

    properties.py   the text of a .properties file -> keys and values
    keys.py         what one key is
    broker.py       every key of a node: BrokerConfig
    listeners.py    host, port and name out of listeners and voters
    known.py        keys of Kafka's that we do not honour
    dynamic.py      what was set while the node runs, over what its file said
    alter.py        what a change makes of what was set
    topic.py        a topic's overrides over its broker's values: TopicConfig
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.config.alter import ConfigChange, ConfigOperation
    from replication.config.broker import BrokerConfig
    from replication.config.dynamic import DynamicBrokerConfig
    from replication.config.keys import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
    from replication.config.listeners import HostPort, Listener, Voter
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
    "Listener",
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
    "Listener": "listeners",
    "Voter": "listeners",
    "parse_properties": "properties",
    "TopicConfig": "topic",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a client has no broker's keys."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
