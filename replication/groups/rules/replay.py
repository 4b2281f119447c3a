"""The groups of one partition of `__consumer_offsets`, from the batches of its log.

    batches in order ──> the last value of each key, and the pending offsets of transactions

The offsets of a transaction count from its end marker, if that is a commit; the offsets of a
transaction that is still open are pending (KIP-98). (Kafka: GroupMetadataManager,
doLoadGroupsAndOffsets.)
"""

import attrs

from replication.groups.rules.consumer_group import records as consumer_group
from replication.groups.rules.consumer_group.group import ConsumerGroup, replay
from replication.groups.rules.consumer_group.records import ConsumerGroupEntry
from replication.groups.rules.offsets import CommittedOffset, GroupOffsets
from replication.groups.rules.records import Entry, GroupMetadataValue, OffsetEntry, parse
from storage.attributes import define, frozen
from storage.batch.record_batch import BatchHeader
from storage.batch.records import ControlRecordType, decode_batch, read_marker


@frozen
class ReadBatch:
    """The entries of a batch; or the end of a transaction, if it is a marker."""

    header: BatchHeader
    entries: tuple[Entry | ConsumerGroupEntry, ...] = ()
    ends_in_commit: bool | None = None


def read_batch(header: BatchHeader, batch: memoryview) -> ReadBatch:
    """Return what a batch holds; raise ProtocolError or CorruptRecordError where no coordinator
    has written it.
    """
    if header.is_control:
        marker = read_marker(batch)
        commits = None if marker is None else marker.type is ControlRecordType.COMMIT
        return ReadBatch(header, ends_in_commit=commits)
    parsed = (
        parse(record.key, record.value) or consumer_group.parse(record.key, record.value)
        for record in decode_batch(batch)
    )
    return ReadBatch(header, tuple(entry for entry in parsed if entry is not None))


@define(eq=False)
class Replayed:
    """The groups and offsets that the batches so far add up to."""

    groups: dict[str, GroupMetadataValue] = attrs.field(factory=dict)
    consumers: dict[str, ConsumerGroup] = attrs.field(factory=dict)
    offsets: dict[str, GroupOffsets] = attrs.field(factory=dict)

    def add(self, batch: ReadBatch) -> None:
        header = batch.header
        if batch.ends_in_commit is not None:
            for offsets in self.offsets.values():
                offsets.end_transaction(header.producer_id, commit=batch.ends_in_commit)
        for entry in batch.entries:
            if isinstance(entry, OffsetEntry):
                self._add_offset(entry, header)
            elif isinstance(entry, ConsumerGroupEntry):
                replay(self.consumers, entry)
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
            offsets.add_pending(
                header.producer_id, entry.partition, committed, log_offset=header.base_offset
            )
        else:
            offsets.put(entry.partition, committed, log_offset=header.base_offset)
