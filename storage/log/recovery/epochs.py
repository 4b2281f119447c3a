"""The leader epochs of a log that is being opened: from their checkpoint, or from its batches.

A checkpoint that does not parse is put aside, and a lost one is made again from the batches, each
of which has its epoch. (That loses only epochs without batches, which do not matter.)
"""

import os
from collections.abc import Sequence

from storage.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochCheckpoint
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.recovery import aside
from storage.log.recovery.report import Repair
from storage.log.segment import Segment
from storage.types import NO_LEADER_EPOCH, Offset


def read_epochs(
    file_system: FileSystem, directory: str
) -> tuple[LeaderEpochCache, tuple[Repair, ...]]:
    path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
    checkpoint = LeaderEpochCheckpoint(file_system, path)
    try:
        return LeaderEpochCache(checkpoint), ()
    except CheckpointError as error:
        cause = f"{str(error).removeprefix(path + ': ')}; the epochs are taken from the batches"
        kept = aside.keep_file(file_system, path)
        repair = Repair(path=path, position=0, offset=0, cause=cause, kept=kept)
        return LeaderEpochCache(checkpoint), (repair,)


def are_lost(epochs: LeaderEpochCache, segments: Sequence[Segment]) -> bool:
    """Return whether no epoch is known, although the batches carry some."""
    first = next((each for each in segments if each.size), None)
    if epochs.entries or first is None:
        return False
    return next(first.headers())[1].leader_epoch > NO_LEADER_EPOCH


def complete(
    epochs: LeaderEpochCache,
    segments: Sequence[Segment],
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> None:
    """Add the epochs below the first known one, if the log start is lower than before because it had not
    been checkpointed.
    """
    known = epochs.entries
    end = known[0].start_offset if known else log_end_offset
    found: list[EpochEntry] = []
    for segment in segments:
        if segment.base_offset >= end or log_start_offset >= end:
            break
        for _, header in segment.headers():
            epoch = header.leader_epoch
            if (
                log_start_offset <= header.last_offset
                and header.base_offset < end
                and (epoch > (found[-1].epoch if found else NO_LEADER_EPOCH))
            ):
                found.append(EpochEntry(epoch, header.base_offset))
    if found:
        epochs.clear()
        for entry in (*found, *known):
            epochs.assign(*entry)
        epochs.flush()
