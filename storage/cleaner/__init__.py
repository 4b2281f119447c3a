"""Compaction: of each key only the last record stays, and everything keeps its offset (KIP-58, 534).

    before   [k1 k2 k1][k3 k1 k2][k4 -k3 k1]│[ active ...     first dirty offset 0
              0  1  2   3  4  5   6   7  8
    after    [k2      k4 -k3 k1            ]│[ active ...     cleaned up to 9
              5       6   7  8

    candidates.py    how dirty a log is, and up to where it may be cleaned
    cleaner.py       one round over one log: fill the map, copy what stays, segments in groups
    offset_map.py    key -> last offset, in memory of a fixed size
    record_walk.py   the keys and offsets of records, and which records stay
    columns.py       the same for many batches at a time, where numpy is installed
    filter.py        the batch that takes the place of a batch, written anew or not
    transactions.py  which transactions were aborted, which have nothing left

Which log is cleaned next, and what is checkpointed, decides `storage.manager.cleaner_manager`; how
a cleaned segment takes its place, through any crash, is in `storage.log.swap`.

Rule 1: a round is planned and its groups are put in place on the loop; in between it reads
closed segments that cannot change and writes files of its own, anywhere (`Cleaning.advance`).

Rule 2: a truncation or a deletion ends a round that is under way. What it has put in place is
right; what it has not is forgotten.

Rule 3: nothing is dropped but what a later record below the same round's end has replaced,
a tombstone or marker past its delete horizon, what was aborted, or what never had a key.

(LogCleaner, LogCleanerManager, Cleaner in Kafka.)
"""
