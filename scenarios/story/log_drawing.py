"""Drawings of logs: a bracket for each run of records of one leader epoch.

    [e0: 0-4][e1: 5-7]       offsets 0 to 4 were written under leader epoch 0, 5 to 7 under 1
    [e1: 5-7]                the log starts at 5
    [e0: 0-4][e1: 5-]        epoch 1 begins at 5 and has no records
    []                       no records

A log is drawn from the batches on the disk, so it is shown as the next process will find it,
whether its broker runs or not.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.batch.record_batch import BatchHeader
from storage.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochCheckpoint
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.types import LeaderEpoch, Offset


def batches_of(file_system: FileSystem, directory: str) -> list[BatchHeader]:
    """Return the batch headers of a partition's directory, in order; none if it does not exist."""
    return list(_read(file_system, directory))


def _read(file_system: FileSystem, directory: str) -> Iterator[BatchHeader]:
    if not file_system.is_directory(directory):
        return
    stream = BatchStream(file_system, directory)
    try:
        while (header := stream.head()) is not None:
            yield header
            stream.skip(header.size)
            stream.passed(header)
    finally:
        stream.close()


def whole_batches(
    file_system: FileSystem, directory: str
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition's directory, each with its bytes, in order."""
    stream = BatchStream(file_system, directory)
    try:
        while (header := stream.head()) is not None:
            taken = bytearray()
            while len(taken) < header.size:
                taken += stream.take(min(stream.available, header.size - len(taken)))
            stream.passed(header)
            yield header, memoryview(taken)
    finally:
        stream.close()


def readable_batches(file_system: FileSystem, directory: str) -> tuple[list[BatchHeader], str]:
    """Return the headers up to the first damage, and its place; "" if there is none."""
    headers: list[BatchHeader] = []
    try:
        headers.extend(_read(file_system, directory))
    except DamagedLogError as error:
        name = (error.path or "").rpartition("/")[2]
        return headers, f"{name} is damaged at byte {error.position}: {error.reason}"
    return headers, ""


def checkpointed_epochs(file_system: FileSystem, directory: str) -> list[EpochEntry]:
    """Return the leader epochs that the next process will find; none where it cannot read them."""
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    with contextlib.suppress(CheckpointError):
        return LeaderEpochCheckpoint(file_system, path).read()
    return []


class EpochRun(NamedTuple):
    """Consecutive records of one leader epoch, with both offsets inclusive."""

    leader_epoch: LeaderEpoch
    first: Offset
    last: Offset


def runs_of(batches: Iterable[BatchHeader]) -> list[EpochRun]:
    runs: list[EpochRun] = []
    for batch in batches:
        if runs and (runs[-1].leader_epoch, runs[-1].last + 1) == (
            batch.leader_epoch,
            batch.base_offset,
        ):
            runs[-1] = runs[-1]._replace(last=batch.last_offset)
        else:
            runs.append(EpochRun(batch.leader_epoch, batch.base_offset, batch.last_offset))
    return runs


def draw(batches: Iterable[BatchHeader], epochs: Sequence[EpochEntry] = ()) -> str:
    """Draw the runs of records, and those of `epochs` that have none."""
    return draw_runs(runs_of(batches), epochs)


def draw_runs(runs: Sequence[EpochRun], epochs: Sequence[EpochEntry] = ()) -> str:
    """Draw runs of records, and the epochs that have none."""
    written = {run.leader_epoch for run in runs}
    drawn = [(first, f"[e{epoch}: {first}-{last}]") for epoch, first, last in runs]
    drawn += [
        (each.start_offset, f"[e{each.epoch}: {each.start_offset}-]")
        for each in epochs
        if each.epoch not in written
    ]
    return "".join(text for _, text in sorted(drawn)) or "[]"
