"""A consumer in a group, by the classic protocol (KIP-62, 345, 429) or the new one (KIP-848).

coordinator         the program's side of both: its listener, commits, committed offsets
commits             the offsets of the group
membership          the state of a classic member, and the meaning of responses for any member
classic             the classic protocol, with
    joining         one attempt to join, and the heartbeats of a member
    assignors       assignments of partitions to members: pure functions, run by the leader
consumer_protocol   the new protocol: heartbeats, and one reconciliation after the other, with
    rules/          what a heartbeat says, and what its response means
"""
