"""Frozen nodes and network cuts, in a cluster whose nodes share a process."""

from collections.abc import Callable, Iterable
from itertools import product

import attrs

from replication.net import production_seams
from replication.net.impaired import Gates, ImpairedClock, ImpairedTransport, NodeAt
from replication.net.seams import Seams
from storage.attributes import define


@define(eq=False)
class Impairments:
    """The seams of each node, which can be frozen and cut. For `open_cluster(impairments=...)`."""

    make_seams: Callable[[int], Seams] = lambda _: production_seams()
    """Returns the plain seams of a node."""

    _gates: Gates = attrs.field(init=False, factory=Gates)
    _clocks: dict[int, ImpairedClock] = attrs.field(init=False, factory=dict)

    def seams(self, node_id: int) -> Seams:
        """Return the seams of a node that starts: it is not frozen, and cuts stay in force."""
        self.thaw(node_id)
        seams = self.make_seams(node_id)
        clock = self._clocks[node_id] = ImpairedClock(node_id, self._gates, seams.clock)
        transport = ImpairedTransport(node_id, self._gates, seams.transport)
        return attrs.evolve(seams, clock=clock, transport=transport)

    def know(self, node_at: NodeAt) -> None:
        """Take the function that finds the node at a port, once the nodes listen."""
        self._gates.node_at = node_at

    def freeze(self, node_id: int) -> None:
        self._gates.frozen.add(node_id)
        self._clocks[node_id].freeze()

    def thaw(self, node_id: int) -> None:
        """Let a frozen node go on; do nothing with another one."""
        if node_id in self._gates.frozen:
            self._gates.frozen.discard(node_id)
            self._clocks[node_id].thaw()
            self._gates.wake()

    def cut(self, some: Iterable[int], others: Iterable[int], *, one_way: bool = False) -> None:
        """Cut the network from `some` to `others`, and back unless `one_way`."""
        there = set(product(some, others))
        back = set() if one_way else {(target, source) for source, target in there}
        self._gates.cut |= there | back

    def hold_to(self, cuts: Iterable[tuple[int, int]]) -> None:
        """Replace all cuts by `cuts`."""
        self._gates.cut = set(cuts)
        self._gates.wake()

    def heal(self) -> None:
        """Heal every cut; what was sent meanwhile arrives."""
        self._gates.cut.clear()
        self._gates.wake()

    @property
    def cuts(self) -> frozenset[tuple[int, int]]:
        """Pairs (from, to): what the first node sends does not reach the second."""
        return frozenset(self._gates.cut)

    @property
    def frozen(self) -> frozenset[int]:
        return frozenset(self._gates.frozen)
