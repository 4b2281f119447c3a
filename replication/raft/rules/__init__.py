"""The rules of KRaft, which are values and functions: no trio, clock, chance, files or sockets.

types       the names of replicas, their endpoints, and what a node remembers of elections
log_view    what the rules have to know of the log, and where a follower may read in it
messages    what happens to a node, and what it then has to do
states      the states of a node: who leads for all it knows, and whom it would vote for
voters      the set of voters, and how the log has changed it
leader      what a leader knows of its followers, and what that commits
membership  how the voters are changed, one at a time
quorum      what a node knows of its quorum: a value
step        what happens, and that value, become the next value and things to do
            turn, requests, answers and voter_requests are the parts of a step
"""
