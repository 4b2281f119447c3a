"""The records committed in one partition, and the replicas that must have them.

A batch is committed when it is first seen below the high watermark of any replica. It is noted
once, in order, and never changed. Every replica's log is compared with that list, each batch once:

    committed   0-4 e0  5-5 e0  6-9 e1 │ end
    b1          0-4 e0  5-5 e0  6-9 e1 │ 10-10 e1         agreed: 3 batches
    b2          0-4 e0  5-5 e0 │                          agreed: 2, as far as it goes

After an election that may have lost records (`contract`) the list begins anew, with the log of the
new leader, and a replica that acts in an earlier leader epoch is not compared with it.

The list has gaps: what the new leader had let go of before the election, and what was deleted
before it was first seen. Another replica may still have it, and nothing is compared there.

A disk that is not trusted may have lost a segment below the recovery point, as after a failed sync
(KAFKA-10778). In Apache Kafka as here the log goes on behind such a hole, and its replica may be in
sync, and lead. Batches in a hole that the opening of the log has reported may be lacking there.

I4, LogMatching   below its high watermark a replica has what was committed, and nothing else
I6, StrongIsr     a member of the controller's ISR or ELR has all of it, whatever its own high
                  watermark is: it may lead next. This is what every leader, even one that
                  does not know yet that it was deposed, has shown to consumers
LeaderCompleteness   a new leader has all that was committed in the leader epochs before, whatever
                  leader epoch it was written in. A deposed leader that was frozen takes its
                  leadership late, and need not have what was committed under a later one
I5                while an expansion is pending, the joining replica has what the leader commits
I10               a batch is acknowledged with acks=all only once it is committed
I11               a consumer receives only committed records

The last two are checked at the moment of the response, by offsets, and not for a partition that may
have lost records (`contract`). Payloads are compared in the end (`scenarios.story.commands.judge`).
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

import attrs

from scenarios.checkers.observed import Batch, Held, OnlineReplica, Wrong, drawn
from storage.types import LeaderEpoch, Offset, TopicPartition

BELOW = "the records below a high watermark are those that were committed"
MAY_LEAD = "every replica that is in sync or eligible has all that was committed"
JOINED = "a replica that joins the ISR has all that was committed"
ELECTED = "an elected leader has all that was committed"
JOINING = "a replica that is about to join has what is committed meanwhile"

_last_offset = attrgetter("last_offset")


@attrs.define(eq=False)
class CommittedLog:
    """The list that the head of this module describes."""

    since: LeaderEpoch = 0
    """The leader epoch at which the list begins; replicas in an earlier one are not compared."""
    batches: list[Batch] = attrs.field(factory=list, init=False)
    _committed_in: list[LeaderEpoch] = attrs.field(factory=list, init=False)
    """For each of `batches` the leader epoch of the replica that showed it first."""
    _is_compacted: bool = attrs.field(default=False, init=False)
    _least_end: Offset = attrs.field(default=0, init=False)

    @property
    def end(self) -> Offset:
        noted = self.batches[-1].last_offset + 1 if self.batches else 0
        return max(self._least_end, noted)

    def compact(self) -> None:
        """Keep only the end of the list: compaction changes each replica's batches by itself."""
        if not self._is_compacted:
            self._is_compacted = True
            self._least_end = self.end
            self.batches.clear()
            self._committed_in.clear()

    def reach(self, high_watermark: Offset) -> None:
        """Record that all below `high_watermark` is committed, whose batches cannot be read any more."""
        self._least_end = max(self._least_end, high_watermark)

    def note(
        self, held: Held, *, log_start: Offset, high_watermark: Offset, leader_epoch: LeaderEpoch
    ) -> str:
        """Add the batches below `high_watermark`; return how they differ from what was committed.

        `leader_epoch` is the one in which the replica acts.
        """
        # Whatever was deleted had been committed.
        self.reach(high_watermark if self._is_compacted else log_start)
        if self._is_compacted:
            return ""
        differs = self.compare(held, log_start=log_start, until=high_watermark)
        if not differs:
            for batch in held.batches[held.agreed :]:
                if batch.last_offset >= high_watermark:
                    break
                if batch.last_offset >= log_start and not self._is_in_gap(batch):
                    last = self.batches[-1:]
                    if last and batch.base_offset <= last[0].last_offset:
                        return f"it has {drawn([batch])}, where {drawn(last)} was committed"
                    self.batches.append(batch)
                    self._committed_in.append(leader_epoch)
                held.agreed += 1
        return differs

    def before(self, leader_epoch: LeaderEpoch) -> list[Batch]:
        """Return the batches that were committed in earlier leader epochs."""
        pairs = zip(self.batches, self._committed_in, strict=True)
        return [batch for batch, committed_in in pairs if committed_in < leader_epoch]

    def compare(self, held: Held, *, log_start: Offset, until: Offset) -> str:
        """Return how a log differs from the committed batches between the two offsets, or nothing.

        The comparison goes on where it stopped the last time.
        """
        at, index = held.agreed, self._next(held, log_start)
        while index < len(self.batches) and self.batches[index].last_offset < until:
            expected = self.batches[index]
            if expected.last_offset >= log_start:
                while at < len(held.batches) and (
                    held.batches[at].last_offset < log_start or self._is_in_gap(held.batches[at])
                ):
                    at += 1
                found = held.batches[at : at + 1]
                if found == [expected]:
                    at += 1
                elif not held.has_lost(expected):
                    return f"it has {drawn(found) or 'nothing'}, where {drawn([expected])} was committed"
            index += 1
        held.agreed = at
        return ""

    def _is_in_gap(self, batch: Batch) -> bool:
        """Return whether the list goes on behind a batch, and has nothing of its offsets."""
        index = bisect_left(self.batches, batch.base_offset, key=_last_offset)
        return index < len(self.batches) and batch.last_offset < self.batches[index].base_offset

    def _next(self, held: Held, log_start: Offset) -> int:
        """Return the index of the first batch that `held` was not compared with."""
        compared = held.batches[held.agreed - 1].last_offset + 1 if held.agreed else 0
        return bisect_left(self.batches, max(log_start, compared), key=_last_offset)


