"""What can be done to a cluster whose nodes share a process, while it runs.

    impairments = Impairments()
    async with open_cluster(make_seams=impairments.seams) as cluster:
        steering = Steering(cluster, impairments)
        await steering.kill(1); await steering.start(1)
        steering.freeze(2); steering.thaw(2)
        steering.cut([1], [2, 3]); steering.heal()

Nodes are named by their ids; 0 is the controller. Rule: what is not possible now (a node that
is down cannot be killed) is refused with NotPossibleError, and nothing has changed.
"""

import enum
from collections.abc import Iterable, Sequence

import attrs
import trio

from replication.cluster.cluster import CONTROLLER_ID, Cluster
from replication.cluster.impairments import Impairments
from replication.errors import UnderstudyError
from replication.net.raising import raising_only_one


class NotPossibleError(UnderstudyError):
    """Not in the state that the cluster is in."""


class NodeStatus(enum.Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DOWN = "down"


@attrs.define(eq=False)
class Steering:
    """Of `cluster`, which was opened with the seams of `impairments`."""

    cluster: Cluster
    impairments: Impairments

    def __attrs_post_init__(self) -> None:
        self.impairments.know(self._node_at)

    @property
    def node_ids(self) -> list[int]:
        return sorted(self.cluster.configs)

    def status(self, node_id: int) -> NodeStatus:
        if not self._is_up(node_id):
            return NodeStatus.DOWN
        is_frozen = node_id in self.impairments.frozen
        return NodeStatus.FROZEN if is_frozen else NodeStatus.RUNNING

    async def kill(self, node_id: int) -> None:
        """As SIGKILL would."""
        self._must_be(node_id, up=True)
        await self.cluster.kill_node(node_id)

    async def stop(self, node_id: int) -> None:
        """A controlled shutdown; one that is frozen is thawed first."""
        self._must_be(node_id, up=True)
        self.impairments.thaw(node_id)
        await self.cluster.stop_node(node_id)

    async def start(self, node_id: int) -> None:
        """Again, where it was; returns when a broker is unfenced."""
        self._must_be(node_id, up=False)
        await self.cluster.start_node(node_id)

    def freeze(self, node_id: int) -> None:
        """As SIGSTOP would."""
        self._must_be(node_id, up=True)
        self.impairments.freeze(node_id)

    def thaw(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        self.impairments.thaw(node_id)

    def cut(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """`some` nodes off from `others`, or from all the rest; clients reach everybody."""
        some = list(some)
        rest = [each for each in self.node_ids if each not in some]
        others = rest if others is None else list(others)
        for node_id in (*some, *others):
            self._must_be_one(node_id)
        self.impairments.cut(some, others, one_way=one_way)

    @property
    def cuts(self) -> Sequence[tuple[int, int]]:
        """What is cut: from whom nothing reaches whom."""
        return sorted(self.impairments.cuts)

    def heal(self) -> None:
        """Every cut; what was held up meanwhile arrives."""
        self.impairments.heal()

    def let_go(self) -> None:
        """Nobody is held up any more."""
        self.cluster.faults.clear()
        self.heal()
        for node_id in self.impairments.frozen:
            self.impairments.thaw(node_id)

    async def make_whole(self) -> None:
        """Everybody up, thawed and connected, and no fault rules. Topics stay."""
        self.let_go()
        with raising_only_one():
            async with trio.open_nursery() as nursery:
                for node_id in self.node_ids:
                    if not self._is_up(node_id):
                        nursery.start_soon(self.cluster.start_node, node_id)
        await self.cluster.until(self.cluster.is_complete, what="every broker knows every other")

    def _is_up(self, node_id: int) -> bool:
        if node_id == CONTROLLER_ID:
            return self.cluster.controller is not None
        return node_id in self.cluster.brokers

    def _must_be_one(self, node_id: int) -> None:
        if node_id not in self.cluster.configs:
            there = ", ".join(map(str, self.node_ids))
            raise NotPossibleError(f"there is no node {node_id!r}; those of this cluster: {there}")

    def _must_be(self, node_id: int, *, up: bool) -> None:
        self._must_be_one(node_id)
        if self._is_up(node_id) != up:
            name = "the controller" if node_id == CONTROLLER_ID else f"broker {node_id}"
            raise NotPossibleError(f"{name} is {'down' if up else 'up'} already")

    def _node_at(self, port: int) -> int | None:
        for node_id, config in self.cluster.configs.items():
            if any(listener.port == port for listener in config.listeners):
                return node_id
        return None
