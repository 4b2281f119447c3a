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
