"""Consumer groups, and the offsets they commit."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, TopicPartition


@attrs.frozen(kw_only=True)
class GroupsLoaded(Event):
    """This broker coordinates the groups of one partition of `__consumer_offsets`."""

    name: ClassVar[str] = "groups_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    groups: int  # so many
    offsets: int  # and of committed offsets


@attrs.frozen(kw_only=True)
class GroupsUnloaded(Event):
    """This broker coordinates them no more."""

    name: ClassVar[str] = "groups_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class GroupMemberJoined(Event):
    """A member has a place in a group; what it reads is told later."""

    name: ClassVar[str] = "group_member_joined"
    group: str
    member: str
    instance: str  # empty of a dynamic member
    client: str


@attrs.frozen(kw_only=True)
class GroupMemberLeft(Event):
    """A member has lost its place."""

    name: ClassVar[str] = "group_member_left"
    group: str
    member: str
    instance: str
    cause: str  # "left", "session expired", "did not rejoin", ...


@attrs.frozen(kw_only=True)
class GroupRebalanceStarted(Event):
    """Members have to join again, because somebody came, went or reads other topics."""

    name: ClassVar[str] = "group_rebalance_started"
    group: str
    generation: int  # the one that ends
    members: int
    cause: str


@attrs.frozen(kw_only=True)
class GroupStabilized(Event):
    """Everybody knows its part of this generation."""

    name: ClassVar[str] = "group_stabilized"
    group: str
    generation: int
    protocol: str  # the assignor that all members know
    leader: str  # the member that assigned the partitions
    members: tuple[str, ...]


@attrs.frozen(kw_only=True)
class GroupOffsetsForgotten(Event):
    """Committed offsets are gone."""

    name: ClassVar[str] = "group_offsets_forgotten"
    group: str
    offsets: int  # so many
    whole: bool  # the group with them
    cause: str  # "deleted", "expired", "topic deleted"
