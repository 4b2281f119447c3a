"""Logs as they are drawn: a bracket for each run of records of one leader epoch.

    [e0: 0-4][e1: 5-7]       offsets 0 to 4 were written under leader epoch 0, 5 to 7 under 1
    [e1: 5-7]                the log starts at 5
    []                       no records

Drawn from the batches on the disk, so that a log is shown as its next owner will find it,
whether its broker runs or not.
"""

from collections.abc import Iterable
from typing import NamedTuple

from storage.batch_stream import BatchStream
from storage.filesystem import FileSystem
from storage.record_batch import BatchHeader
from storage.types import LeaderEpoch, Offset


def batches_of(file_system: FileSystem, directory: str) -> list[BatchHeader]:
    """The headers of a partition's directory, in order; none where there is no directory."""
    if not file_system.is_directory(directory):
        return []
    stream = BatchStream(file_system, directory)
    headers = []
    try:
        while (header := stream.head()) is not None:
            headers.append(header)
            stream.skip(header.size)
            stream.passed(header)
    finally:
        stream.close()
    return headers


class Run(NamedTuple):
    """Records of one leader epoch that stand in a row; both offsets are in it."""

    leader_epoch: LeaderEpoch
    first: Offset
    last: Offset


def runs_of(batches: Iterable[BatchHeader]) -> list[Run]:
    runs: list[Run] = []
    for batch in batches:
        if runs and (runs[-1].leader_epoch, runs[-1].last + 1) == (
            batch.leader_epoch,
            batch.base_offset,
        ):
            runs[-1] = runs[-1]._replace(last=batch.last_offset)
        else:
            runs.append(Run(batch.leader_epoch, batch.base_offset, batch.last_offset))
    return runs


def draw(batches: Iterable[BatchHeader]) -> str:
    return "".join(f"[e{epoch}: {first}-{last}]" for epoch, first, last in runs_of(batches)) or "[]"
