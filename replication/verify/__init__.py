"""The comparison of copies of a log: whether they are the same, and where and how they differ.

sources.py       the partitions that are selected, compared one after the other
clusters.py      live clusters, and the batches that their brokers send
directories.py   log directories at rest
comparing.py     the copies of one partition, from any source
lock_step.py     the walk, batch by batch, over anything that has batches
compacted.py     the walk over logs that were compacted, and the last record of each key
results.py       the results, and the cause of a difference
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
