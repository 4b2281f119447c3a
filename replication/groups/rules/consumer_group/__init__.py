"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members reconcile.

    records.py           the records of `__consumer_offsets`, in Kafka's bytes
    group.py             the group as these records add up to it, and a change to it
    assignors.py         `uniform` and `range`: which member shall read which partition
    target.py            the group epoch, and the target assignment that is made for it
    reconciliation.py    a member's steps to its target: it revokes first, then receives
    heartbeat.py         the requests of members, and what they are refused
    patterns.py          regular expressions of subscriptions, in the syntax of RE2
    sessions.py          the time limits of members

All of it is values: requests, times and metadata go in, responses and records come out. The tasks
that carry them are in replication/groups/consumers.py.
"""
