"""One partition's log on one disk: append, read, roll, truncate, retain and recover.

    log            a partition's log as a broker uses it (UnifiedLog)
    local_log      its segments, without epochs or producers (LocalLog)
    segment        one .log file with its indexes; index/ has the indexes
    append         the checks before an append, as leader and as follower
    flush          what is synced, and in which order
    leader_epoch_cache   where each leader epoch began (KIP-101)
    retention      which segments are old enough to go
    recovery/      opening a log, whatever is in its directory

`docs/storage.md` draws the files.
"""
