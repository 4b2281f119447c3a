"""One partition's log on one disk: Kafka's files, opened, appended to, read and cut.

    manager/       every log of a broker, over its log directories
    cleaner/       compaction
    log/           one partition: append, read, truncate, roll, retain, flush
      index/       the indexes of its segments
      recovery/    opening it, whatever is in the directory: believe, read again, cut, split
    producers/     what each idempotent producer last wrote
    batch/         the bytes of a batch, and batches as Arrow columns (with the `arrow` extra)
    checkpoint     small files replaced atomically
    filesystem     the disk seam; testing has a disk that forgets what was not synced
    tools/         a log directory without a broker: open, read, append, check, repair, dump
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
