"""The nodes of a cluster that is created as a whole: their ids, names, directories and configurations.

The controller is node 0, brokers are 1 to N, and each has a directory below the cluster's:

    DATA/controller/log   DATA/broker-1/log   DATA/broker-2/log   DATA/broker-3/log
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from replication.broker.defaults import default_properties
from replication.config import BrokerConfig
from replication.errors import ConfigError

CONTROLLER_ID = 0
HOST = "127.0.0.1"

HostOf: TypeAlias = Callable[[int], str]


def loopback(_: int) -> str:
    """Return the host of every node of one machine."""
    return HOST


def node_configs(
    *,
    brokers: int,
    data_dir: str,
    base_port: int = 0,
    properties: Mapping[str, object],
    listeners: Sequence[str] = ("PLAINTEXT",),
    host_of: HostOf = loopback,
) -> dict[int, BrokerConfig]:
    """Return the configuration of each node, by node id."""
    if type(brokers) is not int or brokers < 1:
        raise ConfigError(f"brokers={brokers!r}: expected a whole number of at least 1")
    given = {key: str(value) for key, value in properties.items()}
    common = {
        "cluster.id": "understudy",
        "controller.listener.names": "CONTROLLER",
        # The brokers get the controller's port once it is known.
        "controller.quorum.voters": f"{CONTROLLER_ID}@{host_of(CONTROLLER_ID)}:0",
    } | default_properties(brokers)
    controller = {
        "node.id": str(CONTROLLER_ID),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{host_of(CONTROLLER_ID)}:0",
        "log.dirs": f"{data_dir}/{node_directory(CONTROLLER_ID)}/log",
    }
    configs = {CONTROLLER_ID: BrokerConfig.from_properties(common | controller | given)}
    for broker_id in range(1, brokers + 1):
        port = base_port + broker_id - 1 if base_port else 0
        broker = {
            "node.id": str(broker_id),
            "process.roles": "broker",
            "listeners": ",".join(
                f"{name}://{host_of(broker_id)}:{0 if index else port}"
                for index, name in enumerate(listeners)
            ),
            "log.dirs": f"{data_dir}/{node_directory(broker_id)}/log",
        }
        configs[broker_id] = BrokerConfig.from_properties(common | broker | given)
    return configs


def node_name(node_id: int) -> str:
    """Return the name of a node for readers."""
    return "the controller" if node_id == CONTROLLER_ID else f"broker {node_id}"


def node_directory(node_id: int) -> str:
    """Return the directory of a node below the cluster's directory."""
    return "controller" if node_id == CONTROLLER_ID else f"broker-{node_id}"
