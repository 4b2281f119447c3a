"""What a cluster has promised, and when it may lose what it committed all the same.

Loss is allowed iff the controller has held one of these elections, and of nothing else:

    unclean      somebody was made leader though nobody knew that it has everything: the topic
                 says unclean.leader.election.enable, or an operator asked for it
    last known   ISR and ELR are empty, for each of at least min.insync.replicas members came
                 back after an end that was not in good order (KIP-966, `budget`). Whoever led last leads
                 again. It may lack what it had not synced if its power failed, or its disk was
                 replaced, since it last joined the ISR; if it was only killed, its page cache
                 has kept everything, and nothing may be lost
    unsure       the same of whoever leads from the ISR, where there are no eligible leader
                 replicas (eligible.leader.replicas.version 0): the controller does not ask how
                 a broker ended, and who registers again may be in sync all along

    unfenced     the same of whoever held the partition before, was taken off it and deleted its
                 log, where fetches carry no leader epoch (below version 9, KIP-320): one that
                 it sent before may be taken for that of the empty log that it has now

    unnamed      the same of whoever lost its power or its disk before it joined the ISR, where
                 fetches carry no broker epoch (below version 15, KIP-903): its leader may have
                 asked for what its former process had. Until it is seen to have everything

An ISR may outlive one of the last three, and have both: who was cut to what the one elected had,
and who has not heard of that election and has everything still. If such a one leads next, the
others of the ISR lack what it shows until they are seen to have it.

What excuses nothing: kills, pauses, cuts, any number of them; power cuts of fewer than
min.insync.replicas of the members, because who registers after one leaves ISR and ELR; disks
that fail; elections from the ISR or the ELR. An election from the ELR of somebody whose power
had failed is a mistake, and is found as one (I12).

What was sent after such an election is promised again, unless a leader of before it still
takes records, not knowing: `lost_until` is when that was last seen. And what is committed by
whoever was elected, or is so later, stays: `committed` begins anew.

A disk that lies about a sync may keep the marker of a good order and lose what it speaks
for: the power cut after the lie is what makes the node unsure here, as any other does. It
excuses no more: who finds less than was synced does not speak of a good order, and is excluded
as after any other power cut.

A replica of which a bit has flipped may lack the batch that has it, and all behind it, once it
has read its log again: it is unsure of that partition for good. As long as the others that are
in sync, or eligible, live through, nothing may be lost.
"""

import math

import attrs

from scenarios.checkers.budget import Befallen
from storage.types import TopicPartition


@attrs.define(eq=False)
class Contract:
    """Told of what happens; asked who is let off, and why."""

    let_off: dict[TopicPartition, str] = attrs.field(factory=dict, init=False)
    """Why, in a word."""
    lost_until: dict[TopicPartition, float] = attrs.field(factory=dict, init=False)
    """What was sent later is promised."""
    _unsure: Befallen = attrs.field(factory=Befallen, init=False)
    # Who has had everything, and may be in sync without having it, until it is seen to.
    _dropped: set[tuple[TopicPartition, str]] = attrs.field(factory=set, init=False)
    _rotten: set[tuple[TopicPartition, str]] = attrs.field(factory=set, init=False)

    def created(self, partition: TopicPartition) -> None:
        """Another of that name is no concern of this one."""
        self.let_off.pop(partition, None)
        self.lost_until.pop(partition, None)
        self._unsure.begin(partition)
        for doubtful in (self._dropped, self._rotten):
            doubtful -= {each for each in doubtful if each[0] == partition}

    def lost_its_disk(self, node: str) -> None:
        """Or its power, and with it what was not on the disk."""
        self._unsure.befell(node)

    def deleted_its_log(self, partition: TopicPartition, node: str) -> None:
        """And may be taken for what it was: that it joins the ISR says nothing."""
        self._dropped.add((partition, node))

    def followed_the_loss(self, partition: TopicPartition, node: str) -> None:
        """It was in sync with one who had lost something, and is now with one who has not."""
        self._dropped.add((partition, node))

    def rotted(self, partition: TopicPartition, node: str) -> None:
        """Some of its log is not what was written."""
        self._rotten.add((partition, node))

    def caught_up(self, partition: TopicPartition, node: str) -> None:
        """It was seen to have everything."""
        self._dropped.discard((partition, node))

    def registered(self, node: str) -> None:
        self._unsure.registered(node)

    def joined(
        self, partition: TopicPartition, node: str, *, perhaps_formerly: bool = False
    ) -> None:
        """It has joined the ISR: it has everything. A decision about what it was before it
        lost its disk, told late, says nothing about what it is; nor does one that may have
        been asked for before that.
        """
        if self._unsure.joined(partition, node) and perhaps_formerly:
            self._dropped.add((partition, node))

    def is_unsure(self, partition: TopicPartition, node: str) -> bool:
        """It may lack what it had when it joined the ISR."""
        doubtful = self._dropped | self._rotten
        return node in self._unsure.among(partition) or (partition, node) in doubtful

    def is_unproven(self, partition: TopicPartition, node: str) -> bool:
        """It is taken for what it was before, with a log that is gone."""
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
        """Whether what was committed may be lost by that. `watched`: nobody is in sync, or
        eligible, of whom the controller should be unsure.
        """
        may_lack = cause == "last known" or not watched or self.is_unproven(partition, node)
        may_lose = cause == "unclean" or (may_lack and self.is_unsure(partition, node))
        if may_lose:
            self.let_off[partition] = cause
            self.lost_until[partition] = at if watched else math.inf
        return may_lose

    def led_still(self, partition: TopicPartition, *, at: float) -> None:
        """A leader of before the election has just been seen at work."""
        self.lost_until[partition] = max(at, self.lost_until[partition])
