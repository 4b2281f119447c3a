"""Expiry and deletion of offsets and groups (KIP-211, KIP-229, KIP-496).

Offsets expire, or their topic is deleted, or an administrator deletes them; a group without members
and offsets is deleted. Each key gets a tombstone. The group drops its offsets at once, so that a
commit meanwhile is written behind the tombstones; if those cannot be written, it restores them.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from replication.config import BrokerConfig
from replication.config.broker import MINUTE_MS
from replication.coordinator.log import Submission
from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode
from replication.events import EventSink, GroupOffsetsForgotten
from replication.groups.rules.consumer_group.group import GroupChange
from replication.groups.rules.effects import Moment
from replication.groups.rules.group import Group, GroupState
from replication.groups.rules.offsets import commit_error
from replication.groups.rules.records import group_tombstone, offset_tombstone
from replication.groups.shard import GroupShard, HostedGroup
from replication.net.pace import in_steps
from replication.net.seams import NodeClock
from replication.steps import Steps, each_of
from storage.attributes import define
from storage.types import TopicPartition

LOOKING_AT_A_GROUP = 4
"""The work of looking at one group, in items of a list."""

Tombstones: TypeAlias = dict[TopicPartition, KeyAndValue]


@define(eq=False, kw_only=True)
class Forgetting:
    """Writes the tombstones of offsets and groups."""

    config: BrokerConfig
    clock: NodeClock
    sink: EventSink

    # At intervals, and with the metadata.

    def expire(self, shard: GroupShard) -> Steps[None]:
        """Delete the offsets and groups of `shard` that have expired."""
        for group_id, hosted in shard:
            yield LOOKING_AT_A_GROUP + len(hosted.offsets)
            made = yield from tombstones(group_id, self._expired(hosted))
            if not shard.serves(group_id, hosted):
                continue
            gone = list(hosted.offsets.remove(self._expired(hosted)))
            whole = hosted.is_idle
            if gone or whole:
                self._forget(shard, hosted, gone, made, whole=whole, cause="expired")

    def _expired(self, hosted: HostedGroup) -> list[TopicPartition]:
        group = hosted.group
        idle_since_ms, kept = None, frozenset[str]()
        if hosted.consumers is not None:
            kept = hosted.consumers.subscribed_topics()
        elif group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                idle_since_ms = group.state_since_ms
            elif group.state is GroupState.STABLE and group.subscribed is not None:
                kept = group.subscribed
            else:
                return []
        return hosted.offsets.expired(
            wall_ms=self.clock.wall_ms(),
            retention_ms=self.config.offsets_retention_minutes * MINUTE_MS,
            idle_since_ms=idle_since_ms,
            kept_topics=kept,
        )

    def topics_deleted(self, shard: GroupShard, partitions: set[TopicPartition]) -> Steps[None]:
        """Forget the offsets that the groups of `shard` have committed for deleted partitions."""
        for group_id, hosted in shard:
            yield LOOKING_AT_A_GROUP + len(hosted.offsets)
            made = yield from tombstones(group_id, hosted.offsets.among(partitions))
            if not shard.serves(group_id, hosted):
                continue
            if gone := list(hosted.offsets.remove(hosted.offsets.among(partitions))):
                self._forget(shard, hosted, gone, made, whole=False, cause="topic deleted")

    # On request.

    async def delete_group(self, shard: GroupShard, group_id: str) -> ErrorCode:
        hosted = shard.groups.get(group_id)
        made: Tombstones = {}
        if hosted is not None:
            made = await in_steps(tombstones(group_id, hosted.offsets.partitions()))
            hosted = shard.groups.get(group_id)
        if hosted is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not hosted.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        written, consumers = hosted.group.value(), hosted.consumers
        placed = hosted.offsets.remove(hosted.offsets.partitions())
        submission = self._forget(shard, hosted, list(placed), made, whole=True, cause="deleted")
        if submission is None:
            return ErrorCode.NONE  # no record of the group is in the log
        await submission.wait()
        if _was_refused(submission) and group_id not in shard.groups:
            restored = shard.add(Group.of(group_id, written))
            restored.consumers = consumers
            for partition, each in placed.items():
                restored.offsets.put(partition, each.committed, log_offset=each.log_offset)
        return commit_error(submission.error)

    async def delete_offsets(
        self, shard: GroupShard, hosted: HostedGroup, made: Tombstones
    ) -> ErrorCode:
        """Delete the offsets of the partitions in `made`."""
        placed = hosted.offsets.remove(made)
        submission = self._forget(shard, hosted, list(placed), made, whole=False, cause="deleted")
        if submission is None:
            return ErrorCode.NONE
        await submission.wait()
        if _was_refused(submission):
            for partition, each in placed.items():
                hosted.offsets.put(partition, each.committed, log_offset=each.log_offset)
        return commit_error(submission.error)

    def _forget(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        partitions: list[TopicPartition],
        made: Tombstones,
        *,
        whole: bool,
        cause: str,
    ) -> Submission | None:
        """Write the tombstones of `partitions`; `made` has most of them already."""
        group = hosted.group
        records = [made.get(each) or offset_tombstone(group.group_id, each) for each in partitions]
        if whole:
            if group.generation > 0:
                records.append(group_tombstone(group.group_id))
            if hosted.consumers is not None:
                change = GroupChange(hosted.consumers)
                change.delete_group()
                records += change.records
            clock = self.clock
            at = Moment(now_ms=clock.now_ms(), wall_ms=clock.wall_ms())
            hosted.machine.unload(ErrorCode.NOT_COORDINATOR, at)
            del shard.groups[group.group_id]
        if not records:
            return None
        self.sink(
            GroupOffsetsForgotten(
                group=group.group_id, offsets=len(partitions), whole=whole, cause=cause
            )
        )
        return shard.log.submit(records)


def tombstones(group_id: str, partitions: Sequence[TopicPartition]) -> Steps[Tombstones]:
    """Return the tombstone of each offset. They are made first: what is forgotten goes at once."""
    made = yield from each_of(partial(offset_tombstone, group_id), partitions)
    return dict(zip(partitions, made, strict=True))


def _was_refused(submission: Submission) -> bool:
    """Return whether the records are certainly not in the log."""
    return not submission.is_in_log
