"""What a cluster promises, and when it may lose committed records all the same.

A loss is allowed only after the controller has held one of these elections:

    unclean      a leader was elected that may lack records: the topic says
                 unclean.leader.election.enable, or an operator asked for it
    last known   ISR and ELR are empty, because at least min.insync.replicas members came back
                 after an unclean shutdown (KIP-966, `budget`), and the last leader leads again.
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
                 seen to have everything

An ISR may outlive one of the last three and have two kinds of members: those that truncated to
the new leader's log, and those that have not heard of the election and still have everything. If
one of the latter leads next, the other members lack what it shows until they are seen to have it.

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
"""

import math

import attrs

from scenarios.checkers.budget import AffectedNodes
from storage.types import TopicPartition


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

    def followed_the_loss(self, partition: TopicPartition, node: str) -> None:
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
