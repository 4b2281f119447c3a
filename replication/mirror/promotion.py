"""A copy that is served as it is, and one that becomes a cluster of its own.

    followed    served read-only, in the leader epochs of the source; it can be followed again
    promoted    writable, in leader epochs that begin EPOCHS_APART above the source's last one

Rule 1: a copy does not change while it is served: no records, no epochs, no deletion.

Rule 2: a promoted copy's epochs are far from the source's. If the source lives on and begins new
leader epochs, no two histories have the same epoch for different records: so one can follow the
other later, and epochs find where they diverge (KIP-101).

Rule 3: producer ids in the logs are not given out again, and transactions that were open at the
end of the copy are aborted: their producers are elsewhere.

Rule 4: each partition is followed at a position of its own, so an offset that a group has committed
may be copied before the records that it follows. Until these are copied, the group can only go on
from `auto.offset.reset`, and a promotion names it.

    __consumer_offsets-7   followed to its own end      readers: orders-0 at 120
    orders-0               followed to its own end      ends at 100: the group is 20 ahead
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from replication.config.topic import TOPIC_KEYS
from replication.coordinator.rules import GROUP_METADATA_TOPIC
from replication.groups.rules.replay import Replayed, read_batch
from replication.mirror.state import CopiedTopic, CopyState
from storage.attributes import frozen
from storage.batch.record_batch import walk
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_control_batch
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import LeaderEpoch, Offset, TopicPartition

EPOCHS_APART: Final = 100
_READ_BYTES: Final = 1 << 20
READ_ONLY: Final = "understudy.read.only"
KEPT: Final[Mapping[str, str]] = {
    READ_ONLY: "true",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""The configuration of a served topic: nothing of the copy is deleted."""
_ABOUT_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@frozen(kw_only=True)
class PromotedPartition:
    """The result of a promotion for one partition, for display."""

    topic_partition: TopicPartition
    log_end_offset: Offset
    source_end: Offset | None
    """The high watermark of the source; None if it is not known."""
    leader_epoch: LeaderEpoch
    new_epoch: LeaderEpoch
    open_transactions: int

    @property
    def not_copied(self) -> int | None:
        return None if self.source_end is None else max(0, self.source_end - self.log_end_offset)


def promoted_partitions(
    state: CopyState, logs: LogManager, source_ends: Mapping[TopicPartition, Offset]
) -> Iterator[PromotedPartition]:
    """Yield each known partition; `source_ends` are the present ones, if the source answers."""
    for partition, known in state.partitions().items():
        log = logs.get(partition)
        held = log is not None and log.topic_id == state.topics[partition.topic].topic_id
        latest = log.latest_epoch if held and log is not None else None
        epoch = max(known.leader_epoch, -1 if latest is None else latest)
        yield PromotedPartition(
            topic_partition=partition,
            log_end_offset=log.log_end_offset if held and log is not None else 0,
            source_end=source_ends.get(partition, known.source_end),
            leader_epoch=epoch,
            new_epoch=epoch + EPOCHS_APART,
            open_transactions=len(list(_open(log))) if held and log is not None else 0,
        )


def configs_of(topic: CopiedTopic) -> tuple[dict[str, str], list[str]]:
    """Return the settings of a topic that apply here too, and the names of the others."""
    kept = {
        key: value
        for key, value in topic.configs.items()
        if key in TOPIC_KEYS and key not in _ABOUT_REPLICAS
    }
    return kept, sorted(topic.configs.keys() - kept.keys() - set(_ABOUT_REPLICAS))


def abort_open_transactions(log: Log, *, leader_epoch: LeaderEpoch, wall_ms: int) -> int:
    """Write the abort markers that the coordinators would have written; return their number."""
    count = 0
    for producer_id, producer_epoch in list(_open(log)):
        marker = encode_control_batch(
            EndTransactionMarker(ControlRecordType.ABORT, 0),
            timestamp=wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        log.append_as_leader(
            memoryview(bytearray(marker)),
            leader_epoch=leader_epoch,
            wall_ms=wall_ms,
            from_client=False,
        )
        count += 1
    return count


def _open(log: Log) -> Iterator[tuple[int, int]]:
    """Yield the producer ids and epochs of open transactions."""
    for producer_id, state in sorted(log.producers.producers.items()):
        if state.transaction_first_offset is not None:
            yield producer_id, state.producer_epoch


def next_producer_id(logs: LogManager) -> int:
    """Return a producer id above all in the logs."""
    return 1 + max(
        (producer_id for log in logs.logs() for producer_id in log.producers.producers), default=-1
    )


# Committed offsets of copied groups.


@frozen
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
