"""From the log of one partition of `__consumer_offsets` to the groups that live there.

    batches in order ──> of each key the last value, and what transactions have in doubt

What is not a tombstone stands. Offsets that a transaction wrote count from its end marker
on, where it is a commit; a transaction that is still open has them in doubt (KIP-98).
(Kafka: GroupMetadataManager.doLoadGroupsAndOffsets.)
"""

import attrs

from replication.groups.rules.offsets import CommittedOffset, GroupOffsets
from replication.groups.rules.records import Entry, GroupMetadataValue, OffsetEntry, parse
from storage.batch.record_batch import BatchHeader, walk
from storage.batch.records import ControlRecordType, decode_batch, read_marker
from storage.types import NO_OFFSET, Buffer, Offset


@attrs.frozen
class ReadBatch:
    """One batch as its entries; or as what it says of its producer's transaction."""

    header: BatchHeader
    entries: tuple[Entry, ...] = ()
    ends_in_commit: bool | None = None


def read_batches(records: Buffer) -> list[ReadBatch]:
    """Return the whole batches of `records`; called in a worker thread. ProtocolError and
    CorruptRecordError name what is not a coordinator's.
    """
    view = memoryview(records)
    return [
        _read(header, view[position : position + header.size]) for position, header in walk(view)
    ]


def _read(header: BatchHeader, batch: memoryview) -> ReadBatch:
    if header.is_control:
        marker = read_marker(batch)
        commits = None if marker is None else marker.type is ControlRecordType.COMMIT
        return ReadBatch(header, ends_in_commit=commits)
    parsed = (parse(record.key, record.value) for record in decode_batch(batch))
    return ReadBatch(header, tuple(entry for entry in parsed if entry is not None))


@attrs.define(eq=False)
class Replayed:
    """What the batches so far add up to."""

    groups: dict[str, GroupMetadataValue] = attrs.field(factory=dict)
    offsets: dict[str, GroupOffsets] = attrs.field(factory=dict)
    next_offset: Offset = NO_OFFSET

    def add(self, batch: ReadBatch) -> None:
        header = batch.header
        self.next_offset = header.next_offset
        if batch.ends_in_commit is not None:
            for offsets in self.offsets.values():
                offsets.end(header.producer_id, commit=batch.ends_in_commit)
        for entry in batch.entries:
            if isinstance(entry, OffsetEntry):
                self._add_offset(entry, header)
            elif entry.value is None:
                self.groups.pop(entry.group, None)
            else:
                self.groups[entry.group] = entry.value

    def _add_offset(self, entry: OffsetEntry, header: BatchHeader) -> None:
        offsets = self.offsets.setdefault(entry.group, GroupOffsets())
        if entry.value is None:
            offsets.remove([entry.partition])
            return
        committed = CommittedOffset.of(entry.value)
        if header.is_transactional:
            offsets.pend(
                header.producer_id, entry.partition, committed, log_offset=header.base_offset
            )
        else:
            offsets.put(entry.partition, committed, log_offset=header.base_offset)
