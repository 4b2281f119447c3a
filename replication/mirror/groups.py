"""The committed offsets of copied consumer groups, compared with the copied records.

    __consumer_offsets-7   followed to its own end      readers: orders-0 at 120
    orders-0               followed to its own end      ends at 100: the group is 20 ahead

Each partition is followed at a position of its own, so a commit may be copied before the records
that it follows. Until these are copied, the group can only go on from `auto.offset.reset`.
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from replication.groups.rules import GROUP_METADATA_TOPIC
from replication.groups.rules.replay import Replayed, read_batch
from storage.batch.record_batch import walk
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import Offset, TopicPartition

_READ_BYTES: Final = 1 << 20


@attrs.frozen
class GroupAhead:
    """A committed offset beyond the end of the copy."""

    group: str
    topic_partition: TopicPartition
    committed: Offset
    log_end_offset: Offset

    def __str__(self) -> str:
        return (
            f"group {self.group}: {self.topic_partition} was committed at {self.committed},"
            f" and the copy ends at {self.log_end_offset}"
        )


def groups_ahead(
    logs: LogManager, on_reading: Callable[[TopicPartition], None] = lambda _: None
) -> Iterator[GroupAhead]:
    """Yield the committed offsets beyond the end of the copied partitions.

    ProtocolError or StorageError for records that no coordinator writes.
    """
    for log in logs.logs():
        if log.topic_partition.topic == GROUP_METADATA_TOPIC:
            on_reading(log.topic_partition)
            yield from _ahead(_replayed(log), logs)


def _replayed(log: Log) -> Replayed:
    replayed = Replayed()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        end = log.log_end_offset
        found = log.read(offset, _READ_BYTES, max_offset_exclusive=end, min_one=True)
        if found.records is None:
            break  # compaction has removed the rest
        records = memoryview(found.records.read())
        for position, header in walk(records):
            replayed.add(read_batch(header, records[position : position + header.size]))
            offset = header.next_offset
    return replayed


def _ahead(replayed: Replayed, logs: LogManager) -> Iterator[GroupAhead]:
    for group, offsets in sorted(replayed.offsets.items()):
        for partition in offsets.partitions():
            committed, log = offsets.get(partition), logs.get(partition)
            if committed is not None and log is not None and committed.offset > log.log_end_offset:
                yield GroupAhead(group, partition, committed.offset, log.log_end_offset)
