"""What a disk has refused, and what it has been made to keep.

I15   a log of which a write or a sync has failed takes nothing more
I17   what lay below the recovery point when a process ended is there for the next one: that is
      what a flush says of the segments, of their names, and of the cuts before them

After half a write nobody knows where the next one would begin; after a failed sync the
kernel calls the pages clean that it has not written (KAFKA-10778, "fsyncgate").
"""

from collections.abc import Iterator

import attrs

from scenarios.checkers.violation import Wrong
from storage.types import Offset

NO_MORE = "a log that has failed takes nothing more"
SYNCED = "what was synced outlives its process, and its power"


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
    """`log_end`: where the next process has found the end of the log."""
    if log_end < recovery_point:
        yield Wrong(
            SYNCED,
            f"{where} was synced up to {recovery_point}, and its next process has found it to end"
            f" at {log_end}",
        )
