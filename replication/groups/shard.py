"""The groups of one partition of `__consumer_offsets`, for one leader epoch of ours."""

from collections.abc import Iterator

import attrs

from replication.coordinator.leader_epochs import Shard
from replication.coordinator.log import LogWriter
from replication.groups.rules import (
    ClassicGroup,
    Group,
    GroupLimits,
    GroupOffsets,
    GroupState,
    Replayed,
)


@attrs.define(eq=False)
class HostedGroup:
    """A group at work, and how far it has read."""

    machine: ClassicGroup
    writer: LogWriter
    offsets: GroupOffsets = attrs.field(factory=GroupOffsets)
    timer_ms: int | None = None
    """When somebody will look at its deadlines."""

    @property
    def group(self) -> Group:
        return self.machine.group

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        empty = self.group.state is GroupState.EMPTY and not self.machine.pending
        return empty and self.offsets.is_empty


@attrs.define(eq=False, kw_only=True)
class GroupShard(Shard):
    """The groups of one partition of `__consumer_offsets`."""

    limits: GroupLimits
    groups: dict[str, HostedGroup] = attrs.field(factory=dict)

    def __iter__(self) -> Iterator[tuple[str, HostedGroup]]:
        """Yield a copy of the groups, by name: some may be forgotten meanwhile."""
        return iter(sorted(self.groups.items()))

    def add(self, group: Group) -> HostedGroup:
        assert group.group_id not in self.groups, "a group is hosted once"
        hosted = HostedGroup(ClassicGroup(group, self.limits), self.writer)
        self.groups[group.group_id] = hosted
        return hosted

    def load(self, state: Replayed) -> None:
        """Take up what the log says: groups, and offsets of groups that have no members."""
        for group_id, value in state.groups.items():
            self.add(Group.of(group_id, value))
        for group_id, offsets in state.offsets.items():
            if not offsets.is_empty or group_id in self.groups:
                hosted = self.groups.get(group_id) or self.add(Group(group_id))
                hosted.offsets = offsets
        self.ready = True
