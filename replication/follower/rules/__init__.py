"""The follower's rules: what is fetched next, how far to truncate, what a request names.

fetch_state             truncating, fetching or delayed, for each partition
truncation              where a follower truncates its log (KIP-101, KIP-279, KIP-595)
fetch_session_handler   which partitions the next request names (KIP-227)
"""
