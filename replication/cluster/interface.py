"""The one interface of a running cluster, however its nodes run.

    Cluster            nodes in this process, over any seams (`cluster.py`)
    SteeredProcesses   each node is a process of its own (`replication/cli/steered_processes.py`)

Nodes are named by their ids: 0 is a single controller, 3001 and so on are several, and a node with
both roles has the id of a broker.

Rule: an operation that is not possible now (a node that is down cannot be killed) raises
NotPossibleError, and changes nothing.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from replication.errors import UnderstudyError
from replication.faults import AddedRule, FaultRule
from replication.faults.node_faults import Faults
from storage.attributes import frozen


class NotInTimeError(UnderstudyError):
    """The error for a condition that did not become true within its time limit."""


class NotPossibleError(UnderstudyError):
    """The error for an operation that the present state of the cluster does not allow; it names the node."""


class NodeStatus(enum.Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DOWN = "down"


@frozen(kw_only=True)
class NodeSummary:
    """A node as a list of nodes shows it."""

    id: int
    status: NodeStatus
    address: str
    """`host:port` of its first listener."""
    roles: Collection[str]
    """`broker`, `controller`, or both (`process.roles`)."""


@frozen(kw_only=True)
class PartitionSummary:
    """A partition as a list of topics shows it; `leader` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class FaultControl(Protocol):
    """Fault rules that can be changed: those of a cluster, or of a proxy."""

    @property
    def faults(self) -> Faults:
        """The fault rules in force, to be read and waited for."""

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        """Put a fault rule in force on every node."""

    async def remove_fault(self, rule: AddedRule) -> None:
        """Remove a fault rule; requests that it holds go on."""

    async def clear_faults(self) -> None:
        """Remove every fault rule."""


class AnyCluster(FaultControl, Protocol):
    """A running cluster."""

    def nodes(self) -> list[NodeSummary]:
        """Return every node, the controllers first."""

    async def kill_node(self, node_id: int) -> None:
        """End a node as SIGKILL would."""

    async def stop_node(self, node_id: int) -> None:
        """Shut a node down in good order; a frozen node is thawed first."""

    async def start_node(self, node_id: int, *, timeout_seconds: float) -> None:
        """Start a node that is down; return when it serves.

        After the time limit the node is down again, and NotPossibleError is raised.
        """

    async def freeze_node(self, node_id: int) -> None:
        """Freeze a node as SIGSTOP would."""

    async def thaw_node(self, node_id: int) -> None:
        """Let a frozen node continue."""

    def cuts(self) -> Sequence[tuple[int, int]]:
        """Return the pairs (sender, receiver) between which nothing arrives."""

    async def cut(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """Cut `some` nodes off from `others`, by default from all other nodes.

        Clients still reach every node. With `one_way` only what `some` send is lost.
        """

    async def heal(self) -> None:
        """Undo every cut; delayed bytes arrive."""

    async def make_whole(self) -> None:
        """Start, thaw and connect every node, and remove every fault rule. Topics stay."""

    async def topics(self) -> Mapping[str, Sequence[PartitionSummary]]:
        """Return the partitions of every topic, by its name."""
