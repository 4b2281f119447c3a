"""The comparison of copies of a log: are they the same, and if not, where and how do they differ.

sources.py        the partitions that are selected, compared one after the other
clusters.py       live clusters            fetched.py    the batches that a broker sends
directories.py    log directories at rest
comparing.py      the copies of one partition, from any source
lock_step.py      the walk, batch by batch, over anything that has batches
compacted.py      the walk over logs that were compacted
key_ledger.py     the last record of each key, in every copy
results.py        the results, and the cause of a difference
"""

from replication.verify.directories import verify_directories
from replication.verify.results import (
    Alone,
    CannotCompareError,
    Cause,
    Compared,
    Comparison,
    CopyAt,
    Difference,
    Different,
    NotCompared,
    Outcome,
    PartitionResult,
    Same,
)

__all__ = [
    "Alone",
    "CannotCompareError",
    "Cause",
    "Compared",
    "Comparison",
    "CopyAt",
    "Difference",
    "Different",
    "NotCompared",
    "Outcome",
    "PartitionResult",
    "Same",
    "verify_directories",
]
