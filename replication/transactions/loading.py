"""Transactions are read from the log when a leader epoch begins (TransactionStateManager).

Nobody appends meanwhile: what the log holds now is all there is, and since we lead it is, or
will be, committed. It is read and decoded away from the loop, some MiB at a time.
"""

from functools import partial

from replication.net.seams import Offload
from replication.replica_manager import ReplicaManager
from replication.transactions.rules import Transaction, TransactionEntry, parse
from storage.batch.record_batch import walk
from storage.batch.records import decode_batch
from storage.log.file_region import FileRegion
from storage.types import LeaderEpoch, Offset, TopicPartition


async def load(
    replica_manager: ReplicaManager,
    topic_partition: TopicPartition,
    *,
    leader_epoch: LeaderEpoch,
    chunk_bytes: int,
    offload: Offload,
) -> dict[str, Transaction]:
    """Return the last record of each id; KafkaError, StorageError or ProtocolError where the log
    cannot be read.
    """
    partition = replica_manager.hosted.get(topic_partition)
    log = partition.log
    found: dict[str, Transaction] = {}
    position, end = log.log_start_offset, log.log_end_offset
    while position < end:
        partition.check_access(leader_epoch, leader_only=True)
        data = log.read(position, chunk_bytes, max_offset_exclusive=end, min_one=True)
        if data.records is None:
            break  # compacted to the end
        entries, position = await offload(partial(_read, data.records, position))
        for entry in entries:
            if entry.transaction is None:
                found.pop(entry.transactional_id, None)
            else:
                found[entry.transactional_id] = entry.transaction
    return found


def _read(region: FileRegion, position: Offset) -> tuple[list[TransactionEntry], Offset]:
    try:
        records = memoryview(region.read())
    finally:
        region.release()
    entries: list[TransactionEntry] = []
    for begin, header in walk(records):
        position = header.next_offset
        if not header.is_control:
            for record in decode_batch(records[begin : begin + header.size]):
                entry = parse(record.key, record.value)
                if entry is not None:
                    entries.append(entry)
    return entries, position
