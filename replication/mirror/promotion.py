"""A copy served as it is, and one that becomes a cluster of its own.

    followed    serve: read-only topics, in no reign but the source's; then it may be followed on
    promoted    writable, in reigns that begin EPOCHS_APART above the last of the source's

Rule 1: a copy that is served changes by nothing: no record, no epoch, nothing let go of.

Rule 2: a promoted copy's epochs are far from the source's. Should the source live on, and begin
reigns after the copy was taken, no two histories have the same epoch for different records: so
the one can later follow the other, and epochs find where they part (KIP-101).

Rule 3: producer ids that are in the logs are given out to nobody again, and transactions that
were open at the end of the copy are aborted: their producers are elsewhere.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from replication.config.topic import TOPIC_KEYS
from replication.mirror.state import CopyState, TopicState
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
"""Of a topic that is served: whatever was set at the source, nothing of the copy goes."""
_ABOUT_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@attrs.frozen(kw_only=True)
class PromotedPartition:
    """What a promotion makes of one, for showing."""

    topic_partition: TopicPartition
    log_end_offset: Offset
    source_end: Offset | None
    """None where the source has never said."""
    leader_epoch: LeaderEpoch
    new_epoch: LeaderEpoch
    open_transactions: int

    @property
    def not_copied(self) -> int | None:
        return None if self.source_end is None else max(0, self.source_end - self.log_end_offset)


def promoted_partitions(
    state: CopyState, logs: LogManager, source_ends: Mapping[TopicPartition, Offset]
) -> Iterator[PromotedPartition]:
    """Each that is known of; `source_ends` are of now, where the source could be asked."""
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


def configs_of(topic: TopicState) -> tuple[dict[str, str], list[str]]:
    """What of its settings holds here too, and the names of those that do not."""
    kept = {
        key: value
        for key, value in topic.configs.items()
        if key in TOPIC_KEYS and key not in _ABOUT_REPLICAS
    }
    return kept, sorted(topic.configs.keys() - kept.keys() - set(_ABOUT_REPLICAS))


def abort_open_transactions(log: Log, *, leader_epoch: LeaderEpoch, wall_ms: int) -> int:
    """Write the markers that their coordinators would have written; how many."""
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
    """Producer ids and epochs of transactions that nobody has ended."""
    for producer_id, state in sorted(log.producers.producers.items()):
        if state.transaction_first_offset is not None:
            yield producer_id, state.producer_epoch


def next_producer_id(logs: LogManager) -> int:
    """Above all that the logs still remember."""
    return 1 + max(
        (producer_id for log in logs.logs() for producer_id in log.producers.producers), default=-1
    )
