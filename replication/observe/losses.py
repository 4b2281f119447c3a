"""The committed records that leader changes have lost, counted from events as they come.

    epoch 4 (b1): high watermark 20          consumers may have read offsets 0 to 19
    epoch 5 (b2): its log began at 17        17 to 19 are lost: 3 records

Rule 1: a loss is the high watermark of an older leader epoch less the start offset of a newer one.
The failover report counts it in the same way (`pipeline/journals/timeline.py`).

Rule 2: events of several nodes come in any order. A high watermark of an older epoch may come after
the newer leader was announced, and counts all the same.

Rule 3: what happened before the first event is not known, so nothing is counted for it.
"""

import attrs

from replication.events import (
    BecameLeader,
    Event,
    HighWatermarkAdvanced,
    LeaderElected,
    TopicDeleted,
)
from storage.attributes import define
from storage.types import LeaderEpoch, Offset, TopicPartition


@define(eq=False)
class _Ends:
    """The newest leader epoch of a partition, and the highest high watermark before and in it."""

    leader_epoch: LeaderEpoch = -1
    start_offset: Offset = 0
    before: Offset = 0
    reached: Offset = 0


@define(eq=False)
class LossCount:
    """The number of committed records lost, and of leaders replaced, since the first event."""

    leader_changes: int = attrs.field(init=False, default=0)
    _earlier: int = attrs.field(init=False, default=0)
    """The records lost in leader epochs that are over."""
    _ends: dict[TopicPartition, _Ends] = attrs.field(init=False, factory=dict)
    _elected: dict[TopicPartition, LeaderEpoch] = attrs.field(init=False, factory=dict)
    _now: dict[TopicPartition, int] = attrs.field(init=False, factory=dict)
    """The records lost at the beginning of each partition's newest leader epoch."""

    @property
    def lost(self) -> int:
        return self._earlier + sum(self._now.values())

    def sink(self, event: Event) -> None:
        match event:
            case HighWatermarkAdvanced():
                self._reached(event)
            case BecameLeader():
                self._began(event)
            case LeaderElected():
                is_new = event.leader_epoch > self._elected.get(event.partition, -1)
                self._elected[event.partition] = event.leader_epoch
                if is_new and event.previous_leader not in (-1, event.leader):
                    self.leader_changes += 1
            case TopicDeleted():
                for each in [each for each in self._ends if each.topic == event.topic]:
                    self._earlier += self._now.pop(each, 0)
                    del self._ends[each]
                for each in [each for each in self._elected if each.topic == event.topic]:
                    del self._elected[each]
            case _:
                pass

    def _reached(self, event: HighWatermarkAdvanced) -> None:
        ends = self._ends.setdefault(event.partition, _Ends())
        if event.leader_epoch >= ends.leader_epoch:
            ends.reached = max(ends.reached, event.high_watermark)
        elif event.high_watermark > ends.before:
            ends.before = event.high_watermark
            self._count(event.partition, ends)

    def _began(self, event: BecameLeader) -> None:
        ends = self._ends.setdefault(event.partition, _Ends())
        if event.leader_epoch <= ends.leader_epoch:
            return
        self._earlier += self._now.pop(event.partition, 0)
        ends.leader_epoch, ends.start_offset = event.leader_epoch, event.leader_epoch_start_offset
        ends.before, ends.reached = ends.reached, min(ends.reached, ends.start_offset)
        self._count(event.partition, ends)

    def _count(self, partition: TopicPartition, ends: _Ends) -> None:
        if (lost := ends.before - ends.start_offset) > 0:
            self._now[partition] = lost
