"""What both coordinators share: a log that is written in order, and the leader epoch it is led in.

log             appends the records of a coordinator with acks=all, one batch after the other
leader_epochs   loads a partition's state when this broker becomes its leader, unloads it after
"""
