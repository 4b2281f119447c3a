"""The nodes of a cluster that is created as a whole: their ids, names, directories and configurations.

A single controller is node 0; several are 3001, 3002, ... Brokers are 1 to N. In a combined cluster
the first brokers are the controllers. Each node has a directory below the cluster's:

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


def controller_ids(controllers: int, *, among: Sequence[int] | None = None) -> list[int]:
    """Return the ids of so many controllers: the first `among` brokers, or nodes of their own."""
    if type(controllers) is not int or controllers < 1:
        raise ConfigError(f"controllers={controllers!r}: expected a whole number of at least 1")
    if among is not None:
        if controllers > len(among):
            raise ConfigError(
                f"controllers={controllers}: expected at most {len(among)}, as many as there are"
                " brokers, where a node has both roles"
            )
        return [*among[:controllers]]
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
    combined: bool = False,
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
    every_broker = broker_ids(brokers)
    every_controller = controller_ids(controllers, among=every_broker if combined else None)
    voters = [Voter(each, host_of(each), 0) for each in every_controller]
    common = {
        "cluster.id": "understudy",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(map(str, voters)),
    } | default_properties(brokers)
    configs = {}
    for node_id in dict.fromkeys([*every_controller, *every_broker]):
        host, roles, addresses = host_of(node_id), [], []
        if node_id in every_broker:
            port = base_port + node_id - 1 if base_port else 0
            roles.append("broker")
            addresses += [
                f"{name}://{host}:{0 if index else port}" for index, name in enumerate(listeners)
            ]
        if node_id in every_controller:
            roles.append("controller")
            addresses.append(f"CONTROLLER://{host}:0")
        own = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": ",".join(addresses),
            "log.dirs": f"{data_dir}/{node_directory(node_id)}/log",
        }
        configs[node_id] = BrokerConfig.from_properties(common | own | given)
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
