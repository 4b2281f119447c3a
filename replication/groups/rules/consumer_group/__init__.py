"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members reconcile.

    records.py           the records of `__consumer_offsets`, in Kafka's bytes
    group.py             the group as these records add up to it, and a change to it
    assignors.py         `uniform` and `range`: which member shall read which partition
    target.py            the group epoch, and the target assignment that is made for it
    reconciliation.py    a member's steps to its target: it revokes first, then receives
    membership.py        what any member's request does to its group
    heartbeat.py         the requests of members, and what they are refused
    classic_members.py   the requests of members that use the classic protocol
    migration.py         a classic group becomes a consumer group, and the other way round
    patterns.py          regular expressions of subscriptions, in the syntax of RE2
    sessions.py          the time limits of members

All of it is values: requests, times and metadata go in, responses and records come out. The tasks
that carry them are in replication/groups/consumers.py.
"""
