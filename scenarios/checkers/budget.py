"""How many unclean shutdowns a partition survives without a loss (KIP-966).

A broker that was not shut down cleanly is neither in sync nor eligible once it registers again,
because its log may have lost its end. While fewer than min.insync.replicas of a partition's
replicas have shut down uncleanly since they last joined its ISR, a member is left in the ISR or
ELR, and the last known leader is not elected with what it may have lost.

    min.insync.replicas 2             shut down uncleanly
    b1 is killed                      b1             within the budget
    b1 has joined the ISR again       none
    b2 and b3 lose their power        b2 b3          spent: what was committed may be lost

A broker that finds a damaged log, which ends before what had been synced, cannot claim a clean
shutdown either: it counts as an unclean one from then on.

The count is right only while nothing else makes the ISR and ELR smaller. Another set of replicas
or another minimum does: from then on the partition's budget counts as spent.
"""

from collections.abc import Collection, Iterator

import attrs

from scenarios.checkers.leadership import Decided
from scenarios.checkers.violation import Wrong
from scenarios.world.cluster import node_name
from storage.types import TopicPartition

WITHIN = "a partition loses nothing within its budget of unclean ends"


@attrs.define(eq=False)
class AffectedNodes:
    """The nodes that something has happened to since they joined a partition's ISR."""

    _nodes: dict[TopicPartition, set[str]] = attrs.field(factory=dict, init=False)
    # The nodes that have not registered since. The event that one joins may come late, and
    # be about its former process.
    _gone: set[str] = attrs.field(factory=set, init=False)

    def among(self, partition: TopicPartition) -> Collection[str]:
        return self._nodes.get(partition, ())

    def begin(self, partition: TopicPartition) -> None:
        """Count the nodes that are down: they may be in the ISR until their session expires."""
        self._nodes[partition] = set(self._gone)

    def affect(self, node: str) -> None:
        self._gone.add(node)
        for nodes in self._nodes.values():
            nodes.add(node)

    def registered(self, node: str) -> None:
        self._gone.discard(node)

    def joined(self, partition: TopicPartition, node: str) -> bool:
        """Forget what happened to a node; return whether there was anything."""
        had = node in self.among(partition) and node not in self._gone
        if had:
            self._nodes[partition].discard(node)
        return had


@attrs.define(eq=False)
class Budget:
    """The unclean shutdowns of each partition's replicas."""

    ended: AffectedNodes = attrs.field(factory=AffectedNodes, init=False)
    """The nodes that shut down uncleanly."""
    in_good_order: set[str] = attrs.field(factory=set, init=False)
    """The nodes that are about to stop after a clean shutdown."""
    _decided: dict[TopicPartition, Decided] = attrs.field(factory=dict, init=False)
    # The partitions for which the count is not right.
    _unknown: set[TopicPartition] = attrs.field(factory=set, init=False)
    # Kept when the topic is created again under its name: the log may still be there.
    _rotten: set[tuple[TopicPartition, str]] = attrs.field(factory=set, init=False)

    def decided(self, before: Decided | None, after: Decided) -> None:
        partition, now = after.partition, after.registration
        self._decided[partition] = after
        if before is None:
            self.ended.begin(partition)
            self._unknown.discard(partition)
            if len(now.isr) < len(now.replicas):
                self._unknown.add(partition)
        elif _differ(before, after):
            self._unknown.add(partition)

    def stopped(self, node: str) -> None:
        if node not in self.in_good_order:
            self.ended.affect(node)
        self.in_good_order.discard(node)

    def rotted(self, partition: TopicPartition, node: str) -> None:
        """Record that a node's log is damaged, which it may find when it opens the log again."""
        self._rotten.add((partition, node))

    def found_lacking(self, partition: TopicPartition, node: str) -> None:
        """Count a clean shutdown as unclean if the log that needed recovery was damaged."""
        if (partition, node) in self._rotten:
            self.ended.affect(node)

    def is_spent(self, partition: TopicPartition, also: Collection[str] = ()) -> bool:
        """Return whether a loss is possible now, or once the nodes of `also` shut down uncleanly."""
        decided = self._decided.get(partition)
        if decided is None or partition in self._unknown:
            return True
        replicas = set(map(node_name, decided.registration.replicas))
        return len(replicas & {*self.ended.among(partition), *also}) >= decided.min_isr

    def would_be_spent(self, nodes: Collection[str]) -> bool:
        """Return whether an unclean shutdown of these nodes would spend any partition's budget."""
        return any(
            self.is_spent(partition, nodes)
            for partition, decided in self._decided.items()
            if not set(nodes).isdisjoint(map(node_name, decided.registration.replicas))
        )


def _differ(before: Decided, after: Decided) -> bool:
    """Return whether anything changed that makes the ISR and ELR smaller, except shutdowns."""
    was, now = before.registration, after.registration
    return (
        set(was.replicas) != set(now.replicas)
        or bool(now.adding or now.removing)
        or before.min_isr != after.min_isr
        or (bool(was.elr) and now == attrs.evolve(was, elr=()))
    )


def within(budget: Budget, partition: TopicPartition, node: str) -> Iterator[Wrong]:
    """Check that no leader is elected that may lack records while the budget is not spent."""
    if not budget.is_spent(partition):
        ended = " ".join(sorted(budget.ended.among(partition))) or "no broker"
        yield Wrong(
            WITHIN,
            f"{node} is to lead {partition}, and may lack what was committed; {ended} had shut"
            " down uncleanly",
        )
