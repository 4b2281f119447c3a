"""The leader's rules.

isr                which replicas are in sync, and what lets the high watermark advance (KIP-497, KIP-966)
leadership         what a replica does when it becomes leader or follower
log_reader         what one fetch may read: isolation, epochs, divergence
fetch_session/     where fetch sessions are kept (KIP-227)
replica_selector   which replica a consumer reads from (KIP-392)
quota              which replicas wait (KIP-73)
settled            partitions of a session that are not looked at until they change
"""
