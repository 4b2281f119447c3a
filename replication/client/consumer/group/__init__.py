"""A consumer in a group (the classic protocol, KIP-62, 345, 429).

assignors       assignments of partitions to members: pure functions, run by the leader
membership      the state of a member, and the meaning of responses for it
coordinator     joins, leaves, and calls the program's listener
joining         one attempt to join, and the heartbeats of a member
commits         the offsets of the group
"""
