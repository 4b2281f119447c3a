"""Rules about disks: what follows a failure, and what a sync keeps.

I15   after a failed write or sync a log appends nothing more
I17   what lay below the recovery point when a process ended is there for the next one: a flush
      promises that for the segments, their names, and the truncations before them

After half a write the next position is unknown; after a failed sync the kernel marks pages as
clean that it has not written (KAFKA-10778, "fsyncgate").
"""

from collections.abc import Iterator

import attrs

from scenarios.checkers.violation import Wrong
from storage.types import Offset

NO_MORE = "a log that has failed accepts nothing more"
SYNCED = "what was synced outlives the process, and a power cut"


@attrs.frozen
class FailedLog:
    where: str
    log_end: Offset
    size: int


def takes_nothing_more(before: FailedLog, after: FailedLog) -> Iterator[Wrong]:
    if before != after:
        yield Wrong(
            NO_MORE,
            f"{after.where} had failed at {before.log_end} ({before.size} bytes), and goes on to"
            f" {after.log_end} ({after.size} bytes)",
        )


def outlives(where: str, recovery_point: Offset, log_end: Offset) -> Iterator[Wrong]:
    """Check I17; `log_end` is the end of the log that the next process has found."""
    if log_end < recovery_point:
        yield Wrong(
            SYNCED,
            f"{where} was synced up to {recovery_point}, and its next process has found it to end"
            f" at {log_end}",
        )
