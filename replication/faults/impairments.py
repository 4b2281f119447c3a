"""Who is frozen and who is cut off, in a cluster whose nodes share a process."""

from collections.abc import Callable, Iterable
from itertools import product

import attrs

from replication.net import production_seams
from replication.net.impaired import Gates, ImpairedClock, ImpairedTransport, NodeAt
from replication.net.seams import Seams


@attrs.define(eq=False)
class Impairments:
    """The seams of each node, and what holds them up. For `open_cluster(impairments=...)`."""

    make_seams: Callable[[int], Seams] = lambda _: production_seams()
    """The seams of a node that nothing holds up."""

    _gates: Gates = attrs.field(init=False, factory=Gates)
    _clocks: dict[int, ImpairedClock] = attrs.field(init=False, factory=dict)

    def seams(self, node_id: int) -> Seams:
        """For a node that starts: it is not frozen; what is cut stays cut."""
        self.thaw(node_id)
        seams = self.make_seams(node_id)
        clock = self._clocks[node_id] = ImpairedClock(node_id, self._gates, seams.clock)
        transport = ImpairedTransport(node_id, self._gates, seams.transport)
        return attrs.evolve(seams, clock=clock, transport=transport)

    def know(self, node_at: NodeAt) -> None:
        """Which node listens at a port: known once they do."""
        self._gates.node_at = node_at

    def freeze(self, node_id: int) -> None:
        self._gates.frozen.add(node_id)
        self._clocks[node_id].freeze()

    def thaw(self, node_id: int) -> None:
        """Nothing to a node that is not frozen."""
        if node_id in self._gates.frozen:
            self._gates.frozen.discard(node_id)
            self._clocks[node_id].thaw()
            self._gates.tell()

    def cut(self, some: Iterable[int], others: Iterable[int], *, one_way: bool = False) -> None:
        """Nothing that `some` send reaches `others`, nor the other way round."""
        there = set(product(some, others))
        back = set() if one_way else {(target, source) for source, target in there}
        self._gates.cut |= there | back

    def hold_to(self, cuts: Iterable[tuple[int, int]]) -> None:
        """These cuts and no others."""
        self._gates.cut = set(cuts)
        self._gates.tell()

    def heal(self) -> None:
        """Every cut; what was sent meanwhile arrives."""
        self._gates.cut.clear()
        self._gates.tell()

    @property
    def cuts(self) -> frozenset[tuple[int, int]]:
        """From whom nothing reaches whom."""
        return frozenset(self._gates.cut)

    @property
    def frozen(self) -> frozenset[int]:
        return frozenset(self._gates.frozen)
