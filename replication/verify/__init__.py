"""Are two copies of a log the same; if not, where do they part, and how.

directories.py    log directories at rest, batch by batch
lock_step.py      the walk itself, over whatever has batches
results.py        what was found
"""

from replication.verify.directories import CannotCompareError, verify_directories
from replication.verify.results import (
    Alone,
    Compared,
    Comparison,
    CopyAt,
    Difference,
    Different,
    PartitionResult,
    Same,
)

__all__ = [
    "Alone",
    "CannotCompareError",
    "Compared",
    "Comparison",
    "CopyAt",
    "Difference",
    "Different",
    "PartitionResult",
    "Same",
    "verify_directories",
]
