"""Consumer groups: their members share the partitions of topics, and commit offsets.

    records.py       the records of `__consumer_offsets`, in Kafka's bytes
    group.py         the state of a group: members, leader, generation, protocol
    classic.py       the classic group protocol: rebalances, timeouts, writes
    joining.py       JoinGroup
    presence.py      SyncGroup, Heartbeat, LeaveGroup, and the check of a commit
    offsets.py       the committed offsets of a group
    replay.py        the groups of a log, for a new coordinator
    effects.py       the answers, writes and events that follow from a request

All of it is values: requests and times go in, answers and records come out. The tasks that
carry them are in replication/groups.
"""

from replication.coordinator.rules import GROUP_METADATA_TOPIC
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
from replication.groups.rules.group import Group, GroupState, Member, Protocol
from replication.groups.rules.joining import Join, join
from replication.groups.rules.offsets import (
    CommittedOffset,
    GroupOffsets,
    commit_error,
    transaction_error,
)
from replication.groups.rules.presence import commit, heartbeat, leave, sync
from replication.groups.rules.records import (
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from replication.groups.rules.replay import Replayed, read_batch

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
    "Replayed",
    "Store",
    "SyncResult",
    "commit",
    "commit_error",
    "group_record",
    "group_tombstone",
    "heartbeat",
    "join",
    "leave",
    "offset_record",
    "offset_tombstone",
    "read_batch",
    "sync",
    "transaction_error",
]
