"""The nodes of a cluster that is created as a whole: their ids, names, directories and configurations.

A single controller is node 0; several are 3001, 3002, ... Brokers are 1 to N. Each node has a
directory below the cluster's:

    DATA/controller/log        DATA/broker-1/log   DATA/broker-2/log   DATA/broker-3/log
    DATA/controller-3001/log   ...
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from replication.broker.defaults import default_properties
from replication.config import BrokerConfig, Voter
from replication.errors import ConfigError

CONTROLLER_ID = 0
"""The id of a single controller."""
FIRST_CONTROLLER_ID = 3001
"""The id of the first of several controllers."""
HOST = "127.0.0.1"

HostOf: TypeAlias = Callable[[int], str]


def loopback(_: int) -> str:
    """Return the host of every node of one machine."""
    return HOST


def controller_ids(controllers: int) -> list[int]:
    """Return the ids of so many controllers."""
    if type(controllers) is not int or controllers < 1:
        raise ConfigError(f"controllers={controllers!r}: expected a whole number of at least 1")
    if controllers == 1:
        return [CONTROLLER_ID]
    return [FIRST_CONTROLLER_ID + each for each in range(controllers)]


def broker_ids(brokers: int) -> list[int]:
    """Return the ids of so many brokers."""
    if type(brokers) is not int or not 1 <= brokers < FIRST_CONTROLLER_ID:
        raise ConfigError(
            f"brokers={brokers!r}: expected a whole number from 1 to {FIRST_CONTROLLER_ID - 1}"
        )
    return [*range(1, brokers + 1)]


def is_controller(node_id: int) -> bool:
    """Return whether a node is a controller."""
    return node_id == CONTROLLER_ID or node_id >= FIRST_CONTROLLER_ID


def node_configs(
    *,
    brokers: int,
    controllers: int = 1,
    data_dir: str,
    base_port: int = 0,
    properties: Mapping[str, object],
    listeners: Sequence[str] = ("PLAINTEXT",),
    host_of: HostOf = loopback,
) -> dict[int, BrokerConfig]:
    """Return the configuration of each node, by node id.

    The ports of controllers are 0: the nodes get them once they are known.
    """
    given = {key: str(value) for key, value in properties.items()}
    voters = [Voter(each, host_of(each), 0) for each in controller_ids(controllers)]
    brokers_alone = broker_ids(brokers)
    common = {
        "cluster.id": "understudy",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(map(str, voters)),
    } | default_properties(brokers)
    configs = {}
    for voter in voters:
        controller = {
            "node.id": str(voter.node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{voter.host}:0",
            "log.dirs": f"{data_dir}/{node_directory(voter.node_id)}/log",
        }
        configs[voter.node_id] = BrokerConfig.from_properties(common | controller | given)
    for broker_id in brokers_alone:
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
    if node_id == CONTROLLER_ID:
        return "the controller"
    return f"controller {node_id}" if is_controller(node_id) else f"broker {node_id}"


def node_directory(node_id: int) -> str:
    """Return the directory of a node below the cluster's directory."""
    if node_id == CONTROLLER_ID:
        return "controller"
    return f"controller-{node_id}" if is_controller(node_id) else f"broker-{node_id}"
