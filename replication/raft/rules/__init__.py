"""The rules of KRaft, which are values and functions: no trio, clock, chance, files or sockets.

types      the names of replicas, their endpoints, and what a node remembers of elections
log_view   what the rules have to know of the log, and where a follower may read in it
messages   what happens to a node, and what it then has to do
states     the states of a node: who leads for all it knows, and whom it would vote for
voters     the set of voters
quorum     one step: a state and something that happens become a state and things to do
"""
