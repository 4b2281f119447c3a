"""Rules about what of a log is on the platter, while its process still runs.

I20  what a log says is synced is there: the segments below its recovery point, with their names,
     and no checkpoint says more than the log itself
I21  what was cut is gone for good: before a segment follows a cut one, the cut is synced, and no
     segment or snapshot behind the cut has its name still; no file is cut while a segment may come
     back behind it, and no checkpoint says that what is being cut is synced

    page cache    0.log  17.log  31.log          names, as processes see them
    platter       0.log  17.log                  names that a power cut leaves
    recovery point 31                            so 31.log may be lost, and 17.log may not

I17 shows the same after a power cut, where chance takes what was not synced; few runs have one at
the right moment. Here every log is asked whenever it has moved, and when its power fails. Disks
that lie are not asked, nor are those that have failed, nor a checkpoint that has rotted until it is
written anew: its process starts without it, and does not know what it says.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from scenarios.checkers.observed import Wrong
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX, file_name
from storage.producers.snapshot import snapshots_in
from storage.testing import SimulatedDisk
from storage.testing.disk import DirectoryNode, FileNode, Node, Truncate
from storage.types import Offset, TopicPartition

SYNCED: Final = "what a log says is synced is on the platter"
GONE: Final = "what was cut from a log is gone for good"


def is_on_platter(
    where: str, disk: SimulatedDisk, log: Log, *, rotten: Collection[Node] = ()
) -> Iterator[Wrong]:
    """Check I20, and that a cut is synced once another segment follows it; ask no `rotten` file."""
    directory = disk.node(log.directory)
    if not isinstance(directory, DirectoryNode):
        return  # it is being deleted
    if log.recovery_point > log.log_end_offset:
        yield Wrong(
            SYNCED,
            f"{where} is synced up to {log.recovery_point}, and ends at {log.log_end_offset}",
        )
    parent = disk.directory(str(PurePosixPath(log.directory).parent))
    if log.recovery_point > log.log_start_offset and not _has_name(parent, log.directory):
        yield Wrong(SYNCED, f"{where} is synced, and its directory has no name on the platter")
    for segment in list(log.segments)[:-1]:
        path = segment.path(LOG_SUFFIX)
        node = directory.entries.get(PurePosixPath(path).name)
        if segment.base_offset < log.recovery_point and not _has_name(directory, path):
            yield Wrong(
                SYNCED,
                f"{where} is synced up to {log.recovery_point}, and"
                f" {file_name(segment.base_offset, LOG_SUFFIX)} has no name on the platter",
            )
        if _is_cut(node):
            yield Wrong(
                GONE,
                f"{where}: {file_name(segment.base_offset, LOG_SUFFIX)} was cut, that is not"
                " synced, and another segment follows it",
            )
    if log.size:
        yield from _checkpoints(where, parent, log, rotten)


def _has_name(directory: DirectoryNode, path: str) -> bool:
    name = PurePosixPath(path).name
    return directory.durable.get(name) is directory.entries.get(name)


def _checkpoints(
    where: str, parent: DirectoryNode, log: Log, rotten: Collection[Node]
) -> Iterator[Wrong]:
    """Check the checkpoints of a log that has records: an empty one may have had a predecessor."""
    for name, mark in (
        (RECOVERY_POINT_CHECKPOINT, log.recovery_point),
        (LOG_START_OFFSET_CHECKPOINT, log.log_start_offset),
    ):
        said = _checkpointed(parent.durable.get(name), log.topic_partition, rotten)
        if said is not None and said > mark:
            yield Wrong(SYNCED, f"{where}: {name} says {said}, and the log says {mark}")


def _checkpointed(
    node: object, partition: TopicPartition, rotten: Collection[Node]
) -> Offset | None:
    """Return the offset that a checkpoint has for a partition on the platter."""
    if not isinstance(node, FileNode) or any(node is each for each in rotten):
        return None
    wanted = [partition.topic, str(partition.partition)]
    for line in node.durable.decode(errors="replace").splitlines():
        *named, offset = line.split(" ")
        if named == wanted and offset.isdigit():
            return int(offset)
    return None


def is_gone(where: str, disk: SimulatedDisk, log: Log, to_offset: Offset) -> Iterator[Wrong]:
    """Check I21 of a log that was just cut to `to_offset`."""
    directory = disk.node(log.directory)
    if not isinstance(directory, DirectoryNode):
        return
    left = directory.durable.keys() - directory.entries.keys()
    segments = [int(each.removesuffix(LOG_SUFFIX)) for each in left if each.endswith(LOG_SUFFIX)]
    for kind, offsets in (("segment", segments), ("snapshot", snapshots_in(left))):
        if max(offsets, default=0) > to_offset:
            yield Wrong(
                GONE,
                f"{where} was cut to {to_offset}, and a {kind} of {max(offsets)} may come back",
            )


def is_ready_for_a_power_cut(
    where: str, disk: SimulatedDisk, log: Log, *, rotten: Collection[Node] = ()
) -> Iterator[Wrong]:
    """Check I21 of a log that may be in the middle of a cut; ask no `rotten` file."""
    directory = disk.node(log.directory)
    if not isinstance(directory, DirectoryNode):
        return
    may_be_left = _segments(directory.durable)
    last = max(may_be_left, default=-1)
    for offset in sorted(may_be_left):
        if offset < last and _is_cut(may_be_left[offset]):
            yield Wrong(
                GONE,
                f"{where}: {file_name(offset, LOG_SUFFIX)} was cut, and the segment of {last} may"
                " come back behind it",
            )
    end = max(_segments(directory.entries), default=-1)
    first_gone = min((each for each in may_be_left if each > end), default=math.inf)
    parent = disk.directory(str(PurePosixPath(log.directory).parent))
    node = parent.durable.get(RECOVERY_POINT_CHECKPOINT)
    said = _checkpointed(node, log.topic_partition, rotten)
    if said is not None and said > first_gone:
        yield Wrong(
            SYNCED,
            f"{where}: {RECOVERY_POINT_CHECKPOINT} says {said}, and the segment of {first_gone} is"
            " being removed",
        )


def _segments(entries: Mapping[str, Node]) -> dict[Offset, Node]:
    names = [each for each in entries if each.endswith(LOG_SUFFIX)]
    return {int(each.removesuffix(LOG_SUFFIX)): entries[each] for each in names}


def _is_cut(node: Node | None) -> bool:
    return isinstance(node, FileNode) and any(isinstance(each, Truncate) for each in node.unsynced)