def below(committed: CommittedLog, replica: OnlineReplica, held: Held) -> Iterator[Wrong]:
    """Check I4."""
    differs = committed.note(
        held,
        log_start=replica.log_start,
        high_watermark=replica.high_watermark,
        leader_epoch=replica.leader_epoch,
    )
    if differs:
        yield Wrong(
            BELOW, f"{replica.where}: below its high watermark {replica.high_watermark} {differs}"
        )


def may_lead(
    committed: CommittedLog, replica: OnlineReplica, held: Held, *, standing: str
) -> Iterator[Wrong]:
    """Check I6; `standing` says how: "joined the ISR", "is in the ISR", "is in the ELR"."""
    rule = JOINED if standing.startswith("joined") else MAY_LEAD
    if replica.log_end < committed.end:
        yield Wrong(
            rule,
            f"{replica.node} {standing} of {replica.partition} with a log that ends at"
            f" {replica.log_end}, and up to {committed.end} was committed",
        )
        return
    differs = committed.compare(held, log_start=replica.log_start, until=committed.end)
    if differs:
        yield Wrong(rule, f"{replica.node} {standing} of {replica.partition}: {differs}")


def elected(committed: CommittedLog, replica: OnlineReplica, held: Held) -> Iterator[Wrong]:
    """Check LeaderCompleteness for a replica that has just become leader of its epoch."""
    before, have = committed.before(replica.leader_epoch), set(held.batches)
    lacks = [
        each
        for each in before
        if each.last_offset >= replica.log_start and each not in have and not held.has_lost(each)
    ]
    if lacks:
        yield Wrong(
            ELECTED,
            f"{replica.node} leads {replica.partition} without {drawn(lacks)}, which"
            f" {'was' if len(lacks) == 1 else 'were'} committed",
        )


def joining(leader: OnlineReplica, joining: OnlineReplica) -> Iterator[Wrong]:
    """Check I5 (KIP-497) for a replica that the leader has asked to add and that still runs."""
    if joining.log_end < leader.high_watermark:
        yield Wrong(
            JOINING,
            f"{leader.where} has committed up to {leader.high_watermark} while {joining.node} was"
            f" about to join, whose log ends at {joining.log_end}",
        )


ACKED_EARLY = "acks=all is answered once it is committed"
SHOWN_EARLY = "consumers receive only what is committed"


class ResponseRule(Protocol):
    """A rule about a batch or records that end at offset `end`."""

    def __call__(
        self, partition: TopicPartition, *, end: Offset, committed_end: Offset
    ) -> Iterator[Wrong]: ...


def acked(partition: TopicPartition, *, end: Offset, committed_end: Offset) -> Iterator[Wrong]:
    if end > committed_end:
        yield Wrong(
            ACKED_EARLY,
            f"{partition} was acked with acks=all up to {end}, and up to {committed_end} was"
            " committed",
        )


def given(partition: TopicPartition, *, end: Offset, committed_end: Offset) -> Iterator[Wrong]:
    if end > committed_end:
        yield Wrong(
            SHOWN_EARLY,
            f"a consumer of {partition} was given records up to {end}, and up to {committed_end}"
            " was committed",
        )
