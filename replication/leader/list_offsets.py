"""ListOffsets: the offset of a time in a partition (KIP-79, KIP-207, KIP-734, KIP-1023).

    -1 latest            the end up to which the reader may see; a replica sees the whole log
    -2 earliest          the log start
    -3 max timestamp     the record with the greatest timestamp
    -4 earliest local    the log start too, while nothing is tiered
    -5 latest tiered     nothing: nothing is tiered
    -6 earliest pending  nothing: nothing is to be tiered
    t >= 0               the first record with timestamp >= t

A consumer never gets the offset of a record that it cannot fetch. And the latest offset must
never get smaller: a leader whose high watermark has not reached the start of its leader epoch may
be behind what its predecessor answered, and answers OFFSET_NOT_AVAILABLE until it has.
"""

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.leader.rules.fetch_data import Isolation
from replication.wire import list_offsets as wire
from replication.wire.fetch import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from storage.batch.allowance import Allowance
from storage.batch.record_batch import NO_TIMESTAMP
from storage.log.time_lookup import LongSearch
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

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

    Raises KafkaError if this broker may not answer, and LongLookUpError if a search takes more
    than `allowance` (`storage.log.time_lookup`).
    """
    partition.check_access(current_leader_epoch, leader_only=replica_id != DEBUGGING_REPLICA_ID)
    if replica_id != CONSUMER_REPLICA_ID:
        isolation = None
    match timestamp:
        case wire.LATEST:
            if isolation is not None:
                _check_available(partition)
            end = partition.reader.end_for(isolation or Isolation.LOG_END)
            return NO_TIMESTAMP, end, partition.leader_epoch
        case wire.EARLIEST | wire.EARLIEST_LOCAL:
            return NO_TIMESTAMP, partition.log.log_start_offset, _epoch_at_start(partition)
        case wire.LATEST_TIERED | wire.EARLIEST_PENDING_UPLOAD:
            return NOT_FOUND
        case wire.MAX_TIMESTAMP:
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
    """Return the epoch of the earliest entry, if that starts at or before the log start."""
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
