"""The leader's rules.

isr                the replicas in sync, and the high watermark that they allow (KIP-497, KIP-966)
leadership         one partition as its leader sees it: followers, ISR, high watermark
log_reader         the reads of one log: isolation, leader epochs, divergence
fetch_data         the values of a fetch, between the wire and the log
fetch_session/     fetch sessions: their cache, one session, one request (KIP-227)
settled            partitions of a session that are not looked at until they change
replica_selector   the replica that a consumer reads from (KIP-392)
quota              throttled replication (KIP-73)
"""
