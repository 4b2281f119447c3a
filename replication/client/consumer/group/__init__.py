"""A consumer in a group (the classic protocol, KIP-62, 345, 429).

assignors  sticky       who reads what: pure functions, run by the group's leader
membership              what a member is, and what answers make of it
coordinator             joins, leaves, and tells the program
heartbeat               says that it lives
commits                 how far it has read
listener                what a program wants to be told
"""
