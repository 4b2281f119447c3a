"""One replica of the metadata log in a quorum of controllers: KRaft (KIP-595, KIP-853, KIP-996).

rules/         the pure rules: who votes for whom, who leads, what is committed
quorum_state   the file of what a node remembers of elections
"""
