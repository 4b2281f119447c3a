"""The promises of a cluster, and when it may lose committed records all the same.

A loss is allowed only after the controller has held one of these elections:

    unclean      a leader was elected that may lack records: the topic says
                 unclean.leader.election.enable, or an operator asked for it
    last known   ISR and ELR are empty, because at least min.insync.replicas members came back
                 after an unclean shutdown (KIP-966, below), and the last leader leads again.
                 It may lack what it had not synced if its power failed, or its disk was
                 replaced, since it last joined the ISR. If it was only killed, its page cache
                 has kept everything, and nothing may be lost
    unsure       the same for a leader elected from the ISR, in a cluster without eligible leader
                 replicas (eligible.leader.replicas.version 0): there the controller does not ask
                 how a broker ended, and a broker that registers again may still be in sync

    unfenced     the same for a replica that was removed, deleted its log and was added again,
                 where fetches carry no leader epoch (below version 9, KIP-320): a fetch that it
                 sent before may be taken for one of its present, empty log

    unnamed      the same for a replica that lost its power or its disk before it joined the ISR,
                 where fetches carry no broker epoch (below version 15, KIP-903): its leader may
                 have proposed it for what its former process had. This ends when the replica is
                 seen to have everything that was committed, and as much as a leader counts it for

An ISR may outlive one of the last three and have two kinds of members: those that truncated to
the new leader's log, and those that have not done so yet and still have everything. If one of the
latter leads next, the other members lack what it shows until they are seen to have it.

These excuse no loss: any number of kills, pauses and network cuts; power cuts of fewer than
min.insync.replicas of the members, because a broker that registers after one leaves ISR and ELR;
disks that fail; elections from the ISR or the ELR. To elect a replica from the ELR whose power
had failed is a mistake, and is reported as one (I12).

Records sent after such an election are promised again, unless a leader of before it still
appends, not knowing of it: `lost_until` is when that was last seen. Records that the elected
leader, or a later one, commits stay: `committed` begins anew.

A disk that lies about a sync may keep the marker of a clean shutdown and lose the records. The
power cut after the lie makes the node unsure here, as any other does. It excuses nothing else: a
broker that finds less than was synced does not report a clean shutdown, and is excluded as after
any other power cut.

A replica of which a bit has flipped may lack that batch, and all behind it, once it has read its
log again: it stays unsure of that partition. As long as the other members that are in sync or
eligible stay up, nothing may be lost.

The budget of a partition says how many unclean shutdowns it survives without a loss (KIP-966).
A broker that was not shut down cleanly is neither in sync nor eligible once it registers again,
because its log may have lost its end. While fewer than min.insync.replicas of a partition's
replicas have shut down uncleanly since they last joined its ISR, a member is left in the ISR or
ELR, and the last known leader is not elected with what it may have lost.

    min.insync.replicas 2             shut down uncleanly
    b1 is killed                      b1             within the budget
    b1 has joined the ISR again       none
    b2 and b3 lose their power        b2 b3          spent: what was committed may be lost

A broker that finds a damaged log, which ends before what had been synced, cannot claim a clean
shutdown either: it counts as an unclean one from then on. Nor can one whose log directory failed
before it stopped: there is no marker of a clean shutdown in it.

The count is right only while nothing else makes the ISR and ELR smaller. Another set of replicas
or another minimum does, and an unclean election: from then on the partition's budget counts as
spent.
"""

import math
from collections.abc import Collection, Iterator

import attrs

from scenarios.checkers.leadership import Decided
from scenarios.checkers.observed import Wrong
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
    # The nodes that run without one of their log directories.
    _without_directory: set[str] = attrs.field(factory=set, init=False)
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

    def forgo(self, partition: TopicPartition) -> None:
        """Count no more, as an unclean election has left nobody but the leader in sync."""
        self._unknown.add(partition)

    def lost_a_directory(self, node: str) -> None:
        self._without_directory.add(node)

    def stopped(self, node: str) -> None:
        if node not in self.in_good_order or node in self._without_directory:
            self.ended.affect(node)
        self.in_good_order.discard(node)
        self._without_directory.discard(node)

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


