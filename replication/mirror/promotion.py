"""A copy that is served as it is, and one that becomes a cluster of its own.

    followed    served read-only, in the leader epochs of the source; it can be followed again
    promoted    writable, in leader epochs that begin EPOCHS_APART above the source's last one

Rule 1: a copy does not change while it is served: no records, no epochs, no deletion.

Rule 2: a promoted copy's epochs are far from the source's. If the source lives on and begins new
leader epochs, no two histories have the same epoch for different records: so one can follow the
other later, and epochs find where they diverge (KIP-101).

Rule 3: producer ids in the logs are not given out again, and transactions that were open at the
end of the copy are aborted: their producers are elsewhere.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from replication.config.topic import TOPIC_KEYS
from replication.mirror.state import CopiedTopic, CopyState
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_control_batch
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import LeaderEpoch, Offset, TopicPartition

EPOCHS_APART: Final = 100
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


@attrs.frozen(kw_only=True)
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
