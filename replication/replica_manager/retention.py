"""Retention: old segments are deleted, on leaders and followers each by itself.

Each log has a turn of the loop, so that a broker with many partitions answers in between. The
files renamed here are unlinked later, away from the loop. (LogManager.cleanupLogs in Kafka.)
"""

from collections.abc import Callable

import trio

from replication.leader.partition import Partition
from replication.net.seams import NodeClock
from replication.replica_manager.hosted import HostedPartitions
from storage.errors import KafkaStorageError
from storage.types import TopicPartition


async def delete_old_segments(
    hosted: HostedPartitions,
    clock: NodeClock,
    log_start_moved: Callable[[TopicPartition], object],
    on_storage_failure: Callable[[Partition, KafkaStorageError], None],
) -> int:
    """Delete every segment that retention allows; return how many."""
    count = 0
    for partition in hosted:
        if hosted.find(partition.topic_partition) is partition:
            start = partition.log.log_start_offset
            try:
                count += partition.log.delete_old_segments(clock.wall_ms())
            except KafkaStorageError as error:
                on_storage_failure(partition, error)
            if partition.log.log_start_offset != start:
                log_start_moved(partition.topic_partition)
        await trio.lowlevel.checkpoint()
    return count
