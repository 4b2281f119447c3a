"""What a disk has refused (I15): a log of which a write or a sync has failed takes nothing more.

After half a write nobody knows where the next one would begin; after a failed sync the
kernel calls the pages clean that it has not written (KAFKA-10778, "fsyncgate").
"""

from collections.abc import Iterator

import attrs

from scenarios.simulation.checkers.violation import Wrong
from storage.types import Offset

NO_MORE = "a log that has failed takes nothing more"


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
