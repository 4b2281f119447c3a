"""Are two copies of a log the same; if not, where do they part, and how.

directories.py    log directories at rest, batch by batch
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
