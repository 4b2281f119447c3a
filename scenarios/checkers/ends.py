"""What must be true in the end, once every node is up, connected and idle.

converged   the replicas in sync have all records, know that these are committed, and have the
            same leader epochs
tidy        a log directory contains the logs that are hosted there and those being deleted, and a
            partition's directory contains the files of its segments
answered    no request waits past its timeout

These files may stay: the next version of a small file, which is being written (`.tmp`,
`.prepared`), what a cleaner is writing (`.cleaned`, `.swap`, in a compacted log),
files and directories that wait for `file.delete.delay.ms` (`.deleted`, `-delete`), the log of a
deleted topic (`-stray`, KAFKA-15605), and bytes that recovery has set aside (`corrupt.`).
"""

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence

from replication.broker.broker import Broker
from replication.cluster.interface import NotInTimeError
from replication.metadata.rules.records import METADATA_PARTITION
from scenarios.checkers.epochs import drawn, from_start
from scenarios.checkers.observed import OnlineReplica
from scenarios.checkers.violation import Wrong
from scenarios.world.cluster import SimulatedCluster
from storage.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    COMPACTION_GAP_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
)
from storage.manager.checkpoint_plan import PREPARED_SUFFIX
from storage.types import Offset

CONVERGED = "all replicas in sync hold the same records in the end"
TIDY = "no unneeded file is left on a disk"
ANSWERED = "every request is answered in the end"

_IN_A_LOG_DIRECTORY = {
    ".lock",
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
}
_IN_A_PARTITION = {COMPACTION_GAP_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}
_CLEANING = (".cleaned", ".swap")
TMP_SUFFIX = ".tmp"
_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")


def converged(members: Sequence[OnlineReplica], *, compacted: bool = False) -> Iterator[Wrong]:
    """Check that the replicas in sync agree.

    Their logs may begin at different offsets for ever (retention); in a compacted log the records
    of each epoch may differ too.
    """
    if not members:
        return
    first = members[0]
    start = max(each.log_start for each in members)
    for each in members:
        if each.log_end != first.log_end or each.high_watermark != first.log_end:
            yield Wrong(
                CONVERGED,
                f"{each.where} has committed {each.high_watermark} of {each.log_end}, and"
                f" {first.node} has {first.log_end}",
            )
        if not compacted and _epochs(each, start) != _epochs(first, start):
            yield Wrong(
                CONVERGED,
                f"{each.where} has epochs {drawn(_epochs(each, start))}, {first.node}"
                f" {drawn(_epochs(first, start))}",
            )


def _epochs(replica: OnlineReplica, start: Offset) -> list[EpochEntry]:
    """Return the epochs that have records. An epoch without any is only in its leader's cache, and
    one whose batch was cut off stays known where it was cut.
    """
    if start == replica.log_end:
        return []  # no epoch has records
    known = [each for each in replica.epochs if each not in replica.emptied]
    written = [each for each in known if each.start_offset < replica.log_end]
    return from_start(written, start)


def tidy_directory(node: str, names: Collection[str], hosted: Collection[str]) -> Iterator[Wrong]:
    """Check the names in a log directory; `hosted` are those of the logs that are online there."""
    for name in sorted(set(names) - set(hosted)):
        if _whose(name) not in _IN_A_LOG_DIRECTORY and not name.endswith(("-delete", "-stray")):
            yield Wrong(TIDY, f"{node} has {name} in its log directory")


def _whose(name: str) -> str:
    """Return the file of which this is the next version, being written when its broker died."""
    return name.removesuffix(TMP_SUFFIX).removesuffix(PREPARED_SUFFIX)


def tidy_log(
    where: str,
    names: Collection[str],
    *,
    segments: Collection[Offset],
    log_end: Offset,
    compacted: bool = False,
) -> Iterator[Wrong]:
    """Check the files of a partition; in a `compacted` log a cleaner may be at work."""
    for name in sorted(names):
        if _whose(name) in _IN_A_PARTITION or (compacted and name.endswith(_CLEANING)):
            continue
        segment, snapshot = _SEGMENT_FILE.fullmatch(name), _SNAPSHOT.fullmatch(name)
        if segment and int(segment[1]) in segments:
            continue
        if snapshot and int(snapshot[1]) <= log_end:
            continue
        if not name.endswith(".deleted") and not name.startswith("corrupt."):
            yield Wrong(TIDY, f"{where} has {name}, and segments at {sorted(segments)}")


def answered(node: str, waiting: dict[str, int]) -> Iterator[Wrong]:
    """Check that no request waits; `waiting` counts them by kind once every timeout has passed."""
    for kind, count in waiting.items():
        if count:
            yield Wrong(ANSWERED, f"at {node} {count} wait: {kind}")


# The facts, read from brokers and disks.


async def until_answered(cluster: SimulatedCluster) -> None:
    """Wait until no Produce or DeleteRecords request waits, or the time limit has passed."""

    def is_answered() -> bool:
        return not any(sum(waiting(each).values()) for each in cluster.brokers.values())

    with contextlib.suppress(NotInTimeError):
        await cluster.until(is_answered, what="everybody is answered")


def waiting(broker: Broker) -> dict[str, int]:
    manager = broker.replica_manager
    return {
        "Produce": manager.purgatories.produce.waiting,
        "DeleteRecords": manager.purgatories.delete_records.waiting,
    }


def tidy(cluster: SimulatedCluster, name: str, broker: Broker) -> Iterator[Wrong]:
    disk, online = cluster.disk(name), broker.replica_manager.hosted.online
    hosted = {str(each) for each in (*online, METADATA_PARTITION)}
    for path in broker.config.log_dirs:
        names = disk.list_directory(path)
        yield from tidy_directory(name, names, hosted)
    for partition, replica in online.items():
        yield from tidy_log(
            f"{partition} on {name}",
            disk.list_directory(replica.log.directory),
            segments=replica.log.segments.base_offsets,
            log_end=replica.log.log_end_offset,
            compacted=replica.log.config.is_compacted,
        )
