"""A broker's replicas: the requests to them, their roles, and what looks after them.

    handlers ──> ReplicaManager ──┬─ produce.py   append, and wait for followers
                                  ├─ verification.py  of what opens a transaction, before it is appended
                                  ├─ fetch.py     read, or wait for something to read
                                  ├─ delete_records.py  move log starts, and wait for followers
                                  ├─ roles.py     metadata: lead, follow, stop
                                  ├─ configuration.py   what was set reaches whom it concerns
                                  ├─ jobs.py      flush, checkpoint, delete, expire   retention.py
                                  ├─ log_loading.py   before all that: open every log of a broker
                                  ├─ compaction.py   compacted topics are cleaned   compaction_metrics.py
                                  ├─ gauges.py, topic_meters.py   what there is to watch
    partitions ──> Observer ──────┼─ observer.py  what has moved   isr_events.py
                                  ├─ purgatories.py   who waits for it   delayed.py
    fetchers ──> LocalReplicas ───┴─ followed.py  append what leaders say   bytes_in.py
                                     hosted.py    who is here, and why not
                                     results.py   what a request is answered

Rule 1: a partition's state is changed by plain calls, on the loop. Who awaits anything looks
the partition up again.

Rule 2: what can take long (opening, deleting, syncing, checkpoints) is done away from the
loop, on what the loop has prepared.

Rule 3: a log that fails takes its partition offline (KAFKA_STORAGE_ERROR), and nothing else.
"""

from replication.replica_manager.followed import LocalReplicas
from replication.replica_manager.manager import MakeFetcherManager, ReplicaManager
from replication.replica_manager.observer import AlterPartitionManager
from replication.replica_manager.results import (
    DeleteRecordsResult,
    EpochEndResult,
    ListOffsetsResult,
    ProduceResult,
)
from replication.replica_manager.roles import FetcherManager
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
    "AlterPartitionManager",
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
    "refusals",
    "support_of_offset_commit",
    "support_of_produce",
    "the_one_producer",
]
