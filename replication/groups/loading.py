"""Groups are read from the log when a leader epoch begins (doLoadGroupsAndOffsets).

Nobody appends meanwhile: clients may not, and the coordinator is us. So what the log holds
now is all there is, and since we lead it is, or will be, committed.

The records are read and decoded away from the loop, a few MiB at a time.
"""

from functools import partial

from replication.groups.rules import ReadBatch, Replayed, read_batches
from replication.net.seams import Offload
from replication.replica_manager import ReplicaManager
from storage.log.file_region import FileRegion
from storage.types import LeaderEpoch, TopicPartition


async def load(
    replica_manager: ReplicaManager,
    topic_partition: TopicPartition,
    *,
    leader_epoch: LeaderEpoch,
    chunk_bytes: int,
    offload: Offload,
) -> Replayed:
    """Return what the log adds up to; KafkaError, StorageError or ProtocolError if it is not sound."""
    partition = replica_manager.hosted.get(topic_partition)
    log = partition.log
    state = Replayed(next_offset=log.log_start_offset)
    end = log.log_end_offset
    while state.next_offset < end:
        partition.check_access(leader_epoch, leader_only=True)
        data = log.read(state.next_offset, chunk_bytes, max_offset_exclusive=end, min_one=True)
        if data.records is None:
            break  # compacted to the end
        batches = await offload(partial(_read, data.records))
        if not batches:
            break
        for batch in batches:
            state.add(batch)
    return state


def _read(region: FileRegion) -> list[ReadBatch]:
    try:
        return read_batches(region.read())
    finally:
        region.release()
