"""Where in a partition a time is: ListOffsets (KIP-79, KIP-207, KIP-734).

    -1 latest            the end that the asker may see; a replica or a debugger sees all
    -2 earliest          the log start
    -3 max timestamp     the record with the greatest timestamp
    -4 earliest local    the log start too, while nothing is tiered
    -5 latest tiered     nothing: nothing is tiered
    t >= 0               the first record with timestamp >= t

A consumer is told of no record that it cannot fetch. And an offset that was once given out
as the latest must not be followed by a smaller one: a leader whose high watermark has not
reached the start of its reign may be behind what its predecessor told, and says
OFFSET_NOT_AVAILABLE until it has.
"""

import enum

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.leader.rules.fetch_data import DEBUGGING_REPLICA_ID, Isolation
from storage.batch.allowance import Allowance
from storage.log.time_lookup import LongSearch
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

NO_TIMESTAMP = -1


class Special(enum.IntEnum):
    """Timestamps that are questions of their own."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


Found = tuple[int, Offset, LeaderEpoch]
NOT_FOUND: Found = (NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)


def offset_for_timestamp(
    partition: Partition,
    *,
    timestamp: int,
    isolation: Isolation | None,
    current_leader_epoch: LeaderEpoch,
    replica_id: int,
    allowance: Allowance | None = None,
    after: LongSearch | None = None,
) -> Found:
    """Return timestamp, offset and leader epoch.

    Raise KafkaError where this is not the broker to ask, and LongLookUpError where a search takes
    more than `allowance`: `storage.log.time_lookup`.
    """
    partition.check_access(current_leader_epoch, leader_only=replica_id != DEBUGGING_REPLICA_ID)
    if replica_id != -1:
        isolation = None
    match timestamp:
        case Special.LATEST:
            if isolation is not None:
                _check_available(partition)
            end = partition.reader.end_for(isolation or Isolation.LOG_END)
            return NO_TIMESTAMP, end, partition.leader_epoch
        case Special.EARLIEST:
            return NO_TIMESTAMP, partition.log.log_start_offset, _epoch_at_start(partition)
        case Special.EARLIEST_LOCAL:
            start = partition.log.log_start_offset
            epoch = partition.log.leader_epoch_cache.epoch_for_offset(start)
            return NO_TIMESTAMP, start, NO_LEADER_EPOCH if epoch is None else epoch
        case Special.LATEST_TIERED:
            return NOT_FOUND
        case Special.MAX_TIMESTAMP:
            found = partition.log.offset_of_max_timestamp(allowance=allowance, after=after)
        case _ if timestamp >= 0:
            found = partition.log.offset_for_timestamp(timestamp, allowance=allowance, after=after)
        case _:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no timestamp is {timestamp}")
    if isolation is not None and (found is None or found[1] >= partition.reader.end_for(isolation)):
        _check_available(partition)
        return NOT_FOUND
    return NOT_FOUND if found is None else _with_epoch(found)


def _with_epoch(found: tuple[int, Offset, LeaderEpoch | None]) -> Found:
    timestamp, offset, epoch = found
    return timestamp, offset, NO_LEADER_EPOCH if epoch is None else epoch


def _epoch_at_start(partition: Partition) -> LeaderEpoch:
    """That of the earliest entry, if it really begins at or before the log start."""
    earliest = partition.log.leader_epoch_cache.earliest_entry
    if earliest is None or earliest.start_offset > partition.log.log_start_offset:
        return NO_LEADER_EPOCH
    return earliest.epoch


def _check_available(partition: Partition) -> None:
    if partition.leadership is None:
        return
    start = partition.leadership.epoch_start
    if start > partition.log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition} has not committed up to {start}, where epoch"
            f" {partition.leader_epoch} begins",
        )
