"""Events of consumer groups and their committed offsets."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, TopicPartition


@attrs.frozen(kw_only=True)
class GroupsLoaded(Event):
    """A broker has become coordinator of the groups in one partition of `__consumer_offsets`."""

    name: ClassVar[str] = "groups_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    groups: int  # the number of groups
    offsets: int  # the number of committed offsets


@attrs.frozen(kw_only=True)
class GroupsUnloaded(Event):
    """A broker no longer coordinates the groups of a partition."""

    name: ClassVar[str] = "groups_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class GroupMemberJoined(Event):
    """A member has joined a group; its partitions are assigned later."""

    name: ClassVar[str] = "group_member_joined"
    group: str
    member: str
    instance: str  # its `group.instance.id`; empty for a dynamic member
    client: str


@attrs.frozen(kw_only=True)
class GroupMemberLeft(Event):
    """A member has left a group, or was removed."""

    name: ClassVar[str] = "group_member_left"
    group: str
    member: str
    instance: str
    cause: str  # "left", "session expired", "did not rejoin", ...


@attrs.frozen(kw_only=True)
class GroupRebalanceStarted(Event):
    """Members have to join again: one has come, has gone, or subscribes to other topics."""

    name: ClassVar[str] = "group_rebalance_started"
    group: str
    generation: int  # the one that ends
    members: int
    cause: str


@attrs.frozen(kw_only=True)
class GroupStabilized(Event):
    """Every member of a group has its assignment of this generation."""

    name: ClassVar[str] = "group_stabilized"
    group: str
    generation: int
    protocol: str  # the assignor that all members support
    leader: str  # the member that assigned the partitions
    members: tuple[str, ...]


@attrs.frozen(kw_only=True)
class GroupOffsetsForgotten(Event):
    """Committed offsets of a group were removed."""

    name: ClassVar[str] = "group_offsets_forgotten"
    group: str
    offsets: int  # the number of offsets
    whole: bool  # whether the group was removed with them
    cause: str  # "deleted", "expired", "topic deleted"
