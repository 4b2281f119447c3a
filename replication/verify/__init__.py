"""Are two copies of a log the same; if not, where do they part, and how.

sources.py        any of both below: what is selected, and one after the other compared
clusters.py       live clusters            fetched.py    what a broker sends, as batches
directories.py    log directories at rest
comparing.py      the copies of one partition, from wherever
lock_step.py      the walk itself, batch by batch, over whatever has batches
compacted.py      the walk over logs that cleaners have been at
key_ledger.py     the last record of each key, in every copy
results.py        what was found, and the cause
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
