"""The contents of a `.checkpoint` file: a snapshot of the metadata log, or `bootstrap.checkpoint` (KIP-630).

    control batch   SnapshotHeader, and from kraft.version 1 on KRaftVersion and Voters (KIP-853)
    batches         records of metadata, which take the offsets after it
    control batch   SnapshotFooter

Rule 1: a file without its footer is not whole, and nothing of it counts. The same is true of a file
with a batch whose CRC-32C is another, or with bytes after the footer.

Rule 2: batches are short (`BATCH_RECORDS`, `BATCH_BYTES`), so that neither side ever holds more than
one in memory. The values of records are bytes here; what they say is `records.py`'s.

Rule 3: the name of a snapshot is its end offset, which is the first offset that it does not contain,
and the leader epoch of the offset before. (Kafka: Snapshots, RecordsSnapshotWriter.)
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from replication.errors import MetadataError
from replication.wire.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch_of,
    control_records_in,
)
from storage.attributes import define, frozen
from storage.batch.record_batch import Batch, check_crc, read_header
from storage.batch.records import Record, decode_batch, encode_batch
from storage.errors import CorruptRecordError
from storage.types import LeaderEpoch, OffsetAndEpoch

BATCH_RECORDS: Final = 1024
BATCH_BYTES: Final = 1 << 20
BOOTSTRAP_SNAPSHOT_ID: Final = OffsetAndEpoch(0, 0)
"""The id of the snapshot with the first voters, which formatting a directory leaves (KIP-853)."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def checkpoint_name(end: OffsetAndEpoch) -> str:
    """Return the name of the file of the snapshot that ends at `end`."""
    return f"{end.offset:020d}-{end.leader_epoch:010d}.checkpoint"


def checkpoint_id(name: str) -> OffsetAndEpoch | None:
    """Return the id in a file's name; None if no snapshot has such a name."""
    found = _NAME.fullmatch(name)
    return None if found is None else OffsetAndEpoch(int(found[1]), int(found[2]))


@frozen(kw_only=True)
class SnapshotVoters:
    """The voters that a snapshot states; none where they are in the configuration."""

    kraft_version: int = 0
    voters: VotersRecord | None = None


def checkpoint_batches(
    values: Iterable[bytes],
    *,
    leader_epoch: LeaderEpoch,
    wall_ms: int,
    last_timestamp_ms: int,
    voters: SnapshotVoters | None = None,
) -> Iterator[bytes | bytearray]:
    """Yield the batches of a file with the metadata records `values`.

    `last_timestamp_ms` is the time of the last record of the log that the file stands for.
    """
    header: list[ControlRecord] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)
    ]
    if voters is not None and voters.kraft_version > 0:
        header.append(KRaftVersionRecord(kraft_version=voters.kraft_version))
        if voters.voters is not None:
            header.append(voters.voters)
    yield control_batch_of(header, wall_ms=wall_ms, leader_epoch=leader_epoch)
    offset = len(header)
    for some in _in_batches(values):
        records = [Record(timestamp=wall_ms, value=value) for value in some]
        yield encode_batch(records, base_offset=offset, leader_epoch=leader_epoch)
        offset += len(some)
    yield control_batch_of(
        [SnapshotFooterRecord()], wall_ms=wall_ms, base_offset=offset, leader_epoch=leader_epoch
    )


def _in_batches(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for value in values:
        if some and (len(some) == BATCH_RECORDS or size + len(value) > BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(value)
        size += len(value)
    if some:
        yield some


@define
class CheckpointReader:
    """The records in a file, batch by batch; `voters` and `last_timestamp_ms` are known after it."""

    batches: Iterable[Batch]
    voters: SnapshotVoters = attrs.field(factory=SnapshotVoters, init=False)
    last_timestamp_ms: int = attrs.field(default=0, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _ended: bool = attrs.field(default=False, init=False)

    def values(self) -> Iterator[bytes]:
        """Yield the values of the metadata records; raise MetadataError where the file is not whole,
        which may be at its very end.
        """
        for batch in self.batches:
            if self._ended:
                raise MetadataError("there is more after its footer")
            try:
                yield from self._batch(batch)
            except CorruptRecordError as error:
                raise MetadataError(str(error)) from error
        if not self._ended:
            raise MetadataError("it is not whole: it ends without a footer")

    def _batch(self, batch: Batch) -> Iterator[bytes]:
        header = read_header(batch)
        if not check_crc(batch):
            raise MetadataError(f"the CRC-32C of the batch at offset {header.base_offset} is wrong")
        if header.is_control:
            for message in control_records_in(batch):
                self._control(message)
        elif not self._begun:
            raise MetadataError("it begins without a header")
        else:
            for record in decode_batch(batch):
                if record.value is None:
                    raise MetadataError(f"the record at offset {record.offset} is empty")
                yield record.value

    def _control(self, message: ControlRecord) -> None:
        if isinstance(message, SnapshotHeaderRecord) == self._begun:
            raise MetadataError("it does not have one header, at its beginning")
        self._begun = True
        match message:
            case SnapshotHeaderRecord():
                self.last_timestamp_ms = message.last_contained_log_timestamp
            case SnapshotFooterRecord():
                self._ended = True
            case KRaftVersionRecord():
                self.voters = attrs.evolve(self.voters, kraft_version=message.kraft_version)
            case VotersRecord():
                self.voters = attrs.evolve(self.voters, voters=message)
            case _:
                raise MetadataError(f"a {type(message).__name__} has no place in it")