@attrs.define(eq=False)
class Contract:
    """The elections after which records may be lost, derived from what happens to the cluster."""

    may_have_lost: dict[TopicPartition, str] = attrs.field(factory=dict, init=False)
    """The partitions that may have lost records, each with the cause in a word."""
    lost_until: dict[TopicPartition, float] = attrs.field(factory=dict, init=False)
    """The time until which records sent to a partition may be lost."""
    _unsure: AffectedNodes = attrs.field(factory=AffectedNodes, init=False)
    # The replicas that may be in sync without having everything, until they are seen to have it.
    _dropped: set[tuple[TopicPartition, str]] = attrs.field(factory=set, init=False)
    _rotten: set[tuple[TopicPartition, str]] = attrs.field(factory=set, init=False)

    def created(self, partition: TopicPartition) -> None:
        """Forget a former partition of that name."""
        self.may_have_lost.pop(partition, None)
        self.lost_until.pop(partition, None)
        self._unsure.begin(partition)
        for doubtful in (self._dropped, self._rotten):
            doubtful -= {each for each in doubtful if each[0] == partition}

    def lost_its_disk(self, node: str) -> None:
        """Record that a node lost its disk, or its power and with it what was not synced."""
        self._unsure.affect(node)

    def deleted_its_log(self, partition: TopicPartition, node: str) -> None:
        """Record that a replica deleted its log: that it joins the ISR proves nothing then."""
        self._dropped.add((partition, node))

    def followed_a_loss(self, partition: TopicPartition, node: str) -> None:
        """Record that a member of the ISR truncated to a leader that had lost records."""
        self._dropped.add((partition, node))

    def rotted(self, partition: TopicPartition, node: str) -> None:
        """Record that a part of the replica's log is damaged."""
        self._rotten.add((partition, node))

    def caught_up(self, partition: TopicPartition, node: str) -> None:
        """Record that a replica has everything that was committed."""
        self._dropped.discard((partition, node))

    def registered(self, node: str) -> None:
        self._unsure.registered(node)

    def joined(
        self, partition: TopicPartition, node: str, *, perhaps_formerly: bool = False
    ) -> None:
        """Record that a replica has joined the ISR, and so has everything.

        A decision about the replica's former process, which is reported late, proves nothing about
        the present one; `perhaps_formerly` says that this may be such a decision.
        """
        if self._unsure.joined(partition, node) and perhaps_formerly:
            self._dropped.add((partition, node))

    def is_unsure(self, partition: TopicPartition, node: str) -> bool:
        """Return whether a replica may lack what it had when it joined the ISR."""
        doubtful = self._dropped | self._rotten
        return node in self._unsure.among(partition) or (partition, node) in doubtful

    def is_unproven(self, partition: TopicPartition, node: str) -> bool:
        """Return whether the ISR may count a replica for a log that it no longer has."""
        return (partition, node) in self._dropped

    def elected(
        self,
        partition: TopicPartition,
        node: str,
        cause: str,
        *,
        watched: bool = True,
        at: float = 0.0,
    ) -> bool:
        """Record an election; return whether committed records may be lost by it.

        `watched`: the controller can trust every member of the ISR and ELR.
        """
        may_lack = cause == "last known" or not watched or self.is_unproven(partition, node)
        may_lose = cause == "unclean" or (may_lack and self.is_unsure(partition, node))
        if may_lose:
            self.may_have_lost[partition] = cause
            self.lost_until[partition] = at if watched else math.inf
        return may_lose

    def led_still(self, partition: TopicPartition, *, at: float) -> None:
        """Record that a leader of before the election still works."""
        self.lost_until[partition] = max(at, self.lost_until[partition])
