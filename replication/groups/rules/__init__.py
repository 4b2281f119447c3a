"""Consumer groups: who shares the partitions of a topic, and how far each has been read.

    records.py       what stands in `__consumer_offsets`, in Kafka's bytes
    group.py         a group at rest: members, leader, generation, protocol
    classic.py       the group at work: rebalances, timeouts, writes
    joining.py       JoinGroup
    presence.py      SyncGroup, Heartbeat, LeaveGroup, and who may commit
    offsets.py       how far a group has read
    replay.py        from the log to the groups, for a new coordinator
    effects.py       what a group wants done
    member.py, subscription.py

All of it is values: requests and times go in, answers and records come out. The tasks that
carry them are in replication/groups.
"""

from replication.groups.rules.classic import ClassicGroup, GroupLimits
from replication.groups.rules.effects import (
    Answer,
    Emit,
    JoinedMember,
    JoinResult,
    Moment,
    Purpose,
    Store,
    SyncResult,
)
from replication.groups.rules.group import Group, GroupState
from replication.groups.rules.joining import Join, join
from replication.groups.rules.member import Member, Protocol
from replication.groups.rules.offsets import CommittedOffset, GroupOffsets
from replication.groups.rules.presence import commit, heartbeat, leave, sync
from replication.groups.rules.records import (
    GROUP_METADATA_TOPIC,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from replication.groups.rules.replay import ReadBatch, Replayed, read_batches

__all__ = [
    "GROUP_METADATA_TOPIC",
    "Answer",
    "ClassicGroup",
    "CommittedOffset",
    "Emit",
    "Group",
    "GroupLimits",
    "GroupOffsets",
    "GroupState",
    "Join",
    "JoinResult",
    "JoinedMember",
    "Member",
    "Moment",
    "Protocol",
    "Purpose",
    "ReadBatch",
    "Replayed",
    "Store",
    "SyncResult",
    "commit",
    "group_record",
    "group_tombstone",
    "heartbeat",
    "join",
    "leave",
    "offset_record",
    "offset_tombstone",
    "read_batches",
    "sync",
]
