"""A Kafka log directory without a broker: opened, read, appended to, checked, repaired.

    for damage in storage.check("broker-1/log"):             whatever is wrong, by file and byte
        print(damage)
    for report in storage.repair("broker-1/log"):            every batch read again, as after a crash
        print(report.topic_partition, *report.repairs)
    with storage.open_log_directory("broker-1/log") as logs:
        log = logs.get(TopicPartition("orders", 0))
        storage.append_records(log, [Record(value=b"one book", timestamp=1_700_000_000_000)])
        books = list(storage.read_records(log))

Rule 1: who opens a directory holds its lock, as a broker does: one that is in use is refused.
`check` writes nothing and takes no lock; what a running broker is about to write is damage to it.

Rule 2: a directory is left as by a clean shutdown; by an exception, as by a kill. The marker keeps
its broker's epoch only where nothing was changed: no controller shall take another's work for
what its broker left (KIP-966).

Rule 3: what a repair cuts off is kept beside, where it had been promised to anybody
(storage.log.recovery).
"""

import contextlib
import os
from collections.abc import Iterable, Iterator

from storage.batch.compression import Codec
from storage.batch.record_batch import check_crc, walk
from storage.batch.records import Record, decode_batch, encode_batch
from storage.checkpoint import read_meta_properties
from storage.config import LogConfig
from storage.errors import CorruptRecordError, LogDirectoryError, naming
from storage.filesystem import FileSystem, OsFileSystem
from storage.log.append import LogAppendInfo
from storage.log.log import Log
from storage.log.recovery.report import RecoveryReport
from storage.manager.log_manager import LogManager, OnLoading
from storage.tools.dump import DumpOptions, dump, is_damage
from storage.tools.dump.entries import Entry
from storage.types import NO_BROKER_EPOCH, LeaderEpoch, Offset

Path = str | os.PathLike[str]

_READ_BYTES = 1 << 20


@contextlib.contextmanager
def open_log_directory(
    path: Path,
    *,
    config: LogConfig | None = None,
    node_id: int | None = None,
    believe_nothing: bool = False,
    file_system: FileSystem | None = None,
    on_loading: OnLoading | None = None,
) -> Iterator[LogManager]:
    """Open every log in the directory at `path`, until the end of the `with`.

    `node_id` is for a directory that does not name its owner; without it, raise LogDirectoryError.
    `believe_nothing`: read all batches again, also after a clean shutdown.
    `on_loading` is called with how many logs are open, and of how many, before each of them.
    """
    files, directory = file_system or OsFileSystem(), os.fspath(path)
    logs = LogManager(
        files,
        [directory],
        node_id=_node_of(files, directory) if node_id is None else node_id,
        config=config or LogConfig(),
        believe_nothing=believe_nothing,
    )
    logs.startup(on_loading)
    try:
        found = _ends(logs)
        yield logs
        untouched = logs.clean and _ends(logs) == found
        logs.shutdown(logs.previous_broker_epoch if untouched else NO_BROKER_EPOCH)
    finally:
        logs.close_uncleanly()


def _node_of(file_system: FileSystem, directory: str) -> int:
    properties = read_meta_properties(file_system, directory)
    if properties is None:
        raise LogDirectoryError(
            f"{directory} has no meta.properties: it is no log directory,"
            " or node_id has to say whose it is"
        )
    return properties.node_id


def _ends(logs: LogManager) -> list[tuple[str, Offset, Offset]]:
    return [(log.directory, log.log_start_offset, log.log_end_offset) for log in logs.logs()]


def append_records(
    log: Log,
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    leader_epoch: LeaderEpoch | None = None,
) -> LogAppendInfo:
    """Append `records` to `log` as one batch, in its latest leader epoch unless `leader_epoch` is given.

    Offsets that records bring are overwritten; timestamps are milliseconds since 1970.

    Raises:
        InvalidRecordError: a producer may not send that (`max.message.bytes`, timestamps).
        KafkaStorageError: the disk failed, and the log takes no more.
    """
    records = list(records)
    batch = memoryview(bytearray(encode_batch(records, codec=codec)))
    epoch = (log.latest_epoch or 0) if leader_epoch is None else leader_epoch
    latest = max((record.timestamp for record in records), default=0)
    return log.append_as_leader(batch, leader_epoch=epoch, wall_ms=latest)


def read_records(log: Log, from_offset: Offset | None = None) -> Iterator[Record]:
    """Yield every record, checked, without those of control batches, to the end of `log`.

    A batch is read and checked when its first record is asked for, so memory holds 1 MiB of log.

    Raises:
        CorruptRecordError: a batch whose CRC-32C does not match, named by file and byte.
        OffsetOutOfRangeError: `from_offset` is outside of the log.
    """
    offset = log.log_start_offset if from_offset is None else from_offset
    while offset < log.log_end_offset:
        found = log.read(offset, _READ_BYTES, max_offset_exclusive=log.log_end_offset, min_one=True)
        if found.records is None:
            return  # compaction has taken what was left
        data = memoryview(found.records.read())
        for position, header in walk(data):
            batch = data[position : position + header.size]
            with naming(found.records.file.path, found.records.position + position):
                if not check_crc(batch):
                    raise CorruptRecordError("its CRC-32C does not match")
                decoded = [] if header.is_control else decode_batch(batch)
            yield from (record for record in decoded if record.offset >= offset)
            offset = header.next_offset


def check(path: Path, file_system: FileSystem | None = None) -> Iterator[Entry]:
    """Yield what is wrong in the file, partition or log directory at `path`, with file and byte.

    Every batch is read, its CRC-32C computed and its records decoded; nothing is written or locked.
    Raise FileNotFoundError where nothing is there.
    """
    entries = dump(
        file_system or OsFileSystem(), [os.fspath(path)], DumpOptions(deep_iteration=True)
    )
    return filter(is_damage, entries)


def repair(
    path: Path,
    *,
    config: LogConfig | None = None,
    node_id: int | None = None,
    file_system: FileSystem | None = None,
) -> list[RecoveryReport]:
    """Read every batch in the log directory at `path` again, cut what makes no sense, and rebuild
    indexes, epochs and producers from the rest. Return what was done to each log.
    """
    with open_log_directory(
        path, config=config, node_id=node_id, believe_nothing=True, file_system=file_system
    ) as logs:
        return [log.recovery for log in logs.logs()]
