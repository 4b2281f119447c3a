"""How much may go wrong at a time so that nothing is lost (KIP-966).

A broker whose end was not in good order is neither in sync nor eligible once it registers again,
because it may have lost its tail. While fewer than min.insync.replicas of a partition's replicas
have ended so since they last joined its ISR, somebody is left in ISR or ELR, and the last known
leader is not asked to lead with what it may have lost.

    min.insync.replicas 2             ended so
    b1 is killed                      b1             within the budget
    b1 has joined the ISR again       nobody
    b2 and b3 lose their power        b2 b3          spent: what was committed may be lost

A broker that finds that a log of its has rotten, and ends before what had been synced, does not
speak of a good order either: it counts from then on as one that ended otherwise.

The sum comes out only where nothing else makes ISR and ELR smaller. Other replicas, or another
minimum, do: from then on the partition's budget counts as spent.
"""

from collections.abc import Collection, Iterator

import attrs

from scenarios.checkers.leadership import Decided
from scenarios.checkers.violation import Wrong
from scenarios.world.cluster import node_name
from storage.types import TopicPartition

WITHIN = "within its budget of unclean ends a partition loses nothing"


@attrs.define(eq=False)
class Befallen:
    """Of each partition, whom something has befallen since they joined its ISR."""

    _nodes: dict[TopicPartition, set[str]] = attrs.field(factory=dict, init=False)
    # Who has not registered since. That it joins is told late, of what it was before.
    _gone: set[str] = attrs.field(factory=set, init=False)

    def among(self, partition: TopicPartition) -> Collection[str]:
        return self._nodes.get(partition, ())

    def begin(self, partition: TopicPartition) -> None:
        """Whoever is gone may be in its ISR all the same: its session lasts."""
        self._nodes[partition] = set(self._gone)

    def befell(self, node: str) -> None:
        self._gone.add(node)
        for nodes in self._nodes.values():
            nodes.add(node)

    def registered(self, node: str) -> None:
        self._gone.discard(node)

    def joined(self, partition: TopicPartition, node: str) -> bool:
        """Whether something had befallen it, until now."""
        had = node in self.among(partition) and node not in self._gone
        if had:
            self._nodes[partition].discard(node)
        return had


@attrs.define(eq=False)
class Budget:
    """Of each partition."""

    ended: Befallen = attrs.field(factory=Befallen, init=False)
    """Not in good order."""
    in_good_order: set[str] = attrs.field(factory=set, init=False)
    """Who is about to stop so."""
    _decided: dict[TopicPartition, Decided] = attrs.field(factory=dict, init=False)
    # Whose sum does not come out.
    _unknown: set[TopicPartition] = attrs.field(factory=set, init=False)
    # Also under the name of another topic since: the log may be there still.
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
            self.ended.befell(node)
        self.in_good_order.discard(node)

    def rotted(self, partition: TopicPartition, node: str) -> None:
        """That may be found when it is opened again, or never."""
        self._rotten.add((partition, node))

    def found_lacking(self, partition: TopicPartition, node: str) -> None:
        """It had to recover that log. Nothing but rot excuses that after a good order."""
        if (partition, node) in self._rotten:
            self.ended.befell(node)

    def is_spent(self, partition: TopicPartition, also: Collection[str] = ()) -> bool:
        """`also`: once these have ended so too."""
        decided = self._decided.get(partition)
        if decided is None or partition in self._unknown:
            return True
        replicas = set(map(node_name, decided.registration.replicas))
        return len(replicas & {*self.ended.among(partition), *also}) >= decided.min_isr

    def would_be_spent(self, nodes: Collection[str]) -> bool:
        """Anywhere, by an end of these."""
        return any(
            self.is_spent(partition, nodes)
            for partition, decided in self._decided.items()
            if not set(nodes).isdisjoint(map(node_name, decided.registration.replicas))
        )


def _differ(before: Decided, after: Decided) -> bool:
    """In what makes ISR and ELR smaller beside ends of brokers."""
    was, now = before.registration, after.registration
    return (
        set(was.replicas) != set(now.replicas)
        or bool(now.adding or now.removing)
        or before.min_isr != after.min_isr
        or (bool(was.elr) and now == attrs.evolve(was, elr=()))
    )


def within(budget: Budget, partition: TopicPartition, node: str) -> Iterator[Wrong]:
    """Of whoever is elected, as the last known leader, with what it may have lost."""
    if not budget.is_spent(partition):
        ended = " ".join(sorted(budget.ended.among(partition))) or "nobody"
        yield Wrong(
            WITHIN,
            f"{node} is to lead {partition}, and may lack what was committed; {ended} had ended"
            " otherwise than in good order",
        )
