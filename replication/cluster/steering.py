"""What can be done to a cluster whose nodes share a process, while it runs.

    impairments = Impairments()
    async with open_cluster(make_seams=impairments.seams) as cluster:
        steering = Steering(cluster, impairments)
        await steering.kill(1); await steering.start(1)
        steering.freeze(2); steering.thaw(2)
        steering.cut([1], [2, 3]); steering.heal()

Nodes are named by their ids; 0 is the controller. Rule: what is not possible now (a node that
is down cannot be killed) is refused with NotPossibleError, and nothing has changed; `cluster.py`
has the check.
"""

import enum
from collections.abc import Iterable, Sequence

import attrs
import trio

from replication.cluster.cluster import Cluster, NotPossibleError
from replication.faults.impairments import Impairments
from replication.net.raising import raising_only_one


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
        return self.cluster.node_ids

    def status(self, node_id: int) -> NodeStatus:
        if not self.cluster.is_up(node_id):
            return NodeStatus.DOWN
        is_frozen = node_id in self.impairments.frozen
        return NodeStatus.FROZEN if is_frozen else NodeStatus.RUNNING

    async def kill(self, node_id: int) -> None:
        """As SIGKILL would."""
        await self.cluster.kill_node(node_id)

    async def stop(self, node_id: int) -> None:
        """A controlled shutdown; one that is frozen is thawed first."""
        self.cluster.must_be(node_id, up=True)
        self.impairments.thaw(node_id)
        await self.cluster.stop_node(node_id)

    async def start(self, node_id: int) -> None:
        """Again, where it was; returns when a broker is unfenced."""
        await self.cluster.start_node(node_id)

    def freeze(self, node_id: int) -> None:
        """As SIGSTOP would."""
        self.cluster.must_be(node_id, up=True)
        self.impairments.freeze(node_id)

    def thaw(self, node_id: int) -> None:
        self.cluster.must_be(node_id, up=True)
        self.impairments.thaw(node_id)

    def cut(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """`some` nodes off from `others`, or from all the rest; clients reach everybody."""
        some = self._several(some)
        rest = [each for each in self.node_ids if each not in some]
        others = rest if others is None else self._several(others)
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
                    if not self.cluster.is_up(node_id):
                        nursery.start_soon(self.cluster.start_node, node_id)
        await self.cluster.until(self.cluster.is_complete, what="every broker knows every other")

    def _several(self, nodes: Iterable[int]) -> list[int]:
        if not isinstance(nodes, Iterable):
            raise NotPossibleError(f"{nodes!r} is no list of node ids, such as [1, 2]")
        several = list(nodes)
        for node_id in several:
            self.cluster.must_be_one(node_id)
        return several

    def _node_at(self, port: int) -> int | None:
        for node_id, config in self.cluster.configs.items():
            if any(listener.port == port for listener in config.listeners):
                return node_id
        return None
