"""One partition's log on one disk: Kafka's files, opened, appended to, read and cut.

    log_manager          every log of a broker, over its log directories
      log_directory      whose a directory is, and what it remembers
      log                one partition: append as leader and as follower, marks, epochs
        append           what an append must be before anything is written
        retention        which of the oldest segments may go
        local_log        its bytes: segments, the log end, the recovery point
          flush          a sync, planned here and done elsewhere
          segments  segment  offset_index  time_index  transaction_index  index_file
        loading          opening, whatever is in the directory: believe, read again, cut, split
        time_lookup      from a time to an offset
        leader_epoch_cache  producer_state  producer_snapshot  producer_replay
        producer_checks  verification
    segment_file         one `.log` file by its path, for a notebook: `open_segment`
      dump               what stands in a log's files, and what is wrong with them
      columnar  arrow_columns  vectors  batches as Arrow columns (with the `arrow` extra)
    standalone           a log directory without a broker: open, read, append, check, repair
    batch_stream         the batches of a directory, to be compared or read
    checkpoint           small files replaced atomically
    record_batch  records  varint  compression  checksum      the bytes of a batch
    file_region          what a read answers with: bytes that stay in their file
    filesystem           the disk seam; testing has a disk that forgets what was not synced
    config  types  errors

Nothing here knows trio, a clock, chance or a socket: time comes as an argument, and slow
work is handed out for the caller to run in a thread. Names are imported from their modules;
these are the ones to begin with.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.batch.records import Record
    from storage.config import LogConfig
    from storage.errors import StorageError
    from storage.filesystem import OsFileSystem
    from storage.log.log import Log
    from storage.log.segment_file import SegmentFile, StoredBatch, open_segment
    from storage.manager.log_manager import LogManager
    from storage.tools.standalone import (
        append_records,
        check,
        open_log_directory,
        read_records,
        repair,
    )
    from storage.types import Offset, OffsetAndEpoch, TopicPartition

__all__ = [
    "Log",
    "LogConfig",
    "LogManager",
    "Offset",
    "OffsetAndEpoch",
    "OsFileSystem",
    "Record",
    "SegmentFile",
    "StorageError",
    "StoredBatch",
    "TopicPartition",
    "append_records",
    "check",
    "open_log_directory",
    "open_segment",
    "read_records",
    "repair",
]

_MODULES = {
    "Log": "log.log",
    "LogConfig": "config",
    "LogManager": "manager.log_manager",
    "Offset": "types",
    "OffsetAndEpoch": "types",
    "OsFileSystem": "filesystem",
    "Record": "batch.records",
    "SegmentFile": "log.segment_file",
    "StorageError": "errors",
    "StoredBatch": "log.segment_file",
    "TopicPartition": "types",
    "append_records": "tools.standalone",
    "check": "tools.standalone",
    "open_log_directory": "tools.standalone",
    "open_segment": "log.segment_file",
    "read_records": "tools.standalone",
    "repair": "tools.standalone",
}


def __getattr__(name: str) -> Any:
    """Import `name` when it is first used: a client needs a batch's bytes, and no log."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
