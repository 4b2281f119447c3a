"""A broker's replicas: the requests to them, their roles, and what looks after them.

    assembly.py makes the parts of a ReplicaManager (manager.py) and connects them

    handlers ───┬─ produce.py          append, and wait for followers   delayed.py
                ├─ verification.py     ask the coordinator before a batch opens a transaction
                ├─ fetch.py            read, or wait for records
                ├─ offsets.py          ListOffsets, and where a leader epoch ends
                └─ delete_records.py   move log starts, and wait for followers   delayed.py
    metadata ───┬─ roles.py            lead, follow, stop
                └─ configuration.py    apply what was set
    marks ──────── high_watermarks.py   checkpointed, and read at a start
    partitions ─── observer.py         ISR changes and offsets that moved   isr_events.py
    fetchers ───── followed.py         append what leaders send   bytes_in.py
    the clock ──┬─ jobs.py             flush, checkpoint, delete, expire
                └─ compaction.py       clean compacted topics   compaction_metrics.py
    all of them ┬─ hosted.py           the partitions here, and why one is not
                ├─ purgatories.py      the requests that wait
                ├─ failures.py         a log that fails takes its partition offline
                ├─ results.py          the answers to requests
                └─ gauges.py           metrics   partition_gauges.py topic_meters.py
    before them    log_loading.py      open every log of a broker

Rule 1: a partition's state is changed by plain calls, on the loop. Code that has awaited
something looks the partition up again.

Rule 2: what can take long (opening, deleting, syncing, checkpoints) is done away from the
loop, on what the loop has prepared.

Rule 3: a log that fails takes its partition offline (KAFKA_STORAGE_ERROR), and nothing else.
"""

from replication.replica_manager.assembly import MakeFetcherManager, assemble_replica_manager
from replication.replica_manager.followed import FetcherManager, LocalReplicas
from replication.replica_manager.manager import ReplicaManager
from replication.replica_manager.observer import AlterPartitionClient
from replication.replica_manager.results import (
    DeleteRecordsResult,
    EpochEndResult,
    ListOffsetsResult,
    ProduceResult,
)
from replication.replica_manager.roles import AssignDirectory
from replication.replica_manager.verification import (
    Support,
    TransactionalBatches,
    TransactionVerification,
    refusals,
    support_of_offset_commit,
    support_of_produce,
    the_one_producer,
)

__all__ = [
    "AlterPartitionClient",
    "AssignDirectory",
    "DeleteRecordsResult",
    "EpochEndResult",
    "FetcherManager",
    "ListOffsetsResult",
    "LocalReplicas",
    "MakeFetcherManager",
    "ProduceResult",
    "ReplicaManager",
    "Support",
    "TransactionVerification",
    "TransactionalBatches",
    "assemble_replica_manager",
    "refusals",
    "support_of_offset_commit",
    "support_of_produce",
    "the_one_producer",
]
