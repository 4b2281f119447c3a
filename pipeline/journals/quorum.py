"""The quorum of controllers, as the copies of the metadata log on disks show it, without Spark.

    DATA/controller-3001/log/__cluster_metadata-0    leads in leader epoch 4    log end offset 57
    DATA/broker-1/log/__cluster_metadata-0           observes                   log end offset 55, lag 2

Rule 1: who leads, and who votes, is what the newest LeaderChange record of all copies says. A copy
whose log begins after that record, behind a snapshot, does not have it.

Rule 2: the lag of a copy is what it lacks of the leader's; of the longest one where the leader's is not
among them. What a copy has at its end may not be committed.
(Kafka: kafka-metadata-quorum.sh, which asks the leader while it runs.)
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from pipeline.journals.metadata_log import DIRECTORY_NAME, batches_of
from replication.errors import MetadataError
from replication.wire.control_records import LeaderChangeMessage, control_records_in
from storage.batch.record_batch import read_header
from storage.checkpoint import read_meta_properties
from storage.errors import StorageError
from storage.filesystem import FileSystem
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset

LOG: Final = "log"
"""The log directory in the directory of a node, as `understudy up` makes it."""


@attrs.frozen(kw_only=True)
class MetadataReplica:
    """One copy of the metadata log: its node, its end, and the last LeaderChange in it."""

    node_id: int
    log_end_offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader_id: int = -1
    voters: tuple[int, ...] = ()


@attrs.frozen
class QuorumStanding:
    """The quorum according to all copies that were found."""

    copies: tuple[MetadataReplica, ...]

    @property
    def newest(self) -> MetadataReplica:
        """The copy with the last LeaderChange of all."""
        return max(self.copies, key=lambda each: each.leader_epoch)

    def role_of(self, copy: MetadataReplica) -> str:
        if copy.node_id == self.newest.leader_id:
            return "leads"
        return "votes" if copy.node_id in self.newest.voters else "observes"

    def lag_of(self, copy: MetadataReplica) -> int:
        """Return how many records the copy lacks."""
        leading = [each for each in self.copies if each.node_id == self.newest.leader_id]
        end = max(each.log_end_offset for each in leading or self.copies)
        return max(0, end - copy.log_end_offset)

    def __str__(self) -> str:
        newest = self.newest
        voters = " ".join(map(str, newest.voters)) or "not known"
        copies = ", ".join(
            f"{each.node_id} {self.role_of(each)} (log end offset {each.log_end_offset},"
            f" lag {self.lag_of(each)})"
            for each in self.copies
        )
        if newest.leader_epoch == NO_LEADER_EPOCH:
            return f"The metadata log names no leading controller; {copies}"
        return (
            f"Controller {newest.leader_id} leads the metadata in leader epoch"
            f" {newest.leader_epoch}; voters {voters}; {copies}"
        )


def quorum_at(files: FileSystem, paths: Sequence[str]) -> QuorumStanding | None:
    """Return the quorum by the copies in these directories; None if there is none.

    A path is a copy itself, a log directory, the directory of a node, or that of a whole cluster. A
    copy that cannot be read is left out: `read_metadata_log` names it among the events.
    """
    directories = dict.fromkeys(each for path in paths for each in _copies_in(files, path))
    found = [copy for each in directories if (copy := _copy_at(files, each)) is not None]
    return QuorumStanding(tuple(sorted(found, key=lambda each: each.node_id))) if found else None


def _copies_in(files: FileSystem, path: str) -> Iterator[str]:
    path = path.rstrip("/")
    if os.path.basename(path) == DIRECTORY_NAME:  # noqa: PTH119 - a string here
        yield path
    elif files.is_directory(path):
        below = [f"{path}/{name}" for name in files.list_directory(path)]
        for node in [path, *below]:
            for directory in (f"{node}/{DIRECTORY_NAME}", f"{node}/{LOG}/{DIRECTORY_NAME}"):
                if files.is_directory(directory):
                    yield directory


def _copy_at(files: FileSystem, directory: str) -> MetadataReplica | None:
    try:
        properties = read_meta_properties(files, os.path.dirname(directory))  # noqa: PTH120
        if properties is None:
            return None
        copy = MetadataReplica(node_id=properties.node_id, log_end_offset=0)
        for batch in batches_of(files, directory):
            header = read_header(batch)
            copy = attrs.evolve(copy, log_end_offset=header.next_offset)
            changes = control_records_in(batch) if header.is_control else ()
            for message in changes:
                if isinstance(message, LeaderChangeMessage):
                    copy = attrs.evolve(
                        copy,
                        leader_epoch=header.leader_epoch,
                        leader_id=message.leader_id,
                        voters=tuple(sorted(each.voter_id for each in message.voters)),
                    )
    except (MetadataError, StorageError, OSError):
        return None
    return copy
